"""A file without a name, for bytes that this process reads back: the system removes it however the process ends."""

import errno
import os
import sys
import tempfile
import threading
from pathlib import Path

from penstock.core.closing import Closing
from penstock.core.descriptors import Descriptor
from penstock.core.system import drop_from_page_cache, is_portable, path_of_open
from penstock.io.failures import write_errors
from penstock.io.local.bounce import PAGE_NBYTES, address
from penstock.io.local.reader import LocalReader
from penstock.io.location import Location
from penstock.io.reader import Bytes


class ScratchFile(Closing):
    """Takes pieces of bytes from many threads, one after the other; all are read past the page cache, when all are in.

    Whole pages are written past the page cache, too, where the file system has direct writes. Through it, the kernel
    would copy every byte, and push out of the cache what others need.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Make the file in `folder`; `name` is what errors call it."""
        self.name = name
        self.nbytes = 0
        """How many bytes there are, with what is being written."""
        self._lock = threading.Lock()
        with write_errors(name), tempfile.TemporaryFile(dir=folder) as file:
            self._file = Descriptor(os.dup(file.fileno()), is_private=True)
        path = path_of_open(self._file.number)
        self._direct = Descriptor(_open_direct(path), is_private=True)
        self._path = path

    def append(self, memory: Bytes) -> int:
        """Write bytes behind all others; return their offset. It is fast for memory of whole pages."""
        with self._lock:
            start = self.nbytes
            self.nbytes += memory.size
        with write_errors(self.name):
            done = self._write_directly(memory, start)
            while done < memory.size:
                done += os.pwrite(self._file.number, memory[done:].data, start + done)
                drop_from_page_cache(self._file.number)
        return start

    def _write_directly(self, memory: Bytes, start: int) -> int:
        """Return how many bytes could be written past the page cache."""
        done = 0
        while self._direct.number >= 0 and done < memory.size:
            if any(
                part % PAGE_NBYTES for part in (address(memory) + done, start + done, memory.size)
            ):
                break
            try:
                done += os.pwrite(self._direct.number, memory[done:].data, start + done)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
                break  # As some file systems say only when they are written to.
        return done

    def reader(self) -> LocalReader:
        """Return a reader of all that is there by now."""
        return LocalReader(Location(self._path, self.nbytes), direct=True)

    def close(self) -> None:
        """Let go of the file, which removes it."""
        self._direct.close()
        self._file.close()


def _open_direct(path: str) -> int:
    """Return a descriptor for direct writes, or -1 where there are none."""
    if sys.platform != "linux" or is_portable:
        return -1
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError:
        return -1  # A file system without direct writes.
