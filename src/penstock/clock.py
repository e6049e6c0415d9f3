"""Where the time went: seconds and rows a node, measured a block at a time."""

import threading
from time import perf_counter
from typing import Any


class Clock:
    """Adds up the time each node takes itself, without that of the nodes it asks for rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._local = threading.local()
        self._totals: dict[int, list[float]] = {}

    def enter(self) -> tuple[float, float]:
        """Start the time of one node."""
        outer: float = getattr(self._local, "inner", 0.0)
        self._local.inner = 0.0
        return perf_counter(), outer

    def leave(self, mark: tuple[float, float], node: Any, num_rows: int) -> None:
        """Count the time since `mark`, less what inner nodes took, for `node`.

        None is for time spent waiting for another thread, which counts its own: it belongs to no node.
        """
        started, outer = mark
        elapsed = perf_counter() - started
        self.add(node, elapsed - self._local.inner, num_rows)
        self._local.inner = outer + elapsed

    def add(self, node: Any, seconds: float, num_rows: int) -> None:
        """Count time that a node took by itself."""
        with self._lock:
            total = self._totals.setdefault(id(node), [0.0, 0.0])
            total[0] += seconds
            total[1] += num_rows

    def seconds(self, node: Any) -> float:
        """Return the time that `node` took itself, over all threads."""
        return self._totals.get(id(node), (0.0, 0.0))[0]

    def num_rows(self, node: Any) -> int:
        """Return how many rows `node` made."""
        return int(self._totals.get(id(node), (0.0, 0.0))[1])
