"""Trays: the shared memory that rows lie in on their way to a worker process, and their results on the way back."""

import mmap
import threading
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING

from penstock.core.arrays import Array, typed
from penstock.core.fields import block_nbytes, round_up
from penstock.core.fingerprint import walk
from penstock.core.rows import Node, rows_per_block
from penstock.engine.functions.task import FunctionNode, task_of
from penstock.errors import StreamClosedError
from penstock.memory import ALIGNMENT, Account

if TYPE_CHECKING:
    from penstock import workers

_INDEX_NBYTES = 8  # An int64: the number of a row, where it starts, how long it is.
# The gaps that an array can make, and the one offset more than there are rows.
_ARRAY_NBYTES = 2 * ALIGNMENT


def rows_per_tray(node: FunctionNode, nbytes: int) -> int:
    """Return how many rows lie in a tray, if neither they nor their results may take much more than `nbytes`."""
    stride = sum(field.stride(aligned=node.is_batched) for field in task_of(node).out_fields)
    return max(1, min(rows_per_block(node.input, nbytes), nbytes // max(1, stride)))


def tray_nbytes(node: FunctionNode, num_rows: int, *, fixed_only: bool = False) -> int:
    """Return the bytes of a tray for so many rows and their results.

    They are estimated for fields whose rows differ in size; with `fixed_only` these only have their gaps counted.
    """
    total = _ARRAY_NBYTES + num_rows * _INDEX_NBYTES  # The numbers of the rows.
    sides = (
        (node.input.fields, node.input.is_batched),
        (task_of(node).out_fields, node.is_batched),
    )
    for fields, aligned in sides:
        for field in fields:
            is_fixed = field.storage_shape is not None
            if is_fixed or not fixed_only:
                total += block_nbytes([field], num_rows, aligned=aligned)
            if is_fixed:
                lengths = 0 if field.spec.is_fixed else num_rows * _INDEX_NBYTES
                total += lengths + 2 * _ARRAY_NBYTES
            else:
                # As text, in a ragged field: data, offsets, starts, shapes.
                total += 4 * _ARRAY_NBYTES
                if not fixed_only:
                    total += num_rows * _INDEX_NBYTES * (2 + len(field.spec.shape))
    return round_up(total, mmap.PAGESIZE)


def function_nodes(node: Node) -> list[FunctionNode]:
    """Return the nodes of a chain that run a function of the user's, inputs first."""
    found = {id(one): one for one in walk(node) if isinstance(one, FunctionNode)}
    return list(found.values())


def shared_nbytes(node: FunctionNode, block_nbytes: int, count: int) -> int:
    """Return the bytes of `count` trays for blocks of `block_nbytes`."""
    return count * tray_nbytes(node, rows_per_tray(node, block_nbytes))


class Tray:
    """The shared memory of one task: arrays are put into it one after the other."""

    def __init__(self, arena: "workers.Arena") -> None:
        self.arena = arena
        self.used = 0

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return self.arena.nbytes

    def allocate(self, nbytes: int) -> Array:
        """Return the next `nbytes`, from a multiple of 64 bytes on."""
        start = self.used
        assert start + nbytes <= self.nbytes, "more is put into a tray than it was taken for"
        self.used = round_up(start + nbytes, ALIGNMENT)
        return self.arena.memory[start : start + nbytes]

    def put(self, array: Array) -> Array:
        """Return an array that lies in this tray: as it is, or a copy."""
        if self.arena.place(array) is not None:
            return array
        copy = typed(self.allocate(array.nbytes), 0, array.shape, array.dtype)
        copy[...] = array
        return copy

    def rest(self) -> Array:
        """Return all that is left."""
        return self.allocate(self.nbytes - self.used)


class Trays:
    """The trays of one function. They never take more than their account was granted: a thread waits for its turn.

    A thread has one tray at a time, and gives it back whatever happens: so every wait comes to an end.
    """

    def __init__(self, pool: "workers.WorkerPool", account: Account, budget: int) -> None:
        self._pool = pool
        self._account = account
        self.budget = budget
        # Plain locks, not a condition: Ctrl-C could leave that locked in the main thread.
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        self._idle: list[Tray] = []
        self._busy_nbytes = 0
        self._is_closed = False

    def take(self, nbytes: int) -> Tray:
        """Return a tray of at least `nbytes`; raise if the budget has no room for one."""
        nbytes = round_up(nbytes, mmap.PAGESIZE)
        while True:
            with self._lock:
                tray = self._found(nbytes)
                if tray is not None:
                    tray.used = 0
                    return tray
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
            turn.acquire()  # Until a tray comes back, or the stream is closed.

    def give_back(self, tray: Tray, *, is_kept: bool = False) -> None:
        """Let others use a tray; with `is_kept` the function refers to its memory, and it is left to the function."""
        with self._lock:
            self._busy_nbytes -= tray.nbytes
            if is_kept:
                self._drop(tray, is_kept=True)
            else:
                self._idle.append(tray)
            self._wake()

    def charge_more(self, nbytes: int) -> None:
        """Count memory that a worker made for results which did not fit into their tray; raise if there is no room."""
        with self._lock:
            self._make_room(nbytes)
            left = self._account.grant - self._account.mapped
            if nbytes > left:
                self._grow(nbytes - left)
            self._busy_nbytes += nbytes
            self._charge(nbytes)

    def release_more(self, nbytes: int) -> None:
        """Count that memory as given back."""
        with self._lock:
            self._busy_nbytes -= nbytes
            self._charge(-nbytes)
            self._wake()

    def most_nbytes(self) -> int:
        """Return how many bytes there could be for the results of one task, if all else came back."""
        with self._account.ledger.lock:
            return self._account.grant + max(0, self.budget - self._account.ledger.granted)

    def stop(self) -> None:
        """Hand out no more trays, and wake those who wait for one."""
        with self._lock:
            self._is_closed = True
            self._wake()

    def wait_idle(self, seconds: float) -> bool:
        """Wait until all trays are back, but no longer than that; return whether they are."""
        end = monotonic() + seconds
        while True:
            with self._lock:
                if not self._busy_nbytes:
                    return True
                turn = threading.Lock()
                turn.acquire()
                self._waiting.append(turn)
            if not turn.acquire(timeout=max(0.0, end - monotonic())):
                return False

    def _found(self, nbytes: int) -> Tray | None:
        """Return an idle tray or a new one, or None if others must come back first."""
        if self._is_closed:
            raise StreamClosedError("the stream was closed.")
        fitting = [tray for tray in self._idle if tray.nbytes >= nbytes]
        if fitting:
            tray = min(fitting, key=lambda one: one.nbytes)
            self._idle.remove(tray)
            self._busy_nbytes += tray.nbytes
            return tray
        self._make_room(nbytes)
        left = self._account.grant - self._account.mapped
        if nbytes > left:
            if self._busy_nbytes:
                return None
            self._grow(nbytes - left)
        tray = Tray(self._pool.add_arena(nbytes))
        self._busy_nbytes += tray.nbytes
        self._charge(tray.nbytes)
        return tray

    def _make_room(self, nbytes: int) -> None:
        while self._idle and self._account.mapped + nbytes > self._account.grant:
            self._drop(self._idle.pop(0))

    def _grow(self, nbytes: int) -> None:
        why = "its rows are longer than those it was planned for"
        self._account.ledger.extend(self._account, nbytes, budget=self.budget, why=why)

    def _drop(self, tray: Tray, *, is_kept: bool = False) -> None:
        self._charge(-tray.nbytes)
        self._pool.drop_arena(tray.arena, is_kept=is_kept)

    def _charge(self, nbytes: int) -> None:
        with self._account.ledger.lock:
            self._account.charge(nbytes)

    def _wake(self) -> None:
        while self._waiting:
            self._waiting.popleft().release()
