"""Where the time went: seconds and rows of each node, measured once a block, and the last pieces of work."""

import threading
from collections import deque
from collections.abc import Iterable
from threading import get_ident
from time import perf_counter
from typing import Any

from penstock.core import forking

Totals = dict[int, list[float]]
"""Seconds and rows, by the id of a node."""
Work = tuple[int, int, float, float]
"""A piece of work: the thread, the id of the node (of None: waiting), when it began, and how long it took."""

_MOST_PIECES = 2048
SHORTEST = 20e-6
"""Seconds: shorter pieces of work are not kept, nobody could see them."""


class _Own(threading.local):
    """What one thread counted. It takes no lock: each thread has its own totals, and `Clock` adds them up."""

    def __init__(self, of_all: dict[int, Totals], names: dict[int, str]) -> None:
        self.inner = 0.0
        self.totals: Totals = {}
        of_all[id(self.totals)] = self.totals
        names[get_ident()] = threading.current_thread().name


class Clock:
    """Adds up the time each node takes itself, without that of the nodes it asks for rows."""

    def __init__(self) -> None:
        self._of_all: dict[int, Totals] = {}
        """Of each thread, by the id of its totals."""
        self._lock = forking.lock()
        """Held while totals are added up, and while those of a thread that ends go to those of all that have ended."""
        self._ended: Totals = {}
        self._of_all[id(self._ended)] = self._ended
        self.names: dict[int, str] = {}
        """Of threads, by their numbers."""
        self.last: deque[Work] = deque(maxlen=_MOST_PIECES)
        """The last pieces of work, of all threads, each with those of the nodes that it asked for rows."""
        self._own = _Own(self._of_all, self.names)

    def know_thread(self) -> None:
        """Note the name of this thread, which may run native jobs alone."""
        self._own.inner  # noqa: B018  # What a thread has is made at its first look, and notes the name then.

    def end_thread(self) -> None:
        """Keep what this thread counted, and not the thread: an endless flow begins a new one in each repetition."""
        own = self._own
        with self._lock:
            for key, (seconds, num_rows) in own.totals.items():
                total = self._ended.setdefault(key, [0.0, 0.0])
                total[0] += seconds
                total[1] += num_rows
            self._of_all.pop(id(own.totals), None)
            own.totals.clear()

    def enter(self) -> tuple[float, float]:
        """Start the time of one node."""
        own = self._own
        outer, own.inner = own.inner, 0.0
        return perf_counter(), outer

    def leave(self, mark: tuple[float, float], node: Any, num_rows: int) -> None:
        """Count the time since `mark`, less the time of inner nodes, for `node`.

        `node` is None for time spent waiting for another thread. That thread counts the work itself, so the
        wait belongs to no node.
        """
        started, outer = mark
        elapsed = perf_counter() - started
        own = self._own
        self.add(node, elapsed - own.inner, num_rows)
        own.inner = outer + elapsed
        if elapsed >= SHORTEST:
            self.last.append((get_ident(), id(node), started, elapsed))

    def add(self, node: Any, seconds: float, num_rows: int) -> None:
        """Count time and rows of a node itself, without the nodes it asks for rows."""
        totals = self._own.totals
        total = totals.get(id(node))
        if total is None:
            total = totals[id(node)] = [0.0, 0.0]
        total[0] += seconds
        total[1] += num_rows

    def note(self, node: Any, thread: int, started: float, elapsed: float) -> None:
        """Keep a piece of work of a native job: which thread did it, when it began, and the seconds it took."""
        if elapsed >= SHORTEST:
            self.last.append((thread, id(node), started, elapsed))

    def seconds(self, node: Any) -> float:
        """Return the time that `node` took itself, over all threads."""
        return self._sum(node, 0)

    def seconds_of(self, keys: Iterable[int]) -> list[float]:
        """Return the time that each node took itself, by the ids of the nodes."""
        with self._lock:
            found = list(self._of_all.values())
            return [sum([totals.get(key, _NONE)[0] for totals in found]) for key in keys]

    def num_rows(self, node: Any) -> int:
        """Return how many rows `node` made."""
        return int(self._sum(node, 1))

    def _sum(self, node: Any, place: int) -> float:
        with self._lock:
            found = [totals.get(id(node)) for totals in list(self._of_all.values())]
            return sum(total[place] for total in found if total is not None)


_NONE = [0.0, 0.0]
