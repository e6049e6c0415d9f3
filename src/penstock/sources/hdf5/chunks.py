"""The chunks of HDF5 datasets: read as they lie in the file, and unpacked here, on the thread that wants them.

Only reading takes turns. A chunk is never unpacked to more bytes than it may hold.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add, sub
from typing import Any

import numpy as np

from penstock.core.arrays import Array, copy_box, raw_rows
from penstock.core.optional import require
from penstock.errors import DataError
from penstock.io.reader import Range, Reader
from penstock.io.sizes import PIECE_NBYTES
from penstock.sources.hdf5.chunk_index import ChunkIndex, Corner, Stored
from penstock.sources.hdf5.filter_pipeline import (
    BombError,
    Bytes,
    Filters,
    PackedError,
    chunk_nbytes,
)
from penstock.sources.hdf5.value_types import ValueType
from penstock.sources.reading.scratch import Scratch

Lock = contextlib.AbstractContextManager[Any]
_CURE = "It is damaged: copy it again from its original."


def corners(dataset: Any, start: int, stop: int) -> Iterator[Corner]:
    """Yield where each chunk begins that has some of the rows `start` to `stop`."""
    return _corners(dataset.shape, dataset.chunks, start, stop)


def _corners(
    shape: Sequence[int], chunks: Sequence[int], start: int, stop: int
) -> Iterator[Corner]:
    first = range(start // chunks[0] * chunks[0], stop, chunks[0])
    others = (range(0, length, size) for length, size in zip(shape[1:], chunks[1:], strict=True))
    return itertools.product(first, *others)


def packed_chunk(
    dataset: Any, filters: Filters | None, corner: Corner, file: str
) -> tuple[int, Bytes] | None:
    """Return a chunk as it lies in the file, and which of its filters were left out; None if it was never written."""
    most = most_packed(dataset, filters)
    # HDF5 does one thing at a time, whatever the file. All of h5py takes this lock by itself, but not these methods
    # before 3.16: threads that read other files would crash, or find undamaged chunks damaged.
    phil = require("h5py._objects", "reading .h5", "hdf5").phil
    with phil:
        try:
            # It has no more room than a chunk may take. Where a chunk lies and how long it is, is only asked if this
            # fails: HDF5 goes through all chunks to tell.
            mask, packed = dataset.id.read_direct_chunk(corner, out=np.empty(most, np.uint8))
        except Exception:
            found = dataset.id.get_chunk_info_by_coord(corner)
            if found.byte_offset is None:
                return None
            if found.size > most:
                raise bad_chunk(_claims_more(found.size, most), dataset, corner, file) from None
            raise
    return int(mask), np.frombuffer(packed, np.uint8)


def _claims_more(nbytes: int, most: int) -> PackedError:
    return PackedError(f"it claims {nbytes} bytes, where there can be at most {most}")


def most_packed(dataset: Any, filters: Filters | None) -> int:
    """Return the most bytes that a chunk takes in the file."""
    return chunk_nbytes(dataset) if filters is None else filters.most_packed


def unpacked_chunk(
    dataset: Any,
    filters: Filters | None,
    corner: Corner,
    packed: bytes | Bytes,
    mask: int,
    file: str,
) -> Bytes | None:
    """Return the bytes of a chunk; None if it is one that HDF5 must look at itself."""
    try:
        if filters is None:
            return np.frombuffer(packed, np.uint8)
        return filters.unpacked(packed, mask)
    except PackedError as error:
        is_cut = any(
            begin + size > length
            for begin, size, length in zip(corner, dataset.chunks, dataset.shape, strict=True)
        )
        # Chunks at the edge need not be packed, and nothing that h5py shows tells whether they are.
        is_plain = filters is not None and len(packed) == filters.nbytes
        if is_cut and is_plain and not isinstance(error, BombError):
            return None
        raise bad_chunk(error, dataset, corner, file) from error


def bad_chunk(error: Exception, dataset: Any, corner: Corner, file: str) -> DataError:
    """Return the error of a chunk that can't be unpacked."""
    name = str(dataset.name).removeprefix("/")
    last = min(corner[0] + dataset.chunks[0], dataset.shape[0])
    return DataError(
        f"rows {corner[0]} to {last} can't be decoded: the chunk at {corner} of dataset {name!r}: {error}",
        file=file,
        row=corner[0],
        cure=_CURE,
    )


def check_chunks(dataset: Any, filters: Filters, start: int, stop: int, file: str) -> None:
    """Raise if a chunk that HDF5 shall unpack holds more than it may; the caller holds the lock."""
    for corner in corners(dataset, start, stop):
        found = packed_chunk(dataset, filters, corner, file)
        try:
            if found is not None:
                filters.check(found[1], found[0])
        except BombError as error:
            raise bad_chunk(error, dataset, corner, file) from error
        except PackedError:
            pass  # HDF5 says so, or knows better.


@dataclass(frozen=True, slots=True)
class Packed:
    """The chunks of a dataset as they lie in its file: read past HDF5 where it is known where they are."""

    dataset: Any
    filters: Filters | None
    kind: ValueType
    file: str
    lock: Lock
    index: ChunkIndex | None
    reader: Reader | None
    scratch: Scratch
    # Asked for once: all that h5py knows, it tells one thread at a time.
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    nbytes: int
    """The bytes of a chunk, unpacked."""

    def read(self, values: Array, start: int) -> None:
        """Fill `values` with the rows from `start` on, of a type that lies in the file as in memory."""
        if self._read_plain(values, start):
            return
        everything = list(_corners(self.shape, self.chunks, start, start + len(values)))
        for batch, found in self._in_batches(everything):
            for corner, one in zip(batch, found, strict=True):
                self._put(values, start, corner, one)

    def _read_plain(self, values: Array, start: int) -> bool:
        """Read rows straight to their places, if chunks have them as they are in memory; return whether that is so."""
        if self.filters is not None or self.index is None or self.reader is None:
            return False
        if self.chunks[1:] != self.shape[1:] or not values.flags.c_contiguous or not values.nbytes:
            return False
        found = self.index.stretches(start, start + len(values), self.nbytes)
        if found is None:
            return False
        room = raw_rows(values, 0)
        offsets, sizes = found
        ends = np.cumsum(sizes)
        places = zip((ends - sizes).tolist(), ends.tolist(), strict=True)
        self.reader.read_ranges(
            [
                Range(offset, room[begin:end])
                for offset, (begin, end) in zip(offsets.tolist(), places, strict=True)
            ]
        )
        return True

    def _in_batches(
        self, wanted: list[Corner]
    ) -> Iterator[tuple[list[Corner], list[tuple[int, Bytes] | None]]]:
        """Yield some corners, and their chunks as they lie in the file, with the masks of their filters."""
        if self.index is None or self.reader is None:
            for corner in wanted:
                with self.lock:
                    found = packed_chunk(self.dataset, self.filters, corner, self.file)
                yield [corner], [found]
            return
        stored = self.index.find(wanted)
        self._check_sizes(wanted, stored)
        sizes = [0 if one is None else one.nbytes for one in stored]
        begin = 0
        while begin < len(wanted):
            end, total = begin + 1, sizes[begin]
            while end < len(wanted) and total + sizes[end] <= PIECE_NBYTES:
                total += sizes[end]
                end += 1
            yield wanted[begin:end], self._read_batch(self.reader, stored[begin:end], total)
            begin = end

    def _check_sizes(self, wanted: list[Corner], stored: list[Stored | None]) -> None:
        most = self.nbytes if self.filters is None else self.filters.most_packed
        for corner, one in zip(wanted, stored, strict=True):
            if one is not None and one.nbytes > most:
                raise bad_chunk(_claims_more(one.nbytes, most), self.dataset, corner, self.file)

    def _read_batch(
        self, reader: Reader, stored: list[Stored | None], total: int
    ) -> list[tuple[int, Bytes] | None]:
        room = self.scratch.room("packed", total)
        found: list[tuple[int, Bytes] | None] = []
        ranges = []
        at = 0
        for one in stored:
            if one is None:
                found.append(None)
                continue
            found.append((one.mask, room[at : at + one.nbytes]))
            ranges.append(Range(one.offset, room[at : at + one.nbytes]))
            at += one.nbytes
        if ranges:
            reader.read_ranges(ranges)
        return found

    def _put(
        self, values: Array, start: int, corner: Corner, found: tuple[int, Bytes] | None
    ) -> None:
        stop = start + len(values)
        # What part of the chunk is wanted, by its place in the dataset.
        begins = (max(start, corner[0]), *corner[1:])
        ends = tuple(map(min, map(add, corner, self.chunks), (stop, *self.shape[1:])))
        places = map(slice, begins[1:], ends[1:])
        target = values[begins[0] - start : ends[0] - start, *places]
        chunk = None
        if found is not None:
            if target.nbytes == self.nbytes and target.flags.c_contiguous:
                out = raw_rows(target, 0)
                if self._unpacked_into(out, found):
                    return
            chunk = self._unpacked(corner, found)
        if chunk is None:
            with self.lock:
                target[:] = _slab(self.dataset, self.kind, begins, ends)
            return
        shaped = chunk.view(self.kind.item).reshape((*self.chunks, *self.kind.shape))
        inner = map(slice, map(sub, begins, corner), map(sub, ends, corner))
        copy_box(shaped[tuple(inner)], target)

    def _unpacked_into(self, out: Bytes, found: tuple[int, Bytes]) -> bool:
        mask, packed = found
        if self.filters is None:
            if packed.size != out.size:
                return False
            np.copyto(out, packed)
            return True
        return self.filters.unpack_into(out, packed, mask, self.scratch.room)

    def _unpacked(self, corner: Corner, found: tuple[int, Bytes]) -> Bytes | None:
        mask, packed = found
        if self.filters is not None:
            out = self.scratch.room("chunk", self.filters.nbytes)
            if self.filters.unpack_into(out, packed, mask, self.scratch.room):
                return out
        return unpacked_chunk(self.dataset, self.filters, corner, packed, mask, self.file)


def _slab(dataset: Any, kind: ValueType, begins: Corner, ends: Corner) -> Array:
    """Return a part of a dataset as HDF5 reads it."""
    counts = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
    values = np.empty((*counts, *kind.shape), kind.item)
    read_slab(dataset, kind, begins, counts, values)
    return values


def read_slab(dataset: Any, kind: ValueType, begins: Corner, counts: Corner, values: Array) -> None:
    """Let HDF5 read and convert a part of a dataset; the caller holds the lock."""
    if not math.prod(counts):
        return
    spaces = require("h5py", "reading .h5", "hdf5").h5s
    source = dataset.id.get_space()
    source.select_hyperslab(begins, counts)
    dataset.id.read(spaces.create_simple(counts), source, values, kind.memory)
