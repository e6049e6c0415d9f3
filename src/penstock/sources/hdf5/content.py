"""What the rows of an HDF5 dataset are, and how they are read once it is open."""

from dataclasses import dataclass
from typing import Any

from penstock.core.arrays import Array
from penstock.core.optional import require
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import FieldError
from penstock.io.reader import Reader
from penstock.sources.hdf5.chunk_index import index_of
from penstock.sources.hdf5.chunks import Lock, Packed, check_chunks, read_slab
from penstock.sources.hdf5.filter_pipeline import Filters, chunk_nbytes, filters_of
from penstock.sources.hdf5.value_types import UnreadableTypeError, ValueType, list_dtype, value_type
from penstock.sources.hdf5.varying import decode_varying
from penstock.sources.reading.chunked import Values
from penstock.sources.reading.parts import no_rows
from penstock.sources.reading.scratch import Scratch


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


@dataclass(frozen=True, slots=True)
class Opened:
    """An open dataset, and what its rows are read with, for as long as a stream is open."""

    dataset: Any
    content: Content
    file: str
    lock: Lock
    reader: Reader | None
    filters: Filters | None
    packed: Packed | None
    """What unpacks its chunks; None if HDF5 must do that."""

    @property
    def is_read_here(self) -> bool:
        """Whether its chunks are read past HDF5, too."""
        return self.packed is not None and self.packed.index is not None

    def varying(self, start: int, stop: int, context: Context) -> Values:
        """Return rows that differ in size, in memory from `context.allocate`."""
        return decode_varying(
            self.dataset,
            self.content.spec,
            start,
            stop,
            context,
            reader=self.reader,
            file=self.file,
            lock=self.lock,
            is_plain=self.content.is_plain,
        )

    def read(self, values: Array, start: int) -> None:
        """Fill `values` with the rows from `start` on."""
        dataset, kind = self.dataset, self.content.kind
        assert kind is not None
        if not values.size:
            return
        if self.packed is not None and values.dtype == kind.item:
            self.packed.read(values, start)
            return
        stop = start + len(values)
        with self.lock:
            if self.filters is not None:
                check_chunks(dataset, self.filters, start, stop, self.file)
            begins = (start, *(0 for _ in dataset.shape[1:]))
            read_slab(dataset, kind, begins, (stop - start, *dataset.shape[1:]), values)

    def close(self) -> None:
        """Nothing: the file is closed by whoever opened it."""


def opened_of(
    dataset: Any,
    content: Content,
    file: str,
    lock: Lock,
    reader: Reader | None,
    scratch: Scratch,
    *,
    has_index: bool = True,
) -> Opened:
    """Return what reads the rows of an open dataset; the caller holds the lock. `has_index`: there is room for one."""
    filters, packed = filters_of(dataset), None
    if (
        content.kind is not None
        and content.kind.is_plain
        and dataset.chunks is not None
        and (filters is None or filters.are_known)
    ):
        index = index_of(dataset) if reader is not None and has_index else None
        if filters is not None or index is not None:
            packed = Packed(
                dataset,
                filters,
                content.kind,
                file,
                lock,
                index,
                reader,
                scratch,
                shape=tuple(map(int, dataset.shape)),
                chunks=tuple(map(int, dataset.chunks)),
                nbytes=chunk_nbytes(dataset),
            )
    return Opened(dataset, content, file, lock, reader, filters, packed)
