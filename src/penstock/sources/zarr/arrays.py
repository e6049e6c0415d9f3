"""Zarr stores, versions 2 and 3: an array, or the arrays of a group; local or behind a URL."""

import json
import math
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.evidence import Unproven
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FieldError, FileChangedError, FileError, MissingFileError
from penstock.io.keys import Keys, open_keys
from penstock.io.location import Location
from penstock.shards.description import KEY, Description, parse_description
from penstock.shards.layout import FieldLayout
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
    each_field,
    no_rows,
)
from penstock.sources.zarr.bounded import ByZarr, bounded, in_bounds
from penstock.sources.zarr.direct import Means, direct_of, index_nbytes, means_of, recipe_of
from penstock.sources.zarr.recipe import ShardRecipe
from penstock.sources.zarr.sizes import WidthError, codecs_of, limits_of
from penstock.sources.zarr.store import store_class
from penstock.sources.zarr.varying import StoredArray, ZarrVarying

_METADATA = ("zarr.json", ".zarray")
_GROUP = {"zarr.json", ".zgroup"}


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the arrays of stores; reads their metadata."""
    texts: list[Description | None] = []

    def attempt(location: Location) -> Part:
        part, text = _open(location, locations, request)
        texts.append(text)
        return part

    good, parts = attempt_each(locations, attempt, request)
    if request.fields is None and texts[0] is not None and not request.left_out:
        # What `write` made has the nest that it was written with.
        request = replace(request, fields=texts[0].nest_of(parts[0].leaves))
    return rows_of(good, parts, request)


def _open(
    location: Location, locations: Sequence[Location], request: Request
) -> tuple[Part, Description | None]:
    store = OpenStore(location)
    text = store.description()
    specs = {} if text is None else text.specs
    layouts = {stem: FieldLayout(stem, spec) for stem, spec in specs.items()}

    def leaf(name: str) -> Leaf:
        layout = layouts.get(name)
        if layout is None or layout.is_fixed:
            return ZarrLeaf(store.array(name), name, location, locations, specs.get(name))
        arrays = {}
        for role, array in layout.arrays.items():
            path = name + array.role
            inner = ZarrLeaf(
                store.array(path), path, location, locations, ArraySpec(array.shape, array.dtype)
            )
            arrays[role] = StoredArray(inner, path, array)
        return ZarrVarying(layout, arrays, str(location), inner.how)

    try:
        names = request.names
        if names is None:
            names = list(specs) or store.names()
        leaves, left_out = each_field(names, leaf, request)
    finally:
        store.close()
    return Part(str(location), dict(leaves), left_out), text


class OpenStore:
    """An open store, and the arrays in it by path."""

    def __init__(self, location: Location) -> None:
        self.zarr = require("zarr", "reading .zarr", "zarr")
        self.location = location
        self.keys = open_keys(location)
        self._arrays: dict[str, Any] = {}
        try:
            self.store = store_class()(self.keys)
            self.node = self.zarr.open(self.store, mode="r")
        except FileError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise _damaged(error, location) from error

    def description(self) -> Description | None:
        """Return what `write` said of the rows of a group; None if it made none, or arrays of it are gone."""
        if isinstance(self.node, self.zarr.Array):
            return None
        text = parse_description(self.node.attrs.get(KEY))
        if text is None:
            return None
        layouts = [FieldLayout(stem, spec) for stem, spec in text.specs.items()]
        paths = [one.stem + array.role for one in layouts for array in one.arrays.values()]
        return text if all(map(self._is_array, paths)) else None

    def names(self) -> list[str]:
        """Return the paths of all arrays."""
        if isinstance(self.node, self.zarr.Array):
            return [""]
        try:
            found = dict(sorted(self.node.members(max_depth=None)))
        except FileError:
            raise
        except Exception as error:
            # One array that Zarr does not understand: the others may still be read.
            names = list(self._listed(""))
            if not names:
                raise _damaged(error, self.location) from error
            return names
        self._arrays = {n: one for n, one in found.items() if isinstance(one, self.zarr.Array)}
        if not self._arrays and self.location.is_remote:
            raise DataError(
                "its arrays can't be listed over this connection",
                file=str(self.location),
                cure="Name them with fields=(...), or write consolidated metadata: "
                "zarr.consolidate_metadata(path).",
            )
        return list(self._arrays)

    def _listed(self, prefix: str) -> Iterator[str]:
        """Yield the paths of folders that have the metadata of an array."""
        names = self.keys.names(prefix)
        if _GROUP & {*names} and not (prefix and self._is_array(prefix)):
            for name in names:
                yield from self._listed(f"{prefix}/{name}" if prefix else name)
        elif prefix and self._is_array(prefix):
            yield prefix

    def _is_array(self, path: str) -> bool:
        """Return whether there is metadata of an array here, or metadata that can't be read."""
        if self.keys.get(f"{path}/.zarray", 0, 0) is not None:
            return True
        data = self.keys.get(f"{path}/zarr.json", 0, None)
        found = None if data is None else _json(data)
        return data is not None and not (
            isinstance(found, dict) and found.get("node_type") == "group"
        )

    def array(self, name: str) -> Any:
        """Return the array of this path; raise if there is none, or none that can be read."""
        if isinstance(self.node, self.zarr.Array):
            check_names(str(self.location), [name], [""])
            one = self.node
        else:
            one = self._arrays[name] if name in self._arrays else self._member(name)
        self.store.limits[f"{name}/" if name else ""] = limits_of(one)
        return one

    def _member(self, name: str) -> Any:
        file = str(self.location)
        try:
            one = self.node.get(name)
        except FileError:
            raise
        except Exception as error:
            # What is no JSON is damaged; what is, says what Zarr has not: a dtype, a codec.
            if isinstance(error, json.JSONDecodeError) or not self._has_metadata(name):
                raise _damaged(error, self.location, f"array {name!r}: ") from error
            raise FieldError(
                f"array {name!r} can't be opened by Zarr: {type(error).__name__}: {error}",
                file=file,
                cure="Install what it needs, or choose others with fields=(...).",
            ) from error
        if isinstance(one, self.zarr.Array):
            return one
        try:
            names = self.names()
        except DataError:
            names = []  # Over this connection they can't be listed.
        if one is None:
            check_names(file, [name], [path for path in names if path != name])
        inner = [repr(path) for path in names if path.startswith(f"{name.strip('/')}/")]
        raise DataError(
            f"has no field {name!r}: it is a group, of {', '.join(inner) or 'no arrays'}",
            file=file,
            cure="Name arrays by their paths with fields=(...).",
        )

    def _has_metadata(self, name: str) -> bool:
        found = (self.keys.get(f"{name}/{one}", 0, None) for one in _METADATA)
        return any(data is not None and isinstance(_json(data), dict) for data in found)

    def close(self) -> None:
        """Release the connection."""
        self.keys.close()


def _json(data: bytes) -> Any:
    """Return what JSON says, or None if it is damaged."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _damaged(error: Exception, location: Location, which: str = "") -> FileError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileError):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, FileNotFoundError):
        problem = "there is no Zarr array or group here (no zarr.json, .zarray or .zgroup)"
        return MissingFileError(problem, file=str(location), cure="Check the path.")
    return DataError(
        f"{which}can't be read as Zarr: {type(error).__name__}: {error}",
        file=str(location),
        cure="It may be damaged or cut off: compare it with its original.",
    )


def _codec_names(part: Any) -> Iterator[str]:
    """Yield the names of codecs in metadata, however deep."""
    if isinstance(part, Mapping):
        yield from (str(part[key]) for key in ("id", "name") if key in part)
        part = list(part.values())
    if isinstance(part, list | tuple):
        for one in part:
            yield from _codec_names(one)


def _refuse_pickle(array: Any, name: str, file: str) -> None:
    if any("pickle" in codec for codec in _codec_names(codecs_of(array))):
        raise FieldError(
            f"{f'array {name!r}' if name else 'it'} is pickled, and to unpickle is to run code of whoever wrote it",
            file=file,
            cure="Choose others with fields=(...), or write it again with another codec.",
        )


def field_of(array: Any, name: str, file: str) -> Field:
    """Return the field of an array, or raise if it holds no numbers, or might run code."""
    if not array.shape:
        raise no_rows(file, name)
    _refuse_pickle(array, name, file)
    which = f"array {name!r}" if name else "it"
    try:
        bounded(array)
    except WidthError as error:
        raise FieldError(
            f"{which} has {error}",
            file=file,
            cure="It is damaged: copy it again from its original.",
        ) from error
    dtype = np.dtype(array.dtype)
    if dtype.hasobject or dtype.kind == "T":
        raise FieldError(
            f"{which} holds {dtype}, whose values have no fixed size",
            file=file,
            cure="Choose others with fields=(...), or store text with a fixed width (U20).",
        )
    return Field(ArraySpec(array.shape[1:], dtype))


def _differs_in_byte_order(stored: ArraySpec, wanted: ArraySpec) -> bool:
    """Return whether rows were written with another byte order: Zarr 3 has only that of the machine."""
    mine, theirs = stored.numpy_dtype, wanted.numpy_dtype
    return stored.shape == wanted.shape and mine != theirs and mine == theirs.newbyteorder("=")


class ZarrChunks(Chunked):
    """One array, decoded a chunk (or a row of chunks) at a time: here, or by Zarr where a codec is not known here."""

    overhead = 3  # Chunks as they lie in the store, unpacked, and put together.
    decodes_in_place = True

    def __init__(
        self, array: Any, name: str, file: str, key: Hashable, wanted: ArraySpec | None = None
    ) -> None:
        field = field_of(array, name, file)
        self.stored_dtype = field.spec.numpy_dtype
        if wanted is not None and _differs_in_byte_order(field.spec, wanted):
            field = Field(wanted)
        chunks = tuple(max(1, int(size)) for size in array.chunks)
        grid = Grid(int(array.shape[0]), chunks[0])
        super().__init__(field, grid, file=file, key=key)
        self.name = name
        width = np.dtype(array.dtype).itemsize
        sides = zip(array.shape[1:], chunks[1:], strict=True)
        self.stored_nbytes: int = width * math.prod(-(-size // step) * step for size, step in sides)
        """The bytes of a row in its chunks, which may go past the edge of the array."""
        recipe = recipe_of(array)
        self.index_nbytes = index_nbytes(recipe)
        self.least_index_nbytes = 2 * recipe.index_nbytes if isinstance(recipe, ShardRecipe) else 0

    @abstractmethod
    def rows(self, context: Context) -> "_Rows":
        """Return what reads its rows."""

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows in memory from `context.allocate`."""
        values = self.memory(stop - start, context)
        self.decode_into(values, start, stop, context)
        return values

    def decode_into(self, out: Array, start: int, stop: int, context: Context) -> None:
        """Unpack chunks to where their rows are wanted."""
        rows = self.rows(context)
        if out.size:
            values = out.view(self.stored_dtype)
            rows.read(values, start)
            if out.dtype != self.stored_dtype:
                values.byteswap(inplace=True)

    def limit_index(self, nbytes: int) -> None:
        """Retain fewer indices of shards, but two at least."""
        self.index_nbytes = min(self.index_nbytes, max(nbytes, self.least_index_nbytes))

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the rows decoded at once; chunks are decoded whole, with what is past the edge."""
        nbytes = super().staging_nbytes(num_rows)
        if self.stored_nbytes > self.field.nbytes > 0:
            nbytes = nbytes * self.stored_nbytes // self.field.nbytes
        past = max(0, self.chunk_rows - self.num_rows)
        return nbytes + self.overhead * past * self.stored_nbytes


class ZarrLeaf(ZarrChunks):
    """An array of a store."""

    def __init__(
        self,
        array: Any,
        name: str,
        location: Location,
        locations: Sequence[Location],
        wanted: ArraySpec | None = None,
    ) -> None:
        super().__init__(array, name, str(location), array_key(locations, name), wanted)
        self.location = location
        self.shape = array.shape
        self.how = f"Zarr version {array.metadata.zarr_format}, decoded a chunk at a time"

    def rows(self, context: Context) -> "_Rows":
        """Return what reads its rows, for as long as the stream is open."""
        means = means_of(context)
        return context.resources.get(
            ("zarr", self.location.url, self.name), lambda: _OpenArray(self, means)
        )


class _OpenArray:
    """An array that a stream has open."""

    def __init__(self, leaf: ZarrLeaf, means: Means) -> None:
        self.leaf = leaf
        self.store = OpenStore(leaf.location)
        try:
            array = self.store.array(leaf.name)
        except BaseException:
            self.store.close()
            raise
        if array.shape != leaf.shape or array.dtype != leaf.stored_dtype:
            self.store.close()
            raise FileChangedError(
                f"array {leaf.name!r} is not what it was when the dataset was built",
                file=leaf.file,
                cure="Build the dataset again.",
            )
        self.prefix = f"{leaf.name}/" if leaf.name else ""
        folder = f"{leaf.file.rstrip('/')}/{leaf.name}".rstrip("/")
        direct = direct_of(
            array, self.store.keys, self.prefix, folder, means, index_nbytes=leaf.index_nbytes
        )
        self.reads = direct or ByZarr(bounded(array), folder)

    def read(self, values: Array, start: int) -> None:
        missing = self.store.keys.num_missing
        self.reads.read(values, start)
        if self.store.keys.num_missing == missing:
            return
        # A missing chunk stands for the fill value, but not if the whole array is gone.
        if all(self.store.keys.get(self.prefix + one, 0, 0) is None for one in _METADATA):
            raise MissingFileError(
                "the array has vanished since it was listed",
                file=self.leaf.file,
                cure="Check the path.",
            )

    def close(self) -> None:
        self.store.close()


class OpenedArray(ZarrChunks):
    """An array that the user has open: for `from_arrays`."""

    def __init__(self, array: Any, name: str) -> None:
        super().__init__(array, name, str(array.store_path), (id(array), name))
        self.array = array
        self.how = "open Zarr array, decoded a chunk at a time"

    def proof(self) -> Any:
        """Return the versions of all files of its store, and the array's name in it."""
        root = getattr(self.array.store, "root", None)  # Only a store in a local folder has one.
        if root is None or not Path(root).is_dir():
            raise Unproven(f"it lies in a {type(self.array.store).__name__}")
        return [*Location(str(root), 0, is_directory=True).identity(), self.array.path]

    def rows(self, context: Context) -> "_Rows":
        """Return what reads its rows; the array is the user's to close."""
        check_unchanged(self, self.array.shape)
        means = means_of(context)
        return context.resources.get(("open zarr", self.key), lambda: _UsersArray(self, means))


class _UsersArray:
    """What a stream reads of an array that the user has open."""

    def __init__(self, leaf: OpenedArray, means: Means) -> None:
        array, direct = leaf.array, None
        self.keys: Keys | None = None
        root = _local_root(array)
        if root is not None:
            self.keys = open_keys(Location(str(root), 0, is_directory=True))
            prefix = f"{array.path}/" if array.path else ""
            direct = direct_of(
                array, self.keys, prefix, leaf.file, means, index_nbytes=leaf.index_nbytes
            )
        self.reads = direct or ByZarr(bounded(in_bounds(array)), leaf.file)

    def read(self, values: Array, start: int) -> None:
        self.reads.read(values, start)

    def close(self) -> None:
        if self.keys is not None:
            self.keys.close()


def _local_root(array: Any) -> Path | None:
    """Return the folder of an array that lies in a plain one; None for all other stores."""
    local = require("zarr.storage", "reading .zarr", "zarr").LocalStore
    return Path(array.store.root) if type(array.store) is local else None


_Rows = _OpenArray | _UsersArray
