"""A folder, local or behind a URL, as a store of bytes by key: Zarr reads its chunks from one."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np

from penstock.core import forking
from penstock.core.read_count import count_read
from penstock.errors import DataError, FileChangedError, StreamClosedError
from penstock.io.failures import read_failure
from penstock.io.location import Location, without_secrets
from penstock.io.reader import Bytes, short_read
from penstock.io.remote import objects
from penstock.io.remote.reader import RemoteReader
from penstock.io.remote.reader import stat as remote_stat
from penstock.io.remote.retry import RetryPolicy, persist
from penstock.io.remote.session import Session

Room = Callable[[int], Bytes]
"""Gives memory for so many bytes."""


def _new(nbytes: int) -> Bytes:
    return np.empty(nbytes, np.uint8)


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
        data = self.read(key, start, stop, _new, most=most)
        return None if data is None else data.tobytes()

    def read(
        self, key: str, start: int, stop: int | None, room: Room, *, most: int | None = None
    ) -> Bytes | None:
        """Return the same in memory from `room`.

        Raises if they are more than `most`.
        """
        with self._reads:
            return self._read(f"{self.root}/{key}", start, stop, room, most)

    def _read(
        self, path: str, start: int, stop: int | None, room: Room, most: int | None
    ) -> Bytes | None:
        try:
            # O_NONBLOCK: opening a pipe must not wait for someone to write to it.
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            self.num_missing += 1
            return None
        except OSError as error:
            raise read_failure(error, file=path) from error
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):  # A folder is no key.
                self.num_missing += 1
                return None
            begin, end = _span(found.st_size, start, stop, most, path)
            data = room(end - begin)
            location = Location(path, found.st_size, mtime_ns=found.st_mtime_ns)
            _fill(handle, data, begin, location)
        finally:
            os.close(handle)
        return data

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
        self._under = location.url
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
        data = self.read(key, start, stop, _new, most=most)
        return None if data is None else data.tobytes()

    def read(
        self, key: str, start: int, stop: int | None, room: Room, *, most: int | None = None
    ) -> Bytes | None:
        """Return the same in memory from `room`.

        Raises if they are more than `most`.
        """
        with self._reads:
            return self._read(f"{self.root}/{key}" if key else self.root, start, stop, room, most)

    def _read(
        self, url: str, start: int, stop: int | None, room: Room, most: int | None
    ) -> Bytes | None:
        try:
            found = self._session.run(lambda: remote_stat(self._session, url, self._policy))
        except (FileNotFoundError, IsADirectoryError):
            self.num_missing += 1
            return None
        begin, end = _span(found.size, start, stop, most, without_secrets(url))
        data = room(end - begin)
        if data.size:
            with RemoteReader(found, under=self._under) as reader:
                reader.read_into(data, begin)
        return data

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


def _fill(handle: int, data: Bytes, start: int, location: Location) -> None:
    """Fill `data` with the bytes from `start` on of a file that must not change meanwhile."""
    done = 0
    while done < data.size:
        try:
            got = os.preadv(handle, [data[done:].data], start + done)
        except OSError as error:
            raise read_failure(error, file=location.url, offset=start + done) from error
        if not got:
            raise short_read(location, start + done, data.size - done, 0)
        done += got
    count_read(done)
    now = os.fstat(handle)
    if (now.st_size, now.st_mtime_ns) != (location.size, location.mtime_ns):
        raise FileChangedError(
            "the file was written to while it was read",
            file=location.url,
            cure="Wait until whatever writes it has finished, then start again.",
        )
