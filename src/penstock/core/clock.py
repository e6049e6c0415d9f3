"""Where the time went: seconds and rows of each node, measured once a block."""

import threading
from time import perf_counter
from typing import Any

Totals = dict[int, list[float]]
"""Seconds and rows, by the id of a node."""


class _Own(threading.local):
    """What one thread counted. It takes no lock: each thread has its own totals, and `Clock` adds them up."""

    def __init__(self, of_all: list[Totals]) -> None:
        self.inner = 0.0
        self.totals: Totals = {}
        of_all.append(self.totals)


class Clock:
    """Adds up the time each node takes itself, without that of the nodes it asks for rows."""

    def __init__(self) -> None:
        self._of_all: list[Totals] = []
        self._own = _Own(self._of_all)

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

    def add(self, node: Any, seconds: float, num_rows: int) -> None:
        """Count time and rows of a node itself, without the nodes it asks for rows."""
        totals = self._own.totals
        total = totals.get(id(node))
        if total is None:
            total = totals[id(node)] = [0.0, 0.0]
        total[0] += seconds
        total[1] += num_rows

    def seconds(self, node: Any) -> float:
        """Return the time that `node` took itself, over all threads."""
        return self._sum(node, 0)

    def num_rows(self, node: Any) -> int:
        """Return how many rows `node` made."""
        return int(self._sum(node, 1))

    def _sum(self, node: Any, place: int) -> float:
        found = [totals.get(id(node)) for totals in list(self._of_all)]
        return sum(total[place] for total in found if total is not None)
