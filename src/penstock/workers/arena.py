"""A piece of anonymous shared memory, mapped once in every process that uses it."""

import itertools
import mmap
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.workers.anonymous_memory import memory_file
from penstock.workers.mapped_memory import map_memory

Array = npt.NDArray[Any]
Place = tuple[int, int, Any, tuple[int, ...], tuple[int, ...] | None]
"""Which arena, where in it, and what array is there: arena_id, offset, dtype, shape, strides (None: C order)."""

_arena_ids = itertools.count()


class Arena:
    """Shared memory of nbytes, in whole pages. It is unmapped once it is closed and its last view is gone."""

    def __init__(self, nbytes: int, *, name: str = "penstock arena") -> None:
        self._fd: int | None = None
        if nbytes < 1:
            raise ValueError(f"an arena must have at least 1 byte, got {nbytes}.")
        self.arena_id = next(_arena_ids)
        self.nbytes = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._fd = memory_file(name, self.nbytes)
        self.memory: npt.NDArray[np.uint8] = map_memory(self._fd, self.nbytes)
        self.address = _address(self.memory)

    @property
    def fd(self) -> int:
        """Return the descriptor that workers map; raise ValueError once the arena is closed."""
        if self._fd is None:
            raise ValueError("this arena is closed.")
        return self._fd

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

    def discard(self) -> None:
        """Give the memory back to the system at once, and close; no view of it may be read in any process any more.

        A worker unmaps it with its next task. Until then it maps nothing.
        """
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
        self.close()

    def close(self) -> None:
        """Close the descriptor; the memory stays valid until its last view dies."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
