"""The chunks of HDF5 datasets: read as they lie in the file, and unpacked here, on the thread that wants them.

Only reading takes turns. A chunk is never unpacked to more bytes than it may hold.
"""

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.optional import require
from penstock.errors import DataError
from penstock.sources.hdf5.filter_pipeline import (
    BombError,
    Bytes,
    Filters,
    PackedError,
    chunk_nbytes,
)
from penstock.sources.hdf5.value_types import ValueType

Corner = tuple[int, ...]
Lock = contextlib.AbstractContextManager[Any]
_CURE = "It is damaged: copy it again from its original."


def corners(dataset: Any, start: int, stop: int) -> Iterator[Corner]:
    """Yield where each chunk begins that has some of the rows `start` to `stop`."""
    sizes = dataset.chunks
    first = range(start // sizes[0] * sizes[0], stop, sizes[0])
    others = (
        range(0, length, size) for length, size in zip(dataset.shape[1:], sizes[1:], strict=True)
    )
    return itertools.product(first, *others)


def packed_chunk(
    dataset: Any, filters: Filters | None, corner: Corner, file: str
) -> tuple[int, bytes] | None:
    """Return a chunk as it lies in the file, and which of its filters were left out; None if it was never written."""
    most = most_packed(dataset, filters)
    # HDF5 does one thing at a time, whatever the file. All of h5py takes this lock by itself, but not these methods
    # before 3.16: threads that read other files would crash, or find undamaged chunks damaged.
    phil = require("h5py._objects", "reading .h5", "hdf5").phil
    with phil:
        found = dataset.id.get_chunk_info_by_coord(corner)
        if found.byte_offset is None:
            return None
        if found.size > most:  # Else memory for it is taken before a byte of it is read.
            problem = f"it claims {found.size} bytes, where there can be at most {most}"
            raise bad_chunk(PackedError(problem), dataset, corner, file)
        mask, packed = dataset.id.read_direct_chunk(corner)
    return int(mask), packed


def most_packed(dataset: Any, filters: Filters | None) -> int:
    """Return the most bytes that a chunk takes in the file."""
    return chunk_nbytes(dataset) if filters is None else filters.most_packed


def unpacked_chunk(
    dataset: Any, filters: Filters | None, corner: Corner, packed: bytes, mask: int, file: str
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


def read_packed(
    dataset: Any,
    filters: Filters,
    kind: ValueType,
    values: Array,
    start: int,
    file: str,
    lock: Lock,
) -> None:
    """Fill `values` with the rows from `start` on, of a type that lies in the file as in memory."""
    stop = start + len(values)
    for corner in list(corners(dataset, start, stop)):
        # What part of the chunk is wanted, by its place in the dataset.
        begins = (max(start, corner[0]), *corner[1:])
        ends = tuple(
            min(begin + size, length)
            for begin, size, length in zip(
                corner, dataset.chunks, (stop, *dataset.shape[1:]), strict=True
            )
        )
        with lock:
            found = packed_chunk(dataset, filters, corner, file)
        chunk = None
        if found is not None:
            mask, packed = found
            chunk = unpacked_chunk(dataset, filters, corner, packed, mask, file)
            del found, packed
        places = tuple(slice(*one) for one in zip(begins, ends, strict=True))
        target = values[slice(begins[0] - start, ends[0] - start), *places[1:]]
        if chunk is None:
            with lock:
                target[:] = _slab(dataset, kind, begins, ends)
            continue
        shaped = chunk.view(kind.item).reshape((*dataset.chunks, *kind.shape))
        inner = zip(begins, ends, corner, strict=True)
        target[:] = shaped[tuple(slice(b - c, e - c) for b, e, c in inner)]


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
