"""Zarr stores, versions 2 and 3: an array, or the arrays of a group; local or behind a URL."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FileChangedError, FileError, MissingFileError
from penstock.io.keys import open_keys
from penstock.io.location import Location
from penstock.sources.reading.chunked import (
    Chunked,
    Grid,
    Values,
    check_unchanged,
)
from penstock.sources.reading.file_rows import rows_of
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import (
    Part,
    Request,
    array_key,
    attempt_each,
    check_names,
    no_rows,
)
from penstock.sources.zarr.store import frame_nbytes, store_class

_METADATA = ("zarr.json", ".zarray")


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the arrays of stores; reads their metadata."""
    opened = attempt_each(locations, lambda location: _open(location, locations, request), request)
    return rows_of(*opened, request)


def _open(location: Location, locations: Sequence[Location], request: Request) -> Part:
    store = OpenStore(location)
    try:
        leaves: dict[str, Leaf] = {}
        for name, array in store.arrays(request.names).items():
            leaves[name] = ZarrLeaf(array, name, location, locations)
    finally:
        store.close()
    check_names(str(location), request.names or (), leaves)
    return Part(str(location), leaves)


class OpenStore:
    """An open store, and the arrays in it by path."""

    def __init__(self, location: Location) -> None:
        self.zarr = require("zarr", "reading .zarr", "zarr")
        self.location = location
        self.keys = open_keys(location)
        try:
            self.store = store_class()(self.keys)
            self.node = self.zarr.open(self.store, mode="r")
        except FileError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise _damaged(error, location) from error

    def arrays(self, names: Sequence[str] | None) -> dict[str, Any]:
        """Return the arrays by path: the chosen ones, or all that have rows."""
        if isinstance(self.node, self.zarr.Array):
            self.store.frames[""] = frame_nbytes(self.node)
            return {"": self.node}
        try:
            if names is not None:
                found = {name: self.node.get(name) for name in names}
            else:
                found = dict(sorted(self.node.members(max_depth=None)))
        except FileError:
            raise
        except Exception as error:
            raise _damaged(error, self.location) from error
        arrays = {name: one for name, one in found.items() if isinstance(one, self.zarr.Array)}
        self.store.frames |= {f"{name}/": frame_nbytes(one) for name, one in arrays.items()}
        if names is None:
            arrays = {name: one for name, one in arrays.items() if one.shape}
            if not arrays and self.location.is_remote:
                raise DataError(
                    "its arrays can't be listed over this connection",
                    file=str(self.location),
                    cure="Name them with fields=(...), or write consolidated metadata: "
                    "zarr.consolidate_metadata(path).",
                )
        return arrays

    def close(self) -> None:
        """Release the connection."""
        self.keys.close()


def _damaged(error: Exception, location: Location) -> FileError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileError):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, FileNotFoundError):
        problem = "there is no Zarr array or group here (no zarr.json, .zarray or .zgroup)"
        return MissingFileError(problem, file=str(location), cure="Check the path.")
    return DataError(
        f"can't be read as Zarr: {type(error).__name__}: {error}",
        file=str(location),
        cure="It may be damaged or cut off: compare it with its original.",
    )


def field_of(array: Any, name: str, file: str) -> Field:
    """Return the field of an array, or raise if it holds no numbers."""
    if not array.shape:
        raise no_rows(file, name)
    dtype = np.dtype(array.dtype)
    if dtype.hasobject or dtype.kind == "T":
        raise DataError(
            f"array {name!r} holds {dtype}, whose values have no fixed size",
            file=file,
            cure="Choose others with fields=(...), or store text with a fixed width (U20).",
        )
    return Field(ArraySpec(array.shape[1:], dtype))


class ZarrLeaf(Chunked):
    """One array, decoded by Zarr a chunk (or a row of chunks) at a time."""

    overhead = 3  # Chunks as they lie in the store, unpacked, and put together.

    def __init__(
        self, array: Any, name: str, location: Location, locations: Sequence[Location]
    ) -> None:
        field = field_of(array, name, str(location))
        grid = Grid(int(array.shape[0]), max(1, int(array.chunks[0])))
        super().__init__(field, grid, file=str(location), key=array_key(locations, name))
        self.name = name
        self.location = location
        self.shape = array.shape
        self.how = f"Zarr version {array.metadata.zarr_format}, decoded a chunk at a time"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows that Zarr decoded and put together."""
        array = context.resources.get(
            ("zarr", self.location.url, self.name), lambda: _OpenArray(self)
        )
        return array.rows(start, stop)


class _OpenArray:
    """An array that a stream has open."""

    def __init__(self, leaf: ZarrLeaf) -> None:
        self.leaf = leaf
        self.store = OpenStore(leaf.location)
        self.array: Any = self.store.arrays([leaf.name]).get(leaf.name)
        if self.array is None or self.array.shape != leaf.shape:
            self.store.close()
            raise FileChangedError(
                f"array {leaf.name!r} is not what it was when the dataset was built",
                file=leaf.file,
                cure="Build the dataset again.",
            )

    def rows(self, start: int, stop: int) -> Array:
        missing = self.store.keys.num_missing
        found = np.asarray(self.array[start:stop])
        if self.store.keys.num_missing == missing:
            return found
        # A missing chunk stands for the fill value, but not if the whole array is gone.
        prefix = f"{self.leaf.name}/" if self.leaf.name else ""
        if all(self.store.keys.get(prefix + one, 0, 0) is None for one in _METADATA):
            raise MissingFileError(
                "the array has vanished since it was listed",
                file=self.leaf.file,
                cure="Check the path.",
            )
        return found

    def close(self) -> None:
        self.store.close()


class OpenedArray(Chunked):
    """An array that the user has open: for `from_arrays`."""

    overhead = 3

    def __init__(self, array: Any, name: str) -> None:
        file = str(array.store_path)
        self.array = array
        grid = Grid(int(array.shape[0]) if array.shape else 0, max(1, int((*array.chunks, 1)[0])))
        super().__init__(field_of(array, name, file), grid, file=file, key=(id(array), name))
        self.how = "open Zarr array, decoded a chunk at a time"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows that Zarr decoded and put together."""
        check_unchanged(self, self.array.shape)
        return np.asarray(self.array[start:stop])
