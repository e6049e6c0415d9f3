"""A folder, local or behind a URL, as a store of bytes by key: Zarr reads its chunks from one."""

import os
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from penstock.core import forking
from penstock.errors import DataError, MissingFileError, NotAFileError, StreamClosedError
from penstock.io.failures import read_failure
from penstock.io.location import Location, without_secrets
from penstock.io.open import open_reader
from penstock.io.remote import objects
from penstock.io.remote.reader import stat
from penstock.io.remote.retry import RetryPolicy, persist
from penstock.io.remote.session import Session


class _Reads:
    """The reads that are under way: closing waits for them.

    Zarr reads several keys at once, on threads of its own, and leaves the others to themselves after an error.
    """

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._process = os.getpid()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._count = 0
        self._is_closed = False

    def __enter__(self) -> None:
        with self._lock:
            if self._is_closed:
                raise StreamClosedError("the store was closed.")
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            if self._is_closed:
                self._ended.put(None)

    def close(self) -> None:
        with self._lock:
            left = 0 if self._is_closed else self._count
            self._is_closed = True
        # In a forked child there is nobody to wait for.
        for _ in range(left if os.getpid() == self._process else 0):
            self._ended.get()


class LocalKeys:
    """Files under a local folder."""

    def __init__(self, location: Location) -> None:
        self.root = location.url
        self.num_missing = 0
        """How many reads asked for a key that is not there."""
        self._reads = _Reads()

    def get(
        self, key: str, start: int, stop: int | None, *, most: int | None = None
    ) -> bytes | None:
        """Return bytes `start` (negative: from the end) to `stop` of a key, or None if it is not there.

        Raises if they are more than `most`.
        """
        with self._reads:
            return self._get(key, start, stop, most)

    def _get(self, key: str, start: int, stop: int | None, most: int | None) -> bytes | None:
        path = Path(self.root) / key
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self.num_missing += 1
            return None
        except OSError as error:
            raise read_failure(error, file=str(path)) from error
        location = Location(str(path), found.st_size, mtime_ns=found.st_mtime_ns)
        begin, end = _span(found.st_size, start, stop, most, str(path))
        data = bytearray(end - begin)
        try:
            with open_reader(location, direct=False) as reader:
                reader.read_into(data, begin)
        except (MissingFileError, NotAFileError):  # A folder is no key.
            self.num_missing += 1
            return None
        return bytes(data)

    def names(self, prefix: str) -> list[str]:
        """Return the names in a folder."""
        try:
            return sorted(os.listdir(Path(self.root) / prefix))  # noqa: PTH208  names, not paths
        except (FileNotFoundError, NotADirectoryError):
            return []

    def close(self) -> None:
        """Wait for reads that are under way; there are none afterwards."""
        self._reads.close()


class RemoteKeys:
    """Objects under a URL; requests are retried as those of a remote reader."""

    def __init__(self, location: Location) -> None:
        self.root = location.url.rstrip("/")
        self.num_missing = 0
        self._reads = _Reads()
        self._policy = RetryPolicy()
        self._session = Session.share(self.root, location.storage_options)

    def get(
        self, key: str, start: int, stop: int | None, *, most: int | None = None
    ) -> bytes | None:
        """Return bytes `start` (negative: from the end) to `stop` of a key, or None if it is not there.

        Raises if they are more than `most`.
        """
        with self._reads:
            return self._get(key, start, stop, most)

    def _get(self, key: str, start: int, stop: int | None, most: int | None) -> bytes | None:
        url = f"{self.root}/{key}" if key else self.root
        try:
            found = self._session.run(lambda: stat(self._session, url, self._policy))
        except (FileNotFoundError, IsADirectoryError):
            self.num_missing += 1
            return None
        begin, end = _span(found.size, start, stop, most, without_secrets(url))
        data = bytearray(end - begin)
        if data:
            with open_reader(found) as reader:
                reader.read_into(data, begin)
        return bytes(data)

    def names(self, prefix: str) -> list[str]:
        """Return the names in a folder; no names where the storage can't list, as over HTTP."""
        if self._session.is_http:
            return []
        url = f"{self.root}/{prefix}".rstrip("/")
        path = self._session.strip(url)

        async def attempt() -> Any:
            call = objects.call(self._session, url, self._policy, "ls", path, detail=False)
            return await call

        try:
            found = self._session.run(
                lambda: persist(attempt, self._policy, file=without_secrets(url))
            )
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(one.rstrip("/").rpartition("/")[2] for one in found)

    def close(self) -> None:
        """Wait for reads that are under way, and release the connection."""
        self._reads.close()
        self._session.release()


Keys = LocalKeys | RemoteKeys


def open_keys(location: Location) -> Keys:
    """Return a folder as a store of bytes by key."""
    return RemoteKeys(location) if location.is_remote else LocalKeys(location)


def _span(size: int, start: int, stop: int | None, most: int | None, file: str) -> tuple[int, int]:
    begin = max(0, size + start) if start < 0 else min(start, size)
    end = max(begin, size if stop is None else min(stop, size))
    if most is not None and end - begin > most:
        raise DataError(
            f"has {end - begin} bytes to be read at once, where there can be at most {most}",
            file=file,
            cure="It is damaged, or no part of this array: copy it again from its original.",
        )
    return begin, end
