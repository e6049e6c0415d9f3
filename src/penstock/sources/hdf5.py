"""HDF5 files: datasets by path; plain ones are read in place, chunked ones through h5py."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.columns import column_of
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FileChangedError, FileError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.io.seekable import SeekableFile
from penstock.sources.reading.chunked import (
    Chunked,
    Grid,
    Values,
    check_unchanged,
)
from penstock.sources.reading.file_rows import rows_of
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.open_files import reader_of
from penstock.sources.reading.parts import (
    Part,
    Request,
    array_key,
    attempt_each,
    check_names,
    no_rows,
)
from penstock.sources.reading.regions import Region

_TEXT_SAMPLE = 256  # Values of variable length that are read to estimate their length.


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the datasets of files; reads their metadata."""
    opened = attempt_each(locations, lambda location: _open(location, locations, request), request)
    return rows_of(*opened, request)


def _open(location: Location, locations: Sequence[Location], request: Request) -> Part:
    with open_reader(location) as reader:
        handle = Handle(location, reader)
        try:
            found = _datasets(handle.file, request.names)
            check_names(str(location), request.names or (), found)
            leaves = {
                name: _leaf(dataset, name, location, locations, direct=request.direct)
                for name, dataset in found.items()
            }
        except FileError:
            raise
        except (OSError, RuntimeError, KeyError) as error:
            raise _damaged(error, str(location)) from error
        finally:
            handle.close()
    return Part(str(location), leaves)


class Handle:
    """An open file; HDF5 does one thing at a time, so a thread that reads holds `lock`."""

    def __init__(self, location: Location, reader: Reader) -> None:
        h5py = require("h5py", f"reading {location.suffix or '.h5'}", "hdf5")
        self.lock = threading.Lock()
        self.stream = SeekableFile(reader)
        try:
            # No chunk cache of HDF5's: chunks are decoded whole, and we retain those that two reads share.
            self.file = h5py.File(self.stream, "r", rdcc_nbytes=0)
        except FileError:
            raise
        except (OSError, RuntimeError) as error:
            raise _damaged(error, str(location)) from error

    def close(self) -> None:
        """Close the file; its reader stays open, since it is not ours."""
        with self.lock:
            self.file.close()
            self.stream.close()


def _damaged(error: Exception, file: str) -> FileError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return DataError(
        f"can't be read as HDF5: {error}",
        file=file,
        cure="It may be damaged or cut off: compare it with its original.",
    )


def _datasets(file: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the datasets of a file by path: the chosen ones, or all that have rows."""
    h5py = require("h5py", "reading .h5", "hdf5")
    if names is not None:
        chosen = {name: file.get(name) for name in names if name in file}
        return {name: one for name, one in chosen.items() if isinstance(one, h5py.Dataset)}
    found: dict[str, Any] = {}

    def visit(path: str, one: Any) -> None:
        if isinstance(one, h5py.Dataset) and one.shape:
            found[path] = one

    file.visititems(visit)
    return found


def _leaf(
    dataset: Any, name: str, location: Location, locations: Sequence[Location], *, direct: bool
) -> Leaf:
    file = str(location)
    if dataset.shape is None or len(dataset.shape) == 0:
        raise no_rows(file, name)
    _check_readable(dataset, name, file)
    field = _field(dataset, name, file)
    offset = dataset.id.get_offset() if dataset.chunks is None and field.spec.is_fixed else None
    if offset is not None:
        return Region(location, int(offset), dataset.dtype, dataset.shape, direct=direct)
    return Hdf5Leaf(dataset, field, name, location, locations, direct=direct)


def _check_readable(dataset: Any, name: str, file: str) -> None:
    """Raise if the values are in other files, or packed with a filter that is not installed."""
    h5py = require("h5py", "reading .h5", "hdf5")
    if dataset.external or dataset.is_virtual:
        raise DataError(
            f"dataset {name!r} keeps its values in other files",
            file=file,
            cure=f"Open it yourself: ps.from_arrays(h5py.File(path)[{name!r}]).",
        )
    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code = properties.get_filter(number)[0]
        if not h5py.h5z.filter_avail(code):
            raise DataError(
                f"dataset {name!r} is packed with HDF5 filter {code}, which is not installed",
                file=file,
                cure="pip install hdf5plugin, and write `import hdf5plugin` before this line.",
            )


def _field(dataset: Any, name: str, file: str) -> Field:
    h5py = require("h5py", "reading .h5", "hdf5")
    text = h5py.check_string_dtype(dataset.dtype)
    items = h5py.check_vlen_dtype(dataset.dtype)
    if text is not None and text.length is None:
        if dataset.ndim == 1:
            kind = str if text.encoding == "utf-8" else bytes
            return Field(ArraySpec((), kind), estimate=_mean_length(dataset, 1) + 8)
    elif items is not None and dataset.ndim == 1 and not items.hasobject:
        return Field(ArraySpec((None,), items), estimate=_mean_length(dataset, items.itemsize) + 16)
    elif not dataset.dtype.hasobject:
        inner = dataset.dtype.subdtype
        shape = dataset.shape[1:] + (inner[1] if inner else ())
        return Field(ArraySpec(shape, inner[0] if inner else dataset.dtype))
    raise DataError(
        f"dataset {name!r} holds {dataset.dtype} of shape {dataset.shape}, which is no array of numbers",
        file=file,
        cure="Choose others with fields=(...).",
    )


def _mean_length(dataset: Any, itemsize: int) -> int:
    sample = dataset[: min(_TEXT_SAMPLE, len(dataset), dataset.chunks[0] if dataset.chunks else 1)]
    return int(sum(map(len, sample)) * itemsize // max(1, len(sample)))


def chunk_rows_of(chunks: Sequence[int] | None) -> int:
    """Return how many rows a chunk has; 1 without chunks, since such a dataset may be cut anywhere."""
    return 1 if chunks is None else max(1, int(chunks[0]))


class Hdf5Leaf(Chunked):
    """A chunked dataset, which HDF5 decodes one chunk at a time."""

    overhead = 2  # HDF5 holds a chunk as it lies in the file, and as it was unpacked.

    def __init__(
        self,
        dataset: Any,
        field: Field,
        name: str,
        location: Location,
        locations: Sequence[Location],
        *,
        direct: bool,
    ) -> None:
        grid = Grid(int(dataset.shape[0]), chunk_rows_of(dataset.chunks))
        super().__init__(field, grid, file=str(location), key=array_key(locations, name))
        self.location = location
        self.name = name
        self.shape = dataset.shape
        self.dtype = dataset.dtype
        self.direct = direct
        packed = f"packed with {dataset.compression}" if dataset.compression else "in chunks"
        self.how = f"HDF5 {packed}, decoded a chunk at a time, one file by one thread"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows that h5py reads into memory from `context.allocate`."""
        reader = reader_of(self.location, context, direct=self.direct)
        handle = context.resources.get(
            ("hdf5", self.location.url), lambda: Handle(self.location, reader)
        )
        with handle.lock:
            dataset = handle.file[self.name]
            if dataset.shape != self.shape or dataset.dtype != self.dtype:
                raise FileChangedError(
                    f"dataset {self.name!r} was {self.dtype} {self.shape}, and is {dataset.dtype} "
                    f"{dataset.shape} now",
                    file=self.file,
                    cure="Build the dataset again.",
                )
            return decode_dataset(dataset, self, start, stop, context)


def decode_dataset(dataset: Any, leaf: Chunked, start: int, stop: int, context: Context) -> Values:
    """Return rows `start` to `stop` of an open dataset, in memory from `context.allocate`."""
    spec = leaf.field.spec
    if spec.is_fixed:
        values = leaf.memory(stop - start, context)
        if values.size:
            dataset.read_direct(values, np.s_[start:stop])
        return values
    rows = (dataset.asstr() if spec.dtype is str else dataset)[start:stop].tolist()
    return column_of(rows, spec, context.allocate, aligned=False)


class OpenedDataset(Chunked):
    """A dataset that the user has open, and keeps open: for `from_arrays`."""

    overhead = 2
    _lock = threading.Lock()  # One for all: several objects may be the same file.

    def __init__(self, dataset: Any, name: str) -> None:
        file = str(dataset.file.filename)
        if not dataset.shape:
            raise no_rows(file, name)
        self.dataset = dataset
        grid = Grid(int(dataset.shape[0]), chunk_rows_of(dataset.chunks))
        super().__init__(_field(dataset, name, file), grid, file=file, key=(id(dataset), name))
        self.how = "open HDF5 dataset, decoded a chunk at a time, by one thread"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows that h5py reads into memory from `context.allocate`."""
        with self._lock:
            if not self.dataset:
                raise DataError(
                    "the file was closed, and its rows are still being read",
                    file=self.file,
                    row=start,
                    cure="Keep it open for as long as the dataset is used, or use ps.from_files(path).",
                )
            check_unchanged(self, self.dataset.shape)
            return decode_dataset(self.dataset, self, start, stop, context)
