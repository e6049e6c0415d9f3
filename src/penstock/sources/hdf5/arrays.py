"""HDF5 files: datasets by path; plain ones are read in place, all others through h5py."""

import contextlib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core import forking
from penstock.core.evidence import Unproven
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FieldError, FileChangedError, FileError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.paths import expand
from penstock.io.reader import Reader
from penstock.sources.hdf5.chunks import Lock, check_chunks, most_packed, read_packed, read_slab
from penstock.sources.hdf5.filter_pipeline import chunk_nbytes, filters_of
from penstock.sources.hdf5.handle import Handle, dataset_at, names_in, naming
from penstock.sources.hdf5.value_types import UnreadableTypeError, ValueType, list_dtype, value_type
from penstock.sources.hdf5.varying import Sizes, chunk_rows_of, decode_varying, sizes_of
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

_DRIVERS = (
    "sec2",
    "stdio",
    "core",
)  # Of HDF5, which show a file as it is on disk if it is open for reading.


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
        return _leaf_of_dataset(handle, dataset, name, location, locations, direct=direct)


def _leaf_of_dataset(
    handle: Handle,
    dataset: Any,
    name: str,
    location: Location,
    locations: Sequence[Location],
    *,
    direct: bool,
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
    handle.allow(_most_read(dataset))
    sizes = _sizes(dataset, content, handle.reader, file)
    return Hdf5Leaf(dataset, sizes, name, location, locations, direct=direct)


def _most_read(dataset: Any) -> int:
    """Return the most bytes that HDF5 reads at once: a chunk as it lies in the file."""
    if dataset.chunks is None:
        return 0
    return most_packed(dataset, filters_of(dataset))


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
    is_plain: bool = True
    """Whether the items of lists lie in the file as in memory."""


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
    is_plain = value_type(stored.get_super()).is_plain
    return Content(ArraySpec((None,), list_dtype(stored)), None, is_plain)


def _sizes(dataset: Any, content: Content, reader: Reader | None, file: str) -> Sizes:
    if content.spec.is_fixed:
        return Sizes(Field(content.spec), chunk_rows_of(dataset.chunks), None)
    return sizes_of(dataset, content.spec, reader, file)


class Hdf5Chunks(Chunked):
    """A dataset in chunks, or of values that HDF5 converts: it decodes one chunk at a time."""

    overhead = 2  # A chunk as it lies in the file, and as it was unpacked.

    def __init__(self, dataset: Any, sizes: Sizes, *, file: str, key: Hashable) -> None:
        grid = Grid(int(dataset.shape[0]), sizes.chunk_rows, nbytes=sizes.chunk_nbytes)
        super().__init__(sizes.field, grid, file=file, key=key)
        stored = 0 if dataset.chunks is None else chunk_nbytes(dataset)
        self.past_nbytes = max(0, stored - self.chunk_nbytes)
        """What a chunk has past the edge of the dataset."""

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the rows decoded at once; a chunk is unpacked whole, with what is past the edge."""
        return super().staging_nbytes(num_rows) + self.overhead * self.past_nbytes


class Hdf5Leaf(Hdf5Chunks):
    """A dataset of a file."""

    def __init__(
        self,
        dataset: Any,
        sizes: Sizes,
        name: str,
        location: Location,
        locations: Sequence[Location],
        *,
        direct: bool,
    ) -> None:
        super().__init__(dataset, sizes, file=str(location), key=array_key(locations, name))
        self.location = location
        self.name = name
        self.shape = dataset.shape
        self.direct = direct
        packed = f"packed with {dataset.compression}" if dataset.compression else "in chunks"
        packed = "of values to convert" if dataset.chunks is None else packed
        self.how = f"HDF5 {packed}, decoded a chunk at a time"

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows in memory from `context.allocate`."""
        reader = reader_of(self.location, context, direct=self.direct)
        handle = context.resources.get(
            ("hdf5", self.location.url), lambda: Handle(self.location, reader)
        )
        with handle.lock:
            dataset, content = handle.kept(self.name, lambda: self._opened(handle))
            # Rows that lie among the metadata are read by HDF5 itself, as far as there is room.
            is_compact = content.kind is None and dataset.chunks is None
            handle.allow(context.budget or 0 if is_compact else _most_read(dataset))
        return decode_rows(dataset, content, self, start, stop, context, reader, handle.lock)

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
    dataset: Any,
    content: Content,
    leaf: Chunked,
    start: int,
    stop: int,
    context: Context,
    reader: Reader | None,
    lock: Lock,
) -> Values:
    """Return rows `start` to `stop` of an open dataset, in memory from `context.allocate`."""
    kind = content.kind
    if kind is None:
        return decode_varying(
            dataset,
            content.spec,
            start,
            stop,
            context,
            reader=reader,
            file=leaf.file,
            lock=lock,
            is_plain=content.is_plain,
        )
    values = leaf.memory(stop - start, context)
    if not values.size:
        return values
    with lock:
        filters = filters_of(dataset)
    if filters is not None and filters.are_known and kind.is_plain:
        read_packed(dataset, filters, kind, values, start, leaf.file, lock)
        return values
    with lock:
        if filters is not None:
            check_chunks(dataset, filters, start, stop, leaf.file)
        begins = (start, *(0 for _ in dataset.shape[1:]))
        read_slab(dataset, kind, begins, (stop - start, *dataset.shape[1:]), values)
    return values


class OpenedDataset(Hdf5Chunks):
    """A dataset that the user has open, and keeps open: for `from_arrays`."""

    _lock = forking.lock()  # One for all: several objects may be the same file.

    def __init__(self, dataset: Any, name: str) -> None:
        file = str(dataset.file.filename)
        self.content = content_of(dataset, name, file)
        _check_filters(dataset, name, file)
        self.dataset = dataset
        self.location = _location_of(dataset)
        with naming(file, f"dataset {name!r}: "), contextlib.ExitStack() as stack:
            reader = None
            if self.location is not None and not self.content.spec.is_fixed:
                reader = stack.enter_context(open_reader(self.location))
            sizes = _sizes(dataset, self.content, reader, file)
        super().__init__(dataset, sizes, file=file, key=(id(dataset), name))
        self.how = "open HDF5 dataset, decoded a chunk at a time"

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
        """Return rows in memory from `context.allocate`."""
        with self._lock:
            if not self.dataset:
                raise DataError(
                    "the file was closed, and its rows are still being read",
                    file=self.file,
                    row=start,
                    cure="Keep it open for as long as the dataset is used, or use ps.from_files(path).",
                )
            check_unchanged(self, self.dataset.shape)
        reader = None
        if self.location is not None and not self.field.spec.is_fixed:
            reader = reader_of(self.location, context, direct=False)
        return decode_rows(
            self.dataset, self.content, self, start, stop, context, reader, self._lock
        )


def _location_of(dataset: Any) -> Location | None:
    """Return the file of a dataset that the user has open; None if it may differ from what HDF5 holds."""
    if dataset.file.mode != "r" or dataset.file.driver not in _DRIVERS or dataset.external:
        return None
    try:
        (location,) = expand(str(dataset.file.filename))
    except FileError:
        return None
    return location
