"""HDF5 files: datasets by path; plain ones are read in place, all others through h5py."""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.columns import column_of
from penstock.core.evidence import Unproven
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FieldError, FileChangedError, FileError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.paths import expand
from penstock.sources.hdf5.handle import Handle, dataset_at, names_in, naming
from penstock.sources.hdf5.value_types import UnreadableTypeError, ValueType, list_dtype, value_type
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
    each_field,
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
            with naming(str(location)):
                leaves, left_out = each_field(
                    names_in(handle.file) if request.names is None else request.names,
                    lambda name: _leaf(handle, name, location, locations, direct=request.direct),
                    request,
                )
        finally:
            handle.close()
    return Part(str(location), leaves, left_out)


def _leaf(
    handle: Handle, name: str, location: Location, locations: Sequence[Location], *, direct: bool
) -> Leaf:
    file = str(location)
    with naming(file, f"dataset {name!r}: "):
        dataset = dataset_at(handle.file, name, file)
        return _leaf_of_dataset(dataset, name, location, locations, direct=direct)


def _leaf_of_dataset(
    dataset: Any, name: str, location: Location, locations: Sequence[Location], *, direct: bool
) -> Leaf:
    file = str(location)
    content = content_of(dataset, name, file)
    if dataset.external or dataset.is_virtual:
        raise FieldError(
            f"dataset {name!r} keeps its values in other files",
            file=file,
            cure=f"Open it yourself: ps.from_arrays(h5py.File(path)[{name!r}]).",
        )
    _check_filters(dataset, name, file)
    offset = _plain_offset(dataset, content)
    if offset is not None:
        shape = (int(dataset.shape[0]), *content.spec.fixed_shape)
        return Region(location, offset, content.spec.numpy_dtype, shape, direct=direct)
    return Hdf5Leaf(dataset, content, name, location, locations, direct=direct)


def _plain_offset(dataset: Any, content: "Content") -> int | None:
    """Return where the rows begin, if they lie in the file byte for byte as in an array; else None."""
    if content.kind is None or not content.kind.is_plain or dataset.chunks is not None:
        return None
    offset = dataset.id.get_offset()
    nbytes = math.prod(dataset.shape) * content.kind.dtype.itemsize
    if offset is None or dataset.id.get_storage_size() != nbytes:
        return None  # Nothing is written yet, or it lies among the metadata.
    return int(offset)


def _check_filters(dataset: Any, name: str, file: str) -> None:
    """Raise if values are packed with a filter that is not installed."""
    h5py = require("h5py", "reading .h5", "hdf5")
    properties = dataset.id.get_create_plist()
    for number in range(properties.get_nfilters()):
        code = properties.get_filter(number)[0]
        if not h5py.h5z.filter_avail(code):
            raise FieldError(
                f"dataset {name!r} is packed with HDF5 filter {code}, which is not installed",
                file=file,
                cure="pip install hdf5plugin, and write `import hdf5plugin` before this line.",
            )


@dataclass(frozen=True, slots=True)
class Content:
    """What the rows of a dataset are."""

    spec: ArraySpec
    kind: ValueType | None
    """How its values are held in memory; None for text and lists of any length."""


def content_of(dataset: Any, name: str, file: str) -> Content:
    """Return what the rows of a dataset are; raise if it has no rows, or none that can be held."""
    if not dataset.shape:
        raise no_rows(file, name)
    try:
        return _content(dataset)
    except UnreadableTypeError as error:
        raise FieldError(
            f"dataset {name!r} of shape {dataset.shape} holds {error}, which can't be read as rows",
            file=file,
            cure="Choose others with fields=(...).",
        ) from error


def _content(dataset: Any) -> Content:
    h5t = require("h5py", "reading .h5", "hdf5").h5t
    stored = dataset.id.get_type()
    is_text = stored.get_class() == h5t.STRING and stored.is_variable_str()
    if not is_text and stored.get_class() != h5t.VLEN:
        kind = value_type(stored)
        return Content(ArraySpec(dataset.shape[1:] + kind.shape, kind.item), kind)
    if dataset.ndim != 1:
        raise UnreadableTypeError(f"{'text' if is_text else 'lists'} of any length")
    if is_text:
        is_utf8 = stored.get_cset() == h5t.CSET_UTF8
        return Content(ArraySpec((), str if is_utf8 else bytes), None)
    return Content(ArraySpec((None,), list_dtype(stored)), None)


def _field(dataset: Any, content: Content) -> Field:
    spec = content.spec
    if spec.is_fixed:
        return Field(spec)
    sample = dataset[: min(_TEXT_SAMPLE, len(dataset), chunk_rows_of(dataset.chunks))]
    itemsize = 1 if spec.is_text else spec.numpy_dtype.itemsize
    mean = int(sum(map(len, sample)) * itemsize // max(1, len(sample)))
    return Field(spec, estimate=mean + (8 if spec.is_text else 16))


def chunk_rows_of(chunks: Sequence[int] | None) -> int:
    """Return how many rows a chunk has; 1 without chunks, since such a dataset may be cut anywhere."""
    return 1 if chunks is None else max(1, int(chunks[0]))


class Hdf5Leaf(Chunked):
    """A dataset in chunks, or of values that HDF5 converts: it decodes one chunk at a time."""

    overhead = 2  # HDF5 holds a chunk as it lies in the file, and as it was unpacked.

    def __init__(
        self,
        dataset: Any,
        content: Content,
        name: str,
        location: Location,
        locations: Sequence[Location],
        *,
        direct: bool,
    ) -> None:
        grid = Grid(int(dataset.shape[0]), chunk_rows_of(dataset.chunks))
        key = array_key(locations, name)
        super().__init__(_field(dataset, content), grid, file=str(location), key=key)
        self.location = location
        self.name = name
        self.shape = dataset.shape
        self.direct = direct
        packed = f"packed with {dataset.compression}" if dataset.compression else "in chunks"
        packed = "of values to convert" if dataset.chunks is None else packed
        self.how = f"HDF5 {packed}, decoded a chunk at a time, one file by one thread"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows that h5py reads into memory from `context.allocate`."""
        reader = reader_of(self.location, context, direct=self.direct)
        handle = context.resources.get(
            ("hdf5", self.location.url), lambda: Handle(self.location, reader)
        )
        with handle.lock:
            dataset, content = handle.kept(self.name, lambda: self._opened(handle))
            return decode_rows(dataset, content, self, start, stop, context)

    def _opened(self, handle: Handle) -> tuple[Any, Content]:
        dataset = dataset_at(handle.file, self.name, self.file)
        content = content_of(dataset, self.name, self.file)
        spec = self.field.spec
        if dataset.shape != self.shape or content.spec != spec:
            raise FileChangedError(
                f"dataset {self.name!r} was {self.shape} of {spec}, and is {dataset.shape} of "
                f"{content.spec} now",
                file=self.file,
                cure="Build the dataset again.",
            )
        return dataset, content


def decode_rows(
    dataset: Any, content: Content, leaf: Chunked, start: int, stop: int, context: Context
) -> Values:
    """Return rows `start` to `stop` of an open dataset, in memory from `context.allocate`."""
    spec = content.spec
    if content.kind is None:
        rows = (dataset.asstr() if spec.dtype is str else dataset)[start:stop].tolist()
        return column_of(rows, spec, context.allocate, aligned=False)
    values = leaf.memory(stop - start, context)
    if values.size:
        spaces = require("h5py", "reading .h5", "hdf5").h5s
        counts = (stop - start, *dataset.shape[1:])
        source = dataset.id.get_space()
        source.select_hyperslab((start, *(0 for _ in counts[1:])), counts)
        dataset.id.read(spaces.create_simple(counts), source, values, content.kind.memory)
    return values


class OpenedDataset(Chunked):
    """A dataset that the user has open, and keeps open: for `from_arrays`."""

    overhead = 2
    _lock = threading.Lock()  # One for all: several objects may be the same file.

    def __init__(self, dataset: Any, name: str) -> None:
        file = str(dataset.file.filename)
        self.content = content_of(dataset, name, file)
        _check_filters(dataset, name, file)
        self.dataset = dataset
        grid = Grid(int(dataset.shape[0]), chunk_rows_of(dataset.chunks))
        with naming(file, f"dataset {name!r}: "):
            field = _field(dataset, self.content)
        super().__init__(field, grid, file=file, key=(id(dataset), name))
        self.how = "open HDF5 dataset, decoded a chunk at a time, by one thread"

    def proof(self) -> Any:
        """Return the version of the file, and the dataset's name in it."""
        with self._lock:
            if not self.dataset or self.dataset.file.mode != "r":
                raise Unproven("its file is open for writing, or closed")
            if self.dataset.external or self.dataset.is_virtual:
                raise Unproven("its values are in other files")
            name = str(self.dataset.name)
        try:
            (location,) = expand(self.file)
        except FileError as error:
            raise Unproven("there is no file under its name") from error
        return [*location.identity(), name]

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
            return decode_rows(self.dataset, self.content, self, start, stop, context)
