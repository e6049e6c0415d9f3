"""HDF5 files: datasets by path; plain ones are read in place, all others a chunk at a time."""

import contextlib
import math
import os
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from penstock.core import forking
from penstock.core.arrays import Array
from penstock.core.evidence import Unproven
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, Rows
from penstock.errors import DataError, FieldError, FileChangedError, FileError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.paths import expand
from penstock.io.reader import Reader
from penstock.sources.hdf5.chunk_index import index_nbytes
from penstock.sources.hdf5.chunks import most_packed
from penstock.sources.hdf5.content import Content, Opened, content_of, opened_of
from penstock.sources.hdf5.filter_pipeline import chunk_nbytes, filters_of
from penstock.sources.hdf5.handle import Handle, dataset_at, names_in, naming
from penstock.sources.hdf5.varying import Sizes, chunk_rows_of, sizes_of
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
)
from penstock.sources.reading.regions import Region
from penstock.sources.reading.scratch import Scratch, scratch_of

_DRIVER = "sec2"  # The one that has a descriptor, by which its file is known.


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


def _sizes(dataset: Any, content: Content, reader: Reader | None, file: str) -> Sizes:
    if content.spec.is_fixed:
        return Sizes(Field(content.spec), chunk_rows_of(dataset.chunks), None)
    return sizes_of(dataset, content.spec, reader, file)


class Hdf5Chunks(Chunked):
    """A dataset in chunks, or of values that HDF5 converts: it decodes one chunk at a time."""

    overhead = 2  # A chunk as it lies in the file, and as it was unpacked.
    decodes_in_place = True

    def __init__(self, dataset: Any, sizes: Sizes, *, file: str, key: Hashable) -> None:
        grid = Grid(int(dataset.shape[0]), sizes.chunk_rows, nbytes=sizes.chunk_nbytes)
        super().__init__(sizes.field, grid, file=file, key=key)
        stored = 0 if dataset.chunks is None else chunk_nbytes(dataset)
        self.past_nbytes = max(0, stored - self.chunk_nbytes)
        """What a chunk has past the edge of the dataset."""

        if sizes.field.spec.is_fixed and dataset.chunks is not None:
            self.index_nbytes = index_nbytes(dataset.shape, dataset.chunks)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the rows decoded at once; a chunk is unpacked whole, with what is past the edge."""
        return super().staging_nbytes(num_rows) + self.overhead * self.past_nbytes

    def limit_index(self, nbytes: int) -> None:
        """Do without the index, if it would take more: HDF5 then finds the chunks."""
        if self.index_nbytes > nbytes:
            self.index_nbytes = 0

    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows in memory from `context.allocate`."""
        opened = self.open(start, context)
        if opened.content.kind is None:
            return opened.varying(start, stop, context)
        values = self.memory(stop - start, context)
        opened.read(values, start)
        return values

    def decode_into(self, out: Array, start: int, stop: int, context: Context) -> None:
        """Unpack chunks to where their rows are wanted."""
        self.open(start, context).read(out, start)

    @abstractmethod
    def open(self, start: int, context: Context) -> Opened:
        """Return the dataset, open; `start` is the row to name in errors."""


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

    def open(self, start: int, context: Context) -> Opened:
        """Return the dataset, open for as long as the stream is."""
        reader = reader_of(self.location, context, direct=self.direct)
        handle = context.resources.get(
            ("hdf5", self.location.url), lambda: Handle(self.location, reader)
        )
        scratch = scratch_of(context)
        with handle.lock:
            opened = handle.kept(self.name, lambda: self._opened(handle, reader, scratch))
            if not opened.is_read_here:
                # Rows that lie among the metadata are read by HDF5 itself, as far as there is room.
                is_compact = opened.content.kind is None and opened.dataset.chunks is None
                handle.allow(context.budget or 0 if is_compact else _most_read(opened.dataset))
        return opened

    def _opened(self, handle: Handle, reader: Reader, scratch: Scratch) -> Opened:
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
        return opened_of(
            dataset,
            content,
            self.file,
            handle.lock,
            reader,
            scratch,
            has_index=self.index_nbytes > 0,
        )


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

    def open(self, start: int, context: Context) -> Opened:
        """Return the dataset, which the user has open."""
        with self._lock:
            if not self.dataset:
                raise DataError(
                    "the file was closed, and its rows are still being read",
                    file=self.file,
                    row=start,
                    cure="Keep it open for as long as the dataset is used, or use ps.from_files(path).",
                )
            check_unchanged(self, self.dataset.shape)
            reader, scratch = None, scratch_of(context)
            if self.location is not None:
                reader = reader_of(self.location, context, direct=False)
            return context.resources.get(
                ("open hdf5", self.key),
                lambda: opened_of(
                    self.dataset,
                    self.content,
                    self.file,
                    self._lock,
                    reader,
                    scratch,
                    has_index=self.index_nbytes > 0,
                ),
            )


def _location_of(dataset: Any) -> Location | None:
    """Return the file of a dataset that the user has open; None if it may differ from what HDF5 holds."""
    file = dataset.file
    if file.mode != "r" or file.driver != _DRIVER or dataset.external:
        return None
    try:
        (location,) = expand(str(file.filename))
        # Another file may have its name by now, or the process be in another folder.
        is_same = os.path.samestat(os.fstat(file.id.get_vfd_handle()), Path(file.filename).stat())
    except (FileError, OSError):
        return None
    return location if is_same else None
