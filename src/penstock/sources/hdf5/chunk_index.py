"""Where the chunks of a dataset lie in its file: looked up once, so that they can be read past HDF5 and its lock.

HDF5 looks for one chunk by going through all of them, and does one thing at a time, whatever the file.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.optional import require

MOST_CHUNKS = 1 << 18
"""Of a dataset in more chunks than this, HDF5 itself reads them."""
_INDEX_NBYTES = 48  # Of a chunk: in the index, and while it is made.

Corner = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """One chunk in its file."""

    offset: int
    nbytes: int
    mask: int
    """A bit for each filter that was left out of it."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkIndex:
    """The chunks of a dataset, by their numbers in row-major order."""

    chunks: tuple[int, ...]
    counts: tuple[int, ...]
    """How many chunks there are along each axis."""
    numbers: Index
    """Of the chunks that were written, ascending."""
    offsets: Index
    sizes: Index
    masks: Index

    def find(self, corners: Sequence[Corner]) -> list[Stored | None]:
        """Return where the chunks at these corners lie; None for one that was never written."""
        places = np.array(corners, np.int64) // self.chunks
        wanted = np.ravel_multi_index(tuple(places.T), self.counts)
        if not len(self.numbers):
            return [None] * len(corners)
        at = np.minimum(np.searchsorted(self.numbers, wanted), len(self.numbers) - 1)
        is_there = self.numbers[at] == wanted
        found = zip(
            is_there.tolist(),
            self.offsets[at].tolist(),
            self.sizes[at].tolist(),
            self.masks[at].tolist(),
            strict=True,
        )
        return [Stored(*where) if is_one else None for is_one, *where in found]

    def stretches(self, start: int, stop: int, nbytes: int) -> tuple[Index, Index] | None:
        """Return where the rows from `start` to `stop` lie, as offsets and bytes of stretches of the file.

        For chunks of whole rows, each of `nbytes` as it lies in the file; None if one is not, or was never written.
        """
        chunk_rows = self.chunks[0]
        first, last = start // chunk_rows, -(-stop // chunk_rows)
        at = int(np.searchsorted(self.numbers, first))
        mine = slice(at, at + last - first)
        numbers = self.numbers[mine]
        if len(numbers) != last - first or numbers[-1] != last - 1:
            return None
        if bool((self.sizes[mine] != nbytes).any()):
            return None
        begins = numbers * chunk_rows
        ends = np.minimum(begins + chunk_rows, stop)
        inside = np.maximum(start - begins, 0)
        row_nbytes = nbytes // chunk_rows
        offsets = self.offsets[mine] + inside * row_nbytes
        sizes = (ends - begins - inside) * row_nbytes
        is_apart = offsets[1:] != offsets[:-1] + sizes[:-1]
        edges = np.concatenate([[0], np.flatnonzero(is_apart) + 1])
        return offsets[edges], np.add.reduceat(sizes, edges)


def num_chunks(shape: Sequence[int], chunks: Sequence[int]) -> int:
    """Return how many chunks a dataset has, written or not."""
    return math.prod(_counts(shape, chunks))


def index_nbytes(shape: Sequence[int], chunks: Sequence[int]) -> int:
    """Return the bytes that the index of a dataset takes."""
    count = num_chunks(shape, chunks)
    return count * _INDEX_NBYTES if count <= MOST_CHUNKS else 0


def _counts(shape: Sequence[int], chunks: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-length // size) for length, size in zip(shape, chunks, strict=True))


def index_of(dataset: Any) -> ChunkIndex | None:
    """Return where the chunks of a dataset lie; None if that is not known, or may change. The caller holds the lock."""
    # Some versions of HDF5 count offsets from the end of the user block.
    if dataset.file.userblock_size or dataset.file.mode != "r" or dataset.file.swmr_mode:
        return None
    chunks = tuple(map(int, dataset.chunks))
    counts = _counts(dataset.shape, chunks)
    most = math.prod(counts)
    if most > MOST_CHUNKS or not hasattr(dataset.id, "chunk_iter"):
        return None
    found = array("q")
    rank = len(chunks)
    width = rank + 3

    def note(one: Any) -> bool | None:
        if one.byte_offset is not None and one.byte_offset < 1 << 62:
            found.extend((*one.chunk_offset, one.byte_offset, one.size, one.filter_mask))
        return True if len(found) > most * width else None  # Damaged: there are too many.

    # Not in h5py before 3.16: see `packed_chunk`.
    with require("h5py._objects", "reading .h5", "hdf5").phil:
        dataset.id.chunk_iter(note)
    table = np.frombuffer(found, np.int64).reshape(-1, width)
    places, rest = np.divmod(table[:, :rank], chunks)
    is_good = bool((rest == 0).all()) and bool((places < counts).all()) and len(table) <= most
    if not is_good or bool((table[:, :rank] < 0).any()):
        return None  # HDF5 says what is wrong with it.
    numbers = np.ravel_multi_index(tuple(places.T), counts)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    if bool((np.diff(numbers) == 0).any()):
        return None
    offsets, sizes, masks = table[order, rank:].T.copy()
    return ChunkIndex(chunks, counts, numbers, offsets, sizes, masks)
