"""File descriptors that are closed exactly once: their numbers are used again at once, maybe for another file."""

import os
import weakref
from collections import deque

_private: "weakref.WeakSet[Descriptor]" = weakref.WeakSet()


class Descriptor:
    """An open descriptor, and its number; -1 once it is closed.

    `is_private`: it is this process's alone, and a forked child closes its copy at once. So it must be for one that
    holds a lock, which lasts until all copies are closed.
    """

    __slots__ = ("__weakref__", "_left", "number")

    def __init__(self, number: int, *, is_private: bool = False) -> None:
        self.number = number
        self._left = iter((number,) if number >= 0 else ())
        if is_private:
            _private.add(self)

    def close(self) -> None:
        """Close it, if it is open."""
        self.number = -1
        # In C from end to end: Ctrl-C strikes before it or after it, not between forgetting the number and closing it.
        deque(map(os.close, self._left), maxlen=0)


def _close_private() -> None:
    for one in list(_private):
        one.close()


os.register_at_fork(after_in_child=_close_private)
