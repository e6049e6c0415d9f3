"""Memory that is shared by its descriptor: it is in no folder, so nothing can be left behind.

The worker loads this file, too: see wire.py.
"""

import errno
import os
import sys

from .portable import is_portable

if sys.platform != "linux" or is_portable:
    import tempfile


def memory_file(name: str, nbytes: int) -> int:
    """Return the descriptor of nbytes of anonymous memory.

    Where the system has no such thing, that of a temporary file whose name is removed at once.
    """
    if sys.platform != "linux" or is_portable:
        prefix = f"{name[:50].replace('/', '-')} "  # Lists of open files show it.
        with tempfile.TemporaryFile(prefix=prefix) as file:
            _check_space(file.fileno(), nbytes)
            fd = os.dup(file.fileno())
    else:
        fd = os.memfd_create(name.encode()[:200].decode(errors="ignore"), os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_space(fd: int, nbytes: int) -> None:
    """Raise OSError unless the disk has room: a page that finds none when it is first touched kills the process."""
    disk = os.fstatvfs(fd)
    free = disk.f_bavail * disk.f_frsize
    if nbytes > free:
        raise OSError(errno.ENOSPC, f"{tempfile.gettempdir()} has {free} bytes left")


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of data at offset, however many calls that takes."""
    view = memoryview(data).cast("B")
    while view.nbytes:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
