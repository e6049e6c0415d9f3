"""How much of what a stream hands out is padding: counted by the stages that pad, told by the report."""

import threading
from typing import Any


class Padding:
    """Counts the values that stages made, and those of them that are padding; any thread may add to it."""

    def __init__(self) -> None:
        self._counts: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def add(self, node: Any, num_values: int, room: int) -> None:
        """Count what a node made: `room` values, of which `num_values` are not padding."""
        if not room:
            return
        with self._lock:
            values, total = self._counts.get(id(node), (0, 0))
            self._counts[id(node)] = values + num_values, total + room

    def of(self, node: Any) -> tuple[int, int]:
        """Return how many values of a node are not padding, and how many there are in all."""
        return self._counts.get(id(node), (0, 0))
