"""What a stream opens while it runs (file handles, windows), and closes when it closes."""

import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar


class Closable(Protocol):
    """Anything with `close()`."""

    def close(self) -> None:
        """Release what it holds."""
        ...


Resource = TypeVar("Resource", bound=Closable)


class Resources:
    """Things that are made when they are first asked for, and closed together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[Hashable, Closable] = {}
        self._watched: weakref.WeakSet[Closable] = weakref.WeakSet()

    def get(self, key: Hashable, make: Callable[[], Resource]) -> Resource:
        """Return the resource under `key`; make it first if there is none yet."""
        with self._lock:
            if key not in self._opened:
                self._opened[key] = make()
            return self._opened[key]  # type: ignore[return-value]  # One key is one kind of thing.

    def watch(self, one: Closable) -> None:
        """Close this, too, if anything still refers to it then: as an error does to all that it passed through."""
        with self._lock:
            self._watched.add(one)

    def close(self) -> None:
        """Close all that is watched, and all resources, the newest first."""
        for watched in list(self._watched):
            watched.close()
        while self._opened:
            key, one = next(reversed(self._opened.items()))
            one.close()
            # Removed only now: if Ctrl-C interrupts a close(), the next call tries it again.
            self._opened.pop(key, None)
