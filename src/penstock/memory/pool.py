"""Buffers on 64 bytes that come back by themselves when the last array that looks at them dies."""

import contextlib
import mmap
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import BudgetError
from penstock.memory.budget import format_nbytes
from penstock.memory.ledger import Account, process_ledger

Bytes = npt.NDArray[np.uint8]
Allocate = Callable[[int], Bytes]
ALIGNMENT = 64
"""What frameworks take over without a copy starts on so many bytes: the line of a cache."""
_RESERVE_NBYTES = 256 << 20  # Enough for the blocks and windows of one stream.


_HUGE = 2 << 20  # The huge page of x86-64 and of most arm64 kernels.


def buffer_nbytes(nbytes: int) -> int:
    """Return the bytes that a buffer for `nbytes` really takes: whole pages, huge ones if it fits."""
    huge = -(-nbytes // _HUGE) * _HUGE
    if nbytes >= huge - huge // 8:
        return huge
    return -(-max(nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE


class _Buffer:
    """Anonymous memory of its own mapping: aligned, and given back to the system when dropped."""

    __slots__ = ("address", "is_held", "mapping", "nbytes")

    def __init__(self, nbytes: int) -> None:
        self.nbytes = buffer_nbytes(nbytes)
        self.is_held = False
        """Whether it is out, and counted as the consumer's."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self.mapping = mmap.mmap(-1, self.nbytes, flags=flags)
        if self.nbytes >= _HUGE:
            # The first touch of small pages costs more than filling them does.
            with contextlib.suppress(OSError):
                self.mapping.madvise(mmap.MADV_HUGEPAGE)
        self.address: int = np.frombuffer(self.mapping, np.uint8).__array_interface__["data"][0]


class _Reserve:
    """Buffers of closed streams, kept for the next one: the next epoch, or the validation data.

    The first touch of memory can cost more than reading the data does. They are no more than one stream
    was granted, count as granted, and give way to any stream that needs the room.
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
        # Anew each time: Ctrl-C may have come between the last change and its count.
        process_ledger.reserve_nbytes = sum(buffer.nbytes for buffer in self.buffers)


_reserve = _Reserve()
process_ledger.drop_reserve = _reserve.drop


def _best(buffers: list[_Buffer], nbytes: int, most: int) -> _Buffer | None:
    """Remove and return the smallest buffer that fits without waste, of `most` bytes at most."""
    most = min(most, 2 * nbytes + mmap.PAGESIZE)
    fitting = [b for b in buffers if nbytes <= b.nbytes <= most]
    if not fitting:
        return None
    best = min(fitting, key=lambda buffer: buffer.nbytes)
    buffers.remove(best)
    return best


class Lease:
    """The owner behind the arrays of one block: when it is collected, the buffer goes back.

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
    """A buffer that is out. When its lease is collected, this is appended to those that came back.

    By `deque.append` itself, not by a function or `__del__`: the collector may call it in any thread and
    under any lock, and Ctrl-C can't strike in it.
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

    def lease(self, nbytes: int) -> Bytes:
        """Return `nbytes` of memory that nobody else looks at; it is counted until it comes back."""
        nbytes = max(nbytes, 1)
        with self._lock:
            self._settle()
            buffer = _best(self._idle, nbytes, self.account.mapped)
            if buffer is None:
                self._make_room(buffer_nbytes(nbytes))
                # One of the reserve may be larger than asked for: not larger than there is room.
                room = max(self.account.limit, self.account.grant) - self.account.mapped
                buffer = _reserve.take(nbytes, room) or _Buffer(nbytes)
                self.account.charge(buffer.nbytes)
            lease = Lease(buffer, nbytes)
            loan = _Loan(lease, self._returned.append)
            loan.buffer = buffer
            self._out.add(loan)
        return np.asarray(lease)

    def write_off(self, leases: Iterable["weakref.ref[Lease]"]) -> None:
        """Count what the consumer still has of a delivered block as held by the consumer."""
        with self._lock:
            for reference in leases:
                lease = reference()
                if lease is not None and not lease.buffer.is_held:
                    lease.buffer.is_held = True
                    self.account.write_off(lease.buffer.nbytes)
                del lease
            self._settle()

    def close(self) -> None:
        """Unmap what is idle; what is still looked at is unmapped when the last view dies."""
        with self._lock:
            self._settle()
            # Out of here first: a buffer that is in both lists, after Ctrl-C, would be leased twice.
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
        if self.account.mapped + nbytes > max(self.account.limit, self.account.grant):
            raise BudgetError(
                f"{self.account.name} has {format_nbytes(self.account.mapped)} and needs another "
                f"{format_nbytes(nbytes)}, more than the memory budget leaves it "
                f"({format_nbytes(self.account.limit)}): its rows are longer than those it was "
                f"planned for. Write with_options(memory={self.account.mapped + 2 * nbytes}), or more."
            )


def allocate_plain(nbytes: int) -> Bytes:
    """Return memory that starts on 64 bytes and belongs to no ledger: for a single row or a test."""
    room = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + nbytes]
