"""Where the time went: seconds and rows of each node, measured once a block, and the last pieces of work."""

import threading
from collections import deque
from collections.abc import Iterable
from threading import get_ident
from time import perf_counter
from typing import Any

Totals = dict[int, list[float]]
"""Seconds and rows, by the id of a node."""
Work = tuple[int, int, float, float]
"""A piece of work: the thread, the id of the node (of None: waiting), when it began, and how long it took."""

_MOST_PIECES = 2048
SHORTEST = 20e-6
"""Seconds: shorter pieces of work are not kept, nobody could see them."""


class _Own(threading.local):
    """What one thread counted. It takes no lock: each thread has its own totals, and `Clock` adds them up."""

    def __init__(self, of_all: list[Totals], names: dict[int, str]) -> None:
        self.inner = 0.0
        self.totals: Totals = {}
        of_all.append(self.totals)
        names[get_ident()] = threading.current_thread().name


class Clock:
    """Adds up the time each node takes itself, without that of the nodes it asks for rows."""

    def __init__(self) -> None:
        self._of_all: list[Totals] = []
        self.names: dict[int, str] = {}
        """Of threads, by their numbers."""
        self.last: deque[Work] = deque(maxlen=_MOST_PIECES)
        """The last pieces of work, of all threads, each with those of the nodes that it asked for rows."""
        self._own = _Own(self._of_all, self.names)

    def know_thread(self) -> None:
        """Note the name of this thread, which may run native jobs alone."""
        self._own.inner  # noqa: B018  # What a thread has is made at its first look, and notes the name then.

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
        of_all = self._of_all
        if len(of_all) == 1:
            get = of_all[0].get
            return [get(key, _NONE)[0] for key in keys]
        found = list(of_all)
        return [sum([totals.get(key, _NONE)[0] for totals in found]) for key in keys]

    def num_rows(self, node: Any) -> int:
        """Return how many rows `node` made."""
        return int(self._sum(node, 1))

    def _sum(self, node: Any, place: int) -> float:
        found = [totals.get(id(node)) for totals in list(self._of_all)]
        return sum(total[place] for total in found if total is not None)


_NONE = [0.0, 0.0]
