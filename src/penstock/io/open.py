"""Opening a file: the one way from a location to its bytes."""

from typing import TYPE_CHECKING

from penstock.core.lazy import lazy
from penstock.io.inner import InnerFile
from penstock.io.local import reader as local
from penstock.io.local.reader import Access, LocalReader
from penstock.io.location import Location
from penstock.io.reader import Reader, read_bytes

if TYPE_CHECKING:
    from penstock.io.remote import reader as remote
else:
    remote = lazy("penstock.io.remote.reader")  # It imports asyncio and ssl.


def open_reader(
    location: Location,
    *,
    direct: bool | None = None,
    access: Access = "normal",
) -> Reader:
    """Return a reader of the file; nothing is opened before the first read.

    Args:
        location: What to read, from `expand`.
        direct: Whether large reads go past the page cache. None: if the file is larger than a
            quarter of memory. A caller that reads many files decides by the sum of their sizes.
            Where the file system has no direct reads, the page cache is used, and what was read is
            dropped from it afterwards.
        access: What to tell the operating system about buffered reads: `sequential`, `random`, or
            `normal` to let it guess.

    A local reader takes no memory of its own but for at most 8 MB of aligned buffers, which all of
    them share.
    """
    if isinstance(location, InnerFile) and location.open is not None:
        return location.open(location)
    if location.is_remote:
        return remote.RemoteReader(location)
    return LocalReader(location, direct=direct, access=access)


def read_start(location: Location, nbytes: int) -> bytes:
    """Return the first `nbytes` bytes of a file, or all if it has fewer: for the headers of many files."""
    if location.is_remote:
        with open_reader(location) as reader:
            return read_bytes(reader, 0, min(nbytes, location.size))
    return local.read_start(location, nbytes)


def describe_reading(location: Location, *, direct: bool) -> str:
    """Return how the file is read, for `explain()`; a disk that was not measured yet is measured now."""
    if location.is_remote:
        return "read in ranges over the network"
    if not direct:
        return "read through the page cache"
    with LocalReader(location, direct=True) as reader:
        return reader.describe()
