"""Buffers aligned to 64 bytes, which return to their pool when the last array over them dies."""

import contextlib
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import BudgetError
from penstock.memory.budget import format_nbytes
from penstock.memory.ledger import Account, process_ledger
from penstock.memory.mapping import HUGE_NBYTES, map_memory

Bytes = npt.NDArray[np.uint8]
Allocate = Callable[[int], Bytes]
Hold = Callable[[int], AbstractContextManager[None]]
"""Counts bytes that a library takes for itself, for as long as the context lasts."""
ALIGNMENT = 64
"""Arrays start on multiples of this many bytes (a cache line), so that frameworks need not copy them."""
_RESERVE_NBYTES = 256 << 20  # Enough for the blocks and windows of one stream.


def buffer_nbytes(nbytes: int) -> int:
    """Return the bytes that a buffer for `nbytes` really takes: whole huge pages if they waste little, else pages."""
    huge = -(-nbytes // HUGE_NBYTES) * HUGE_NBYTES
    if nbytes >= huge - huge // 8:
        return huge
    return -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


class _Buffer:
    """One anonymous mapping: aligned memory, given back to the system when the buffer is dropped."""

    __slots__ = ("address", "is_held", "mapping", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = buffer_nbytes(nbytes)
        self.is_held = False
        """Whether it is leased, and counted as held by the consumer."""
        self.mapping = map_memory(self.nbytes)
        self.address: int = np.frombuffer(self.mapping, np.uint8).__array_interface__["data"][0]


class _Reserve:
    """Buffers of closed streams, kept for the next stream: the next epoch, or the validation data.

    They are kept because the first touch of new memory can cost more than reading the data does. They take at
    most what one stream was granted. The ledger counts them, and drops them when a stream needs the room.
    """

    def __init__(self) -> None:
        self.buffers: list[_Buffer] = []

    def put(self, buffer: _Buffer, most: int) -> None:
        if process_ledger.reserve_nbytes + buffer.nbytes <= min(most, _RESERVE_NBYTES):
            self.buffers.append(buffer)
            self._count()

    def take(self, nbytes: int, most: int) -> _Buffer | None:
        best = _best(self.buffers, nbytes, most)
        self._count()
        return best

    def drop(self) -> None:
        self.buffers.clear()
        self._count()

    def _count(self) -> None:
        # Summed anew each time: Ctrl-C may have struck between the last change and its count.
        process_ledger.reserve_nbytes = sum(buffer.nbytes for buffer in self.buffers)


_reserve = _Reserve()
process_ledger.drop_reserve = _reserve.drop


def _best(buffers: list[_Buffer], nbytes: int, most: int) -> _Buffer | None:
    """Remove and return the smallest buffer of `nbytes` to `most` bytes; none that wastes more than about half."""
    most = min(most, 2 * nbytes + mmap.PAGESIZE)
    best: _Buffer | None = None
    for buffer in buffers:
        if nbytes <= buffer.nbytes <= most and (best is None or buffer.nbytes < best.nbytes):
            best = buffer
    if best is not None:
        buffers.remove(best)
    return best


class Lease:
    """The owner behind the arrays of one block: when it is collected, the buffer goes back to the pool.

    Frameworks keep the memory of a batch for as long as they like (JAX well past the step), so
    only the death of the last view may free it. NumPy keeps the object behind
    `__array_interface__` alive as the base of every view.
    """

    __slots__ = ("__array_interface__", "__weakref__", "buffer")

    def __init__(self, buffer: _Buffer, nbytes: int) -> None:
        self.buffer = buffer
        self.__array_interface__: dict[str, Any] = {
            "data": (buffer.address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


class _Loan(weakref.ref[Lease]):
    """A weak reference to a lease, with its buffer. When the lease is collected, the pool's `_returned` gets this.

    The callback is `deque.append` itself, not a Python function or `__del__`: the collector may call it in any
    thread and under any lock, and Ctrl-C can't strike inside it.
    """

    __slots__ = ("buffer",)
    buffer: _Buffer


class Pool:
    """The buffers of one account, reused block after block."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self._lock = account.ledger.lock
        self._idle: list[_Buffer] = []
        self._out: set[_Loan] = set()
        self._returned: deque[_Loan] = deque()
        self._num_holds = 0
        self._hold_ended = threading.Condition(self._lock)

    def lease(self, nbytes: int) -> Bytes:
        """Return `nbytes` of memory that nothing else refers to; its buffer counts as mapped until it comes back."""
        nbytes = max(nbytes, 1)
        with self._lock:
            if self._returned:
                self._settle()
            buffer = _best(self._idle, nbytes, self.account.mapped)
            if buffer is None:
                self._make_room(buffer_nbytes(nbytes))
                # A buffer of the reserve may be larger than asked for, but not larger than there is room.
                room = self.account.grant - self.account.mapped
                buffer = _reserve.take(nbytes, room) or _Buffer(nbytes)
                self.account.charge(buffer.nbytes)
            lease = Lease(buffer, nbytes)
            loan = _Loan(lease, self._returned.append)
            loan.buffer = buffer
            self._out.add(loan)
        return np.asarray(lease)

    @contextlib.contextmanager
    def hold(self, nbytes: int) -> Iterator[None]:
        """Count memory that is not ours, such as what a decoder allocates, as mapped for a while.

        If there is no room, it waits for what other threads hold, which they give back soon. Not for more than
        that: blocks may wait for this very thread. A thread must not hold twice at once.
        """
        with self._hold_ended:
            while True:
                self._settle()
                try:
                    self._make_room(nbytes)
                    break
                except BudgetError:
                    if not self._num_holds:
                        raise
                self._hold_ended.wait()
            self.account.charge(nbytes)
            self._num_holds += 1
        try:
            yield
        finally:
            with self._hold_ended:
                self.account.mapped -= nbytes
                self._num_holds -= 1
                self._hold_ended.notify_all()

    def write_off(self, leases: Iterable["weakref.ref[Lease]"]) -> None:
        """Count the buffers of a delivered block that the consumer still refers to as held by the consumer."""
        with self._lock:
            for reference in leases:
                lease = reference()
                # A block may have been given memory of another pool, such as that of a cache.
                if lease is not None and reference in self._out and not lease.buffer.is_held:
                    lease.buffer.is_held = True
                    self.account.write_off(lease.buffer.nbytes)
                del lease
            self._settle()

    def close(self) -> None:
        """Give idle buffers to the reserve, or unmap them; leased ones are unmapped when their last view dies."""
        with self._lock:
            self._settle()
            # First out of this list: if Ctrl-C left a buffer in both lists, it would be leased twice.
            while self._idle:
                _reserve.put(self._idle.pop(), self.account.grant)
            self.account.mapped = 0
        self.account.close()

    def _settle(self) -> None:
        while self._returned:
            loan = self._returned.popleft()
            self._out.discard(loan)
            nbytes = loan.buffer.nbytes
            if loan.buffer.is_held:
                loan.buffer.is_held = False
                self.account.held -= nbytes
                if not self.account.is_open or self.account.mapped + nbytes > self.account.grant:
                    continue
                self.account.charge(nbytes)
            if self.account.is_open:
                self._idle.append(loan.buffer)

    def _make_room(self, nbytes: int) -> None:
        while self._idle and self.account.mapped + nbytes > self.account.grant:
            self.account.mapped -= self._idle.pop(0).nbytes
        if not self.account.grow(self.account.mapped + nbytes):
            error = BudgetError(
                f"{self.account.name} has {format_nbytes(self.account.mapped)} and needs another "
                f"{format_nbytes(nbytes)}, more than the memory budget leaves it "
                f"({format_nbytes(self.account.limit)}): its rows are longer than those it was "
                f"planned for. Write with_options(memory={self.account.mapped + 2 * nbytes}), or more."
            )
            error.nbytes = nbytes
            raise error


def allocate_plain(nbytes: int) -> Bytes:
    """Return memory that starts on 64 bytes and belongs to no ledger: for a single row or a test."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + nbytes]


def hold_plain(nbytes: int) -> AbstractContextManager[None]:  # noqa: ARG001  # As every `Hold` has it.
    """Count nothing: outside a stream there is no ledger."""
    return contextlib.nullcontext()
