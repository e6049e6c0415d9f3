"""How many bytes a stream reads from files of this machine.

Files are read in many places, by formats that know nothing of streams. So each thread that works for a stream says
for which, and whoever reads counts for that.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadCount:
    """The bytes that the threads of one stream have read from files; any of them may add to it."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        """Count bytes that were read."""
        with self._lock:
            self.nbytes += nbytes

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what this thread reads meanwhile; a stream that is opened within another one counts its own."""
        before, _current.count = _current.count, self
        try:
            yield
        finally:
            _current.count = before


class _Current(threading.local):
    count: ReadCount | None = None


_current = _Current()


def count_read(nbytes: int) -> None:
    """Count bytes that this thread has read from a file, for the stream that it works for, if any."""
    count = _current.count
    if count is not None:
        count.add(nbytes)
