"""The one way from a location to its bytes."""

from typing import TYPE_CHECKING

from penstock.core.lazy import lazy
from penstock.io.local.reader import Access, LocalReader
from penstock.io.location import Location
from penstock.io.reader import Reader

if TYPE_CHECKING:
    from penstock.io.remote import reader as remote
else:
    remote = lazy("penstock.io.remote.reader")  # It brings asyncio and ssl along.


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
            quarter of memory. Who reads many files decides by the sum of their sizes. Where the
            file system cannot, reads go through the cache and are dropped from it afterwards.
        access: What to tell the operating system about buffered reads: `sequential`, `random`, or
            `normal` if it shall guess.

    Takes no memory of its own but for at most 8 MB of aligned buffers shared by all readers.
    """
    if location.is_remote:
        return remote.RemoteReader(location)
    return LocalReader(location, direct=direct, access=access)


def describe_reading(location: Location, *, direct: bool) -> str:
    """Return how the file is read, for `explain()`; a disk that is not known yet is measured for that."""
    if location.is_remote:
        return "read in ranges over the network"
    if not direct:
        return "read through the page cache"
    with LocalReader(location, direct=True) as reader:
        return reader.describe()
