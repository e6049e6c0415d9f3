"""What a stream reads of remote files: over the network, and from the cache on this machine.

Readers are opened in many places, by formats that know nothing of streams. So a stream says which files it reads while
it is open, and each reader looks here whether its file is among them.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.core import forking
from penstock.io.location import Location
from penstock.io.remote.cache import CachedFile, RemoteCache, open_cache
from penstock.io.remote.store import ObjectStore

_watched: dict[str, list["Traffic"]] = {}
_lock = forking.lock()


class Traffic:
    """The bytes that are read of some files while it is open, and the cache that is used for them."""

    def __init__(
        self, locations: Sequence[Location], root: Path | None, budget: int, owner: object
    ) -> None:
        self.net_nbytes = 0
        self.cache_nbytes = 0
        self.cache: RemoteCache | None = None
        if root is not None:
            self.cache = open_cache(root, _objects(locations), budget, owner)
        self._count_lock = threading.Lock()
        self._urls = {one.url for one in locations}
        with _lock:
            for url in self._urls:
                _watched.setdefault(url, []).append(self)

    def count(self, *, net: int = 0, cache: int = 0) -> None:
        """Add bytes that were read."""
        with self._count_lock:
            self.net_nbytes += net
            self.cache_nbytes += cache

    def close(self) -> None:
        """Look no longer."""
        with _lock:
            for url in self._urls:
                left = [one for one in _watched.get(url, ()) if one is not self]
                if left:
                    _watched[url] = left
                else:
                    _watched.pop(url, None)


def _objects(locations: Sequence[Location]) -> list[Location]:
    """Return the files; instead of folders that are read as one thing, such as Zarr stores, what is in them."""
    found = [one for one in locations if not one.is_directory]
    for folder in (one for one in locations if one.is_directory):
        if folder.url.startswith(("http://", "https://")):
            continue  # HTTP can't list it, so that nobody knows how much there is.
        with ObjectStore(folder.url, folder.storage_options) as store:
            found += store.names().values()
    return found


def traffic_of(url: str) -> Sequence[Traffic]:
    """Return who looks at the reads of a file."""
    return _watched.get(url, ())


def cached_file(location: Location, watchers: Sequence[Traffic]) -> CachedFile | None:
    """Return the cache of a file, if one of those who read it has one."""
    for one in watchers:
        if one.cache is not None:
            return one.cache.of(location)
    return None
