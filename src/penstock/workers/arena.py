"""A piece of anonymous shared memory that blocks are cut from, mapped once in every process that uses it."""

import bisect
import itertools
import math
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.workers.mapped_memory import map_memory
from penstock.workers.wire import align, memory_file

Array = npt.NDArray[Any]
Place = tuple[int, int, Any, tuple[int, ...], tuple[int, ...] | None]
"""Which arena, where in it, and what array is there: arena_id, offset, dtype, shape, strides (None: C order)."""

_arena_ids = itertools.count()


class Arena:
    """Shared memory of nbytes, lent out in leases; a lease comes back when its last view dies.

    The memory is unmapped when `close()` was called and the last view is gone, so a batch that
    someone keeps stays valid. `on_release` is called in the thread that drops the last view of a lease,
    perhaps inside a garbage collection: it must take no lock (`queue.SimpleQueue.put` takes none).
    """

    def __init__(
        self,
        nbytes: int,
        *,
        name: str = "penstock arena",
        on_release: Callable[[], None] | None = None,
    ) -> None:
        self._fd: int | None = None
        if nbytes < 1:
            raise ValueError(f"an arena must have at least 1 byte, got {nbytes}.")
        self.arena_id = next(_arena_ids)
        self.nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._fd = memory_file(name, self.nbytes)
        self.memory = map_memory(self._fd, self.nbytes)
        self.address = _address(self.memory)
        self.on_release = on_release
        # A lease may die in a garbage collection that began under the lock, so it only appends its piece here.
        self.returned: deque[tuple[int, int]] = deque()
        self._lock = threading.Lock()
        self._free = [(0, self.nbytes)]  # (offset, nbytes), sorted, never adjacent

    @property
    def fd(self) -> int:
        """Return the descriptor that workers map; raise ValueError once the arena is closed."""
        if self._fd is None:
            raise ValueError("this arena is closed.")
        return self._fd

    @property
    def free_nbytes(self) -> int:
        """Return how many bytes are not leased, in one piece or in many."""
        with self._lock:
            self._take_back()
            return sum(nbytes for _, nbytes in self._free)

    def lease(self, nbytes: int) -> Array | None:
        """Return nbytes of memory as uint8, aligned to 64 bytes, or None if no free piece is large enough.

        The piece is free again when the array and everything that was cut from it are gone.
        """
        size = align(max(nbytes, 1))
        with self._lock:
            self._take_back()
            for index, (offset, free) in enumerate(self._free):
                if free >= size:
                    rest = [(offset + size, free - size)] if free > size else []
                    self._free[index : index + 1] = rest
                    break
            else:
                return None
        return np.asarray(_Lease(self, offset, size, nbytes))

    def place(self, array: Array) -> Place | None:
        """Return where array lies in this arena, or None if it lies elsewhere.

        An array without elements counts as lying in every arena.
        """
        address = low = high = _address(array) if array.size else self.address
        if array.size:
            for length, stride in zip(array.shape, array.strides, strict=True):
                low += min(0, (length - 1) * stride)
                high += max(0, (length - 1) * stride)
            high += array.itemsize
        if low < self.address or high > self.address + self.nbytes:
            return None
        dtype = array.dtype
        if dtype.hasobject:
            raise TypeError(
                f"an array of {dtype} holds Python objects, which cannot be shared: send it in meta."
            )
        # A dtype's name costs half as much as its pickle, but describes only NumPy's own types in full.
        kind = dtype.str if dtype.isbuiltin == 1 and dtype.metadata is None else dtype
        strides = None if array.flags.c_contiguous else array.strides
        return self.arena_id, address - self.address, kind, array.shape, strides

    def close(self) -> None:
        """Close the descriptor; leased memory stays valid until its last view dies."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _take_back(self) -> None:
        """Merge the pieces that came back into the list of free ones; the caller holds the lock."""
        while self.returned:
            offset, nbytes = self.returned.popleft()
            index = bisect.bisect(self._free, (offset, nbytes))
            if index < len(self._free) and self._free[index][0] == offset + nbytes:
                nbytes += self._free.pop(index)[1]
            if index and sum(self._free[index - 1]) == offset:
                index -= 1
                before = self._free.pop(index)
                offset, nbytes = before[0], before[1] + nbytes
            self._free.insert(index, (offset, nbytes))


class _Lease:
    """The owner behind a leased array: views refer to it, and its death gives the piece back."""

    __slots__ = ("__array_interface__", "__weakref__", "_arena", "_offset", "_size")

    def __init__(self, arena: Arena, offset: int, size: int, nbytes: int) -> None:
        self._arena, self._offset, self._size = arena, offset, size
        self.__array_interface__ = {
            "data": (arena.address + offset, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        self._arena.returned.append((self._offset, self._size))
        if self._arena.on_release is not None:
            self._arena.on_release()


def carve(memory: Array, arrays: Sequence[tuple[npt.DTypeLike, Sequence[int]]]) -> list[Array]:
    """Return arrays of these dtypes and shapes, cut from memory one after another, each aligned to 64 bytes."""
    carved, position = [], 0
    for dtype, shape in arrays:
        array: Array = np.ndarray(tuple(shape), np.dtype(dtype), memory, position)
        carved.append(array)
        position = align(position + array.nbytes)
    return carved


def carved_nbytes(arrays: Sequence[tuple[npt.DTypeLike, Sequence[int]]]) -> int:
    """Return how many bytes `carve` needs for these arrays.

    >>> carved_nbytes([("float32", (2, 100)), ("int64", ())])
    896
    """
    return sum(align(np.dtype(dtype).itemsize * math.prod(shape)) for dtype, shape in arrays)


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
