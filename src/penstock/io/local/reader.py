"""Local files: exact reads, past the page cache where they are large, never by mmap."""

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from penstock import _native
from penstock.core.closing import Closing
from penstock.core.read_count import count_read
from penstock.core.system import advise, is_portable
from penstock.errors import DataError, FileChangedError, NotAFileError
from penstock.io.cells import Cells, Sums
from penstock.io.failures import read_failure
from penstock.io.local.bounce import BOUNCE
from penstock.io.local.disk import DIRECT_NBYTES, Disk, disk_of
from penstock.io.local.page_cache import page_cache_room
from penstock.io.location import Location
from penstock.io.reader import Buffer, Bytes, Range, check_range, short_read, writable_bytes

Access: TypeAlias = Literal["normal", "sequential", "random"]

# One native call reads no more than this: Ctrl-C is answered between two calls.
MAX_READ = 16 << 20
# O_NONBLOCK: opening a pipe must not wait for someone to write to it.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_ADVICE = {"normal": "NORMAL", "sequential": "SEQUENTIAL", "random": "RANDOM"}


def read_start(location: Location, nbytes: int) -> bytes:
    """Return the first `nbytes` bytes of a local file, or all if it has fewer.

    As a `LocalReader` does it, at a third of the cost: there may be tens of thousands of files to begin with.
    """
    fd = _open_buffered(location)
    try:
        _compare(location, os.fstat(fd))
        data = os.pread(fd, min(nbytes, location.size), 0)
        _compare(location, os.fstat(fd))
    except DataError:
        raise
    except OSError as error:
        raise read_failure(error, file=str(location), offset=0) from error
    finally:
        os.close(fd)
    return data


class LocalReader(Closing):
    """A `Reader` of a local file. See `open_reader`."""

    def __init__(
        self, location: Location, *, direct: bool | None = None, access: Access = "normal"
    ) -> None:
        if access not in _ADVICE:
            raise ValueError(f"access must be one of {', '.join(_ADVICE)}, got {access!r}.")
        self.location = location
        self._options = (direct, access)
        self._avoids_cache = location.size > page_cache_room() if direct is None else direct
        self._lock = threading.Lock()
        self._num_reading = 0
        self._is_closed = False
        self._is_direct = False
        self._fd = -1
        self._direct_fd = -1
        self._disk = Disk()

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return self.location.size

    @property
    def is_direct(self) -> bool:
        """Whether large reads go past the page cache; known after the first of them."""
        return self._is_direct

    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""
        self.read_ranges([Range(offset, buffer)])

    def read_ranges(self, ranges: Sequence[Range], cells: Cells | None = None) -> Sums | None:
        """Fill each range's buffer, reading near neighbours in one go."""
        offsets = [one.offset for one in ranges]
        targets = [writable_bytes(one.buffer) for one in ranges]
        for offset, target in zip(offsets, targets, strict=True):
            if offset < 0 or offset + target.size > self.location.size:
                check_range(self.location, offset, target.size)
        self._start()
        try:
            sums = None
            if sum(map(len, targets)) <= MAX_READ:
                sums = self._read(offsets, targets, cells)
            else:
                for offset, target in _portions(offsets, targets):
                    self._read([offset], [target], None)
                if cells is not None:
                    sums = cells.sums(offsets, targets)
            _compare(self.location, os.fstat(self._fd))
        finally:
            self._finish()
        return sums

    @contextlib.contextmanager
    def page_cache(self) -> Iterator[int]:
        """Give a descriptor for plain reads, or -1 if the file is read past the page cache.

        For kernels that use what they read at once. One that could not read all leaves it to `read_ranges` to say why.
        """
        self._start()
        try:
            yield -1 if self._avoids_cache else self._fd
            _compare(self.location, os.fstat(self._fd))
        finally:
            self._finish()

    def describe(self) -> str:
        """Return how the file is read; a disk that was not measured yet is measured now."""
        # Errors of the file are raised when its rows are read.
        with contextlib.suppress(OSError, ValueError):
            self._start()
            try:
                if self._is_direct:
                    self._disk.measure(self._fd, self._direct_fd, self.location.size)
            finally:
                self._finish()
        if not self._is_direct:
            return "read through the page cache"
        return f"read past the page cache, {self._disk.describe()}"

    def check_unchanged(self) -> None:
        """Raise FileChangedError if the file is not the one that was listed."""
        try:
            found = os.stat(self.location.url)  # noqa: PTH116  as os.fstat in _open
        except OSError as error:
            raise read_failure(error, file=str(self.location), listed=True) from error
        _compare(self.location, found)

    def close(self) -> None:
        """Close the handles; reads under way finish, later ones are refused."""
        with self._lock:
            self._is_closed = True
            self._close_if_idle()

    def __del__(self) -> None:
        # No lock: no thread refers to this reader any more, and __init__ may have raised before it made the lock.
        fds = (getattr(self, "_fd", -1), getattr(self, "_direct_fd", -1))
        # In a cycle of garbage, the owner of this reader may still call close() after this.
        self._fd = self._direct_fd = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.location, *self._options)

    # The handles. A descriptor is closed only when no read is using its number.

    def _start(self) -> None:
        with self._lock:
            if self._is_closed:
                raise ValueError(f"the reader of {self.location} is closed.")
            if self._fd < 0:
                self._open()
            self._num_reading += 1

    def _finish(self) -> None:
        with self._lock:
            self._num_reading -= 1
            if self._is_closed:
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._num_reading == 0:
            fds, self._fd, self._direct_fd = (self._fd, self._direct_fd), -1, -1
            for fd in fds:
                if fd >= 0:
                    os.close(fd)

    def _open(self) -> None:
        fd = _open_buffered(self.location)
        try:
            found = os.fstat(fd)
            _compare(self.location, found)
            if self._avoids_cache:
                self._direct_fd = _open_direct(self.location.url, found)
        except BaseException:
            os.close(fd)
            raise
        if self._options[1] != "normal":  # That is how every file is opened.
            advise(fd, _ADVICE[self._options[1]])
        self._disk = disk_of(found.st_dev)
        self._fd = fd
        self._is_direct = self._direct_fd >= 0

    # The reads.

    def _read(self, offsets: list[int], targets: list[Bytes], cells: Cells | None) -> Sums | None:
        sums = None
        if cells is not None:
            sums = cells.empty_sums(offsets, [target.size for target in targets])
        start, nbytes = (cells.start, cells.nbytes) if cells else (0, 0)
        bounce = BOUNCE.acquire()
        try:
            direct_fd = self._direct_fd if self._is_direct else -1
            room = bounce[: self._disk.at_once * DIRECT_NBYTES]
            is_direct, failure = _native.read_ranges(
                self._fd,
                direct_fd,
                offsets,
                targets,
                room,
                self._avoids_cache,
                cells_start=start,
                cell_nbytes=nbytes,
                sums=sums,
            )
        finally:
            BOUNCE.release(bounce)
        if direct_fd >= 0 and not is_direct:
            self._is_direct = False
        if failure is None:
            count_read(sum(map(len, targets)))
            if is_direct and self._disk.was_read(sum(map(len, targets))):
                self._disk.measure(self._fd, direct_fd, self.location.size)
            return sums
        offset, wanted, got, number = failure
        if number:
            raise self._failure(OSError(number, os.strerror(number)), offset)
        raise short_read(self.location, offset, wanted, got)

    def _failure(self, error: OSError, offset: int) -> Exception:
        return read_failure(error, file=str(self.location), offset=offset)


def _portions(offsets: list[int], targets: list[Bytes]) -> Iterator[tuple[int, Bytes]]:
    """Yield what one native call reads of many bytes: a range, or `MAX_READ` bytes of it."""
    for offset, target in zip(offsets, targets, strict=True):
        for begin in range(0, len(target), MAX_READ):
            yield offset + begin, target[begin : begin + MAX_READ]


def _rebuild(location: Location, direct: bool | None, access: Access) -> LocalReader:  # noqa: FBT001  pickle passes by position
    return LocalReader(location, direct=direct, access=access)


def _compare(listed: Location, found: os.stat_result) -> None:
    """Raise if the file is no plain file, or has changed since it was listed."""
    if not stat.S_ISREG(found.st_mode):
        kind = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe, socket or device"
        raise NotAFileError(f"this is {kind}", file=str(listed), cure="Name a plain file.")
    if found.st_size == listed.size and listed.mtime_ns in (found.st_mtime_ns, None):
        return
    if listed.mtime_ns is None and found.st_size > listed.size:
        return  # a file that is expected to be written to may grow
    change = (
        f"it had {listed.size} bytes and has {found.st_size} now"
        if found.st_size != listed.size
        else "it was written to"
    )
    raise FileChangedError(
        f"the file changed after it was listed: {change}",
        file=str(listed),
        cure="Wait until whatever writes it has finished, then build the dataset again.",
    )


def _open_buffered(location: Location) -> int:
    try:
        return os.open(location.url, _FLAGS)
    except OSError as error:
        raise read_failure(error, file=str(location), listed=True) from error


def _open_direct(path: str, expected: os.stat_result) -> int:
    """Return a descriptor for direct reads of the same file, or -1 where there are none."""
    if sys.platform != "linux" or is_portable:
        return -1
    try:
        fd = os.open(path, _FLAGS | os.O_DIRECT)
    except OSError:
        return -1
    if os.path.samestat(os.fstat(fd), expected):
        return fd
    os.close(fd)  # replaced between the two opens: check_unchanged() will raise
    return -1
