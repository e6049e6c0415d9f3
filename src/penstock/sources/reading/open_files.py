"""The readers of a stream's files: one for each file, and only some of the files open at a time."""

import resource
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.core.closing import Closing
from penstock.core.rows import Context
from penstock.io.cells import Cells, Sums
from penstock.io.local.reader import LocalReader
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Buffer, Range, Reader

_MOST_OPEN = 512  # More gain nothing: to read so many files in turn is to wait for the disk.
# One in so many of the descriptors that the process may have: a file may take two, and others need some, too.
_SHARE = 8
ROOM_NBYTES = 1 << 18
"""What native jobs read and use at once: it stays in a core's cache in between. No row may be longer."""


def reader_of(location: Location, context: Context, *, direct: bool) -> Reader:
    """Return the reader of a file, which the stream closes."""
    if location.is_remote:
        return context.resources.get(("reader", location.url), lambda: open_reader(location))
    files = context.resources.get("open files", OpenFiles)
    return context.resources.get(
        ("reader", location.url), lambda: ReopenedReader(location, files, direct=direct)
    )


@contextmanager
def page_cache_of(reader: Reader) -> Iterator[int]:
    """Give a descriptor to read a file through the page cache, or -1 where that is not the way to read it."""
    if isinstance(reader, ReopenedReader):
        with reader.page_cache() as fd:
            yield fd
    else:
        yield -1


def check_file(reader: Reader) -> None:
    """Raise FileChangedError if a file has changed since it was listed: after a read by `page_cache_of`."""
    with page_cache_of(reader):
        pass


class ReopenedReader(Closing):
    """A `Reader` of a local file that may be closed between two reads, and is opened again."""

    def __init__(self, location: Location, files: "OpenFiles", *, direct: bool) -> None:
        self.location = location
        self.direct = direct
        self._files = files

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return self.location.size

    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""
        file = self._files.borrow(self)
        try:
            file.reader.read_into(buffer, offset)
        finally:
            self._files.give_back(file)

    def read_ranges(self, ranges: Sequence[Range], cells: Cells | None = None) -> Sums | None:
        """Fill each range's buffer; return the checksums that `cells` ask for."""
        file = self._files.borrow(self)
        try:
            return file.reader.read_ranges(ranges, cells)
        finally:
            self._files.give_back(file)

    @contextmanager
    def page_cache(self) -> Iterator[int]:
        """Give a descriptor for plain reads, or -1 if the file is read past the page cache."""
        file = self._files.borrow(self)
        try:
            with file.reader.page_cache() as fd:
                yield fd
        finally:
            self._files.give_back(file)

    def check_unchanged(self) -> None:
        """Raise FileChangedError if the file is not the one that was listed."""
        with open_reader(self.location) as reader:
            reader.check_unchanged()

    def close(self) -> None:
        """Close the file, if it is open."""
        self._files.drop(self)


@dataclass(slots=True)
class _Open:
    reader: LocalReader
    num_reading: int = 0


class OpenFiles:
    """The files of a stream that were read last, open; the others are closed until they are read again."""

    def __init__(self, most: int | None = None) -> None:
        self._most = _most_open() if most is None else most
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        """By URL; the file that was read last is at the end."""
        self._is_closed = False

    def borrow(self, reader: ReopenedReader) -> _Open:
        """Return the open file; it stays open until it is given back."""
        url = reader.location.url
        with self._lock:
            if self._is_closed:
                raise ValueError(f"the reader of {reader.location} is closed.")
            one = self._open.get(url)
            if one is None:
                one = self._open[url] = _Open(LocalReader(reader.location, direct=reader.direct))
            one.num_reading += 1
            self._open.move_to_end(url)
            surplus = self._surplus()
        for idle in surplus:
            idle.close()
        return one

    def give_back(self, file: _Open) -> None:
        """End a read of a file that was borrowed."""
        with self._lock:
            file.num_reading -= 1

    def drop(self, reader: ReopenedReader) -> None:
        """Close a file; a read under way finishes."""
        with self._lock:
            one = self._open.pop(reader.location.url, None)
        if one is not None:
            one.reader.close()

    def _surplus(self) -> list[LocalReader]:
        """Remove and return the readers that are too many: idle ones, the least recently used first."""
        excess = len(self._open) - self._most
        if excess <= 0:
            return []
        idle = (url for url, one in self._open.items() if not one.num_reading)
        chosen = [url for url, _ in zip(idle, range(excess), strict=False)]
        return [self._open.pop(url).reader for url in chosen]

    def close(self) -> None:
        """Close all of them; reads under way finish, later ones are refused."""
        with self._lock:
            self._is_closed = True
            opened = list(self._open.values())
            self._open.clear()
        for one in opened:
            one.reader.close()


def _most_open() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST_OPEN if limit < 0 else max(4, min(_MOST_OPEN, limit // _SHARE))
