"""Aligned memory, for direct reads whose target is not aligned as the disk wants it."""

import os
import queue

import numpy as np

from penstock.io.reader import Bytes
from penstock.memory.mapping import HUGE_NBYTES, map_memory

# What every common disk and file system accepts for direct reads.
PAGE_NBYTES = 4096
_PATIENCE_SECONDS = 30.0  # Longer than any read takes that is worth waiting for.


def aligned_empty(nbytes: int) -> Bytes:
    """Return memory for direct reads: it starts on a page, on a huge one where it has room for those.

    What is left over of the mapping is never touched, and so takes no memory.
    """
    edge = HUGE_NBYTES if nbytes >= HUGE_NBYTES else PAGE_NBYTES
    memory = np.frombuffer(map_memory(nbytes + edge), np.uint8)
    skip = -address(memory) % edge
    return memory[skip : skip + nbytes]


def address(array: Bytes) -> int:
    """Return where the array's memory starts."""
    return int(array.__array_interface__["data"][0])


class BouncePool:
    """A few aligned buffers shared by all readers; a thread that finds none free waits for one.

    Takes `num_buffers * buffer_nbytes` bytes at most, and makes a buffer only when all others are in
    use. A thread must not hold two: threads would wait for each other.
    """

    def __init__(self, *, num_buffers: int, buffer_nbytes: int) -> None:
        self.buffer_nbytes = buffer_nbytes
        self.nbytes = num_buffers * buffer_nbytes
        self._num_buffers = num_buffers
        self._reset()
        # A buffer that a thread of the parent held would never come back: that thread does not exist in the child.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        # A queue, not a semaphore: Ctrl-C can't leave it locked.
        self._free: queue.SimpleQueue[Bytes | None] = queue.SimpleQueue()
        for _ in range(self._num_buffers):
            self._free.put(None)

    def acquire(self) -> Bytes:
        """Return a buffer of `buffer_nbytes`, for `release` after use."""
        try:
            found = self._free.get(timeout=_PATIENCE_SECONDS)
        except queue.Empty:
            found = None  # Ctrl-C kept a buffer from being released: a new one takes its place.
        return aligned_empty(self.buffer_nbytes) if found is None else found

    def release(self, buffer: Bytes) -> None:
        """Take the buffer back."""
        self._free.put(buffer)


# 8 MB at most, not counted by the ledger: part of the 150 MB that docs/design.md states beside the budget.
BOUNCE = BouncePool(num_buffers=4, buffer_nbytes=2 << 20)
