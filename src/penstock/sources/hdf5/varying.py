"""Text and lists of any length in HDF5: how many bytes their rows take, and the rows themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.columns import Ragged, Text, column_of
from penstock.core.fields import Field, tops_of
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.io.reader import Reader
from penstock.sources.hdf5.chunks import Lock
from penstock.sources.hdf5.filter_pipeline import chunk_nbytes, filters_of
from penstock.sources.hdf5.heap import References, has_references, lengths_of, values_of

_MOST_SIZED = 1 << 20  # Rows whose sizes are all looked up: 16 MB of references.
_NUM_SAMPLES = 64  # Places where the sizes of longer datasets are looked up.
_SAMPLE_ROWS = 256
_MOST_UNPACKED = 1 << 25  # Bytes of a chunk of references that is unpacked to size rows.
_CHECK_NBYTES = 1 << 20
_OPENED_STEP = 256
_SIZED_ROWS = 1 << 14
_CHUNK_NBYTES = 1 << 20  # Rows are decoded together up to this.


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the rows of a dataset take."""

    field: Field
    chunk_rows: int
    """How many rows are decoded together."""
    chunk_nbytes: int | None
    """The most bytes that so many rows take; None if not all are known."""


def chunk_rows_of(chunks: Sequence[int] | None) -> int:
    """Return how many rows a chunk has; 1 without chunks, since such a dataset may be cut anywhere."""
    return 1 if chunks is None else max(1, int(chunks[0]))


def sizes_of(dataset: Any, spec: ArraySpec, reader: Reader | None, file: str) -> Sizes:
    """Return what rows take, by their references; those of a dataset that is too long are sampled all over it."""
    num_rows = int(dataset.shape[0])
    chunk_rows = chunk_rows_of(dataset.chunks)
    extra = 8 if spec.is_text else 16
    width = 1 if spec.is_text else spec.numpy_dtype.itemsize
    if dataset.chunks is not None and chunk_nbytes(dataset) > _MOST_UNPACKED:
        return Sizes(Field(spec, estimate=extra), chunk_rows, None)  # Nobody has a budget yet.
    references = _references(dataset, reader, file)
    if references is None or references.of_rows(0, min(1, num_rows)) is None:
        return Sizes(Field(spec, estimate=_sampled(dataset) * width + extra), chunk_rows, None)
    is_all = num_rows <= _MOST_SIZED
    if is_all:  # Whole chunks, so that each is unpacked once.
        step = -(-_SIZED_ROWS // chunk_rows) * chunk_rows
        starts = list(range(0, num_rows, step))
    else:
        step = _SAMPLE_ROWS
        starts = [number * num_rows // _NUM_SAMPLES for number in range(_NUM_SAMPLES)]
    found = [_nbytes(references, first, min(num_rows, first + step), width) for first in starts]
    sizes = extra + np.concatenate([np.zeros(0, np.int64), *found])
    mean = max(extra, int(sizes.sum()) // max(1, len(sizes)))
    if not is_all or not num_rows:
        return Sizes(Field(spec, estimate=mean), chunk_rows, None)
    # Only references lie in chunks: values can be read a few at a time, where they are large.
    while (most := _largest(sizes, chunk_rows)) > _CHUNK_NBYTES and chunk_rows > 1:
        chunk_rows = -(-chunk_rows // 2)
    return Sizes(Field(spec, estimate=mean, tops=tops_of(sizes)), chunk_rows, most)


def _largest(sizes: Index, chunk_rows: int) -> int:
    return int(np.add.reduceat(sizes, np.arange(0, len(sizes), chunk_rows)).max())


def _references(dataset: Any, reader: Reader | None, file: str) -> References | None:
    if not has_references(dataset):
        return None
    return References(dataset, filters_of(dataset), reader, file)


def _nbytes(references: References, start: int, stop: int, width: int) -> Any:
    found = references.of_rows(start, stop)
    nbytes = np.zeros(stop - start, np.int64) if found is None else lengths_of(found) * width
    if references.reader is not None:  # A lie: such a row is refused when it is read.
        nbytes[nbytes > references.reader.size] = 0
    return nbytes


def _sampled(dataset: Any) -> int:
    """Return the mean length of a few rows, as h5py reads them."""
    num_rows = int(dataset.shape[0])
    count = min(_NUM_SAMPLES, num_rows)
    sample = (len(dataset[number * num_rows // count]) for number in range(count))
    return sum(sample) // max(1, count)


def decode_varying(
    dataset: Any,
    spec: ArraySpec,
    start: int,
    stop: int,
    context: Context,
    *,
    reader: Reader | None,
    file: str,
    lock: Lock,
    is_plain: bool,
) -> Text | Ragged:
    """Return rows of text or lists, in memory from `context.allocate`, which refuses what there is no room for."""
    with lock:
        where = _references(dataset, reader, file)
        references = None if where is None else where.of_rows(start, stop)
        if references is None:
            return column_of(
                _one_by_one(dataset, spec, start, stop, context),
                spec,
                context.allocate,
                aligned=False,
            )
        has_fill = bool((references["address"] == 0).any()) and _has_fill(dataset)
        if where is None or reader is None or not is_plain or has_fill:
            width = 1 if spec.is_text else spec.numpy_dtype.itemsize
            # Raises if there is no room.
            context.allocate(int((lengths_of(references) * width).sum()))
            rows = _as_text(dataset, spec)[start:stop].tolist()
            return column_of(rows, spec, context.allocate, aligned=False)
    return values_of(references, start, spec, where, context.allocate)


def _has_fill(dataset: Any) -> bool:
    """Return whether rows that were never written have a value."""
    try:
        return len(dataset.fillvalue) > 0
    except TypeError:
        return dataset.fillvalue is not None and bool(dataset.fillvalue)


def _as_text(dataset: Any, spec: ArraySpec) -> Any:
    return dataset.asstr() if spec.dtype is str else dataset


def _one_by_one(
    dataset: Any, spec: ArraySpec, start: int, stop: int, context: Context
) -> list[Any]:
    """Return rows whose sizes are not known before they are read, as long as there is room."""
    readable = _as_text(dataset, spec)
    step = 1 if dataset.id.get_offset() is None else _OPENED_STEP
    width = 1 if spec.is_text else spec.numpy_dtype.itemsize
    rows: list[Any] = []
    total, checked = 0, _CHECK_NBYTES
    for first in range(start, stop, step):
        found = readable[first : min(stop, first + step)].tolist()
        rows += found
        total += sum(map(len, found)) * width
        if total > checked:
            context.allocate(2 * total)  # Raises if there is no room.
            checked = 2 * total
    return rows
