"""What a stream opens while it runs: file handles, windows. All of it is closed with the stream."""

import threading
from collections.abc import Callable, Hashable
from typing import Protocol, TypeVar


class Closable(Protocol):
    """Anything with `close()`."""

    def close(self) -> None:
        """Let go of it."""
        ...


Resource = TypeVar("Resource", bound=Closable)


class Resources:
    """Things that are made when they are first asked for, and closed together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[Hashable, Closable] = {}

    def get(self, key: Hashable, make: Callable[[], Resource]) -> Resource:
        """Return what is kept under `key`; make it if there is nothing yet."""
        with self._lock:
            if key not in self._opened:
                self._opened[key] = make()
            return self._opened[key]  # type: ignore[return-value]  # One key is one kind of thing.

    def close(self) -> None:
        """Close all of it, the newest first."""
        while self._opened:
            key, one = next(reversed(self._opened.items()))
            one.close()
            # Not before: what Ctrl-C keeps from being closed is closed at the next try.
            self._opened.pop(key, None)
