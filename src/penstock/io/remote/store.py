"""A folder behind a URL that is written to: objects by name, each of which appears whole or not at all."""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.closing import Closing
from penstock.errors import FileError, MissingFileError, WriteError
from penstock.io.location import Location, without_secrets
from penstock.io.remote import objects, s3
from penstock.io.remote.retry import RetryPolicy, persist
from penstock.io.remote.session import Session, gather_limited

T = TypeVar("T")
# A part of an upload, of which two are under way at once: what it takes of memory.
_PART_NBYTES = 8 << 20
_MOST_PARTS = 9_000  # S3 takes 10,000.
_MAX_CONCURRENT = 8


class ObjectStore(Closing):
    """Writes, lists and removes what is under a URL; takes at most 16 MB besides what it is given."""

    def __init__(
        self, url: str, storage_options: Mapping[str, Any], *, retry: RetryPolicy | None = None
    ) -> None:
        self.url = url.rstrip("/")
        if not url.partition("://")[2].strip("/"):
            cure = "Write it as in s3://bucket/prefix."
            raise WriteError("this URL names no place to write to", file=url, cure=cure)
        self._policy = retry or RetryPolicy()
        self._session = Session.share(self.url, storage_options)
        self._options = storage_options
        if self._session.is_http:
            self._session.release()
            cure = "Write to a folder, or to an object store (s3://bucket/prefix)."
            raise WriteError("files can't be written over HTTP", file=str(self), cure=cure)

    def __str__(self) -> str:
        return without_secrets(self.url)

    def names(self) -> dict[str, Location]:
        """Return all that is there, by name: what follows the URL and a slash."""
        path = self._session.strip(self.url).rstrip("/")
        try:
            found = self._run(lambda: self._ask("find", path, detail=True), self.url)
        except MissingFileError as error:
            if s3.is_about_bucket(error):  # It must be there; a prefix need not.
                raise _unwritten(error, str(self)) from error
            return {}
        except FileError as error:
            raise _unwritten(error, str(self)) from error
        listed: dict[str, Location] = {}
        for name, info in found.items():
            inner = str(name).removeprefix(path).lstrip("/")
            if str(name) == path:
                cure = "Choose another path."
                raise WriteError("this is an object, not a folder", file=str(self), cure=cure)
            if inner and not str(name).endswith("/"):  # Consoles mark folders by such objects.
                listed[inner] = self._located(inner, info)
        return listed

    def _located(self, name: str, info: Mapping[str, Any]) -> Location:
        found = objects.locate(f"{self.url}/{name}", info)
        return Location(found.url, found.size, etag=found.etag, storage_options=self._options)

    def is_same(self, before: Location, now: Location | None) -> bool:
        """Return whether what is listed now is what was there before."""
        if now is None or before.size != now.size:
            return False
        # Other file systems state versions in one way in listings, and in another of single files.
        return not self._session.is_s3 or before.etag == now.etag

    def read(self, name: str, *, most: int) -> bytes | None:
        """Return an object's bytes, or None if it is not there, or larger than `most`."""
        path = self._session.strip(f"{self.url}/{name}")
        try:
            info = self._run(lambda: self._ask("info", path), f"{self.url}/{name}")
            size = self._located(name, info).size
            if not 0 < size <= most:
                return b"" if size == 0 else None
            part = {"start": 0, "end": size, "nbytes": size}
            found = self._run(lambda: self._ask("cat_file", path, **part), f"{self.url}/{name}")
            return bytes(found)
        except (MissingFileError, IsADirectoryError):
            return None

    def put(self, name: str, data: bytes) -> None:
        """Write an object in one step, in place of one that was there."""
        self._written(name, lambda path: self._ask("pipe_file", path, data))

    def put_file(self, name: str, file: Path) -> Location:
        """Copy a file of this machine there; the object appears when all of it is there. Returns what is there now."""
        size = file.stat().st_size
        more: dict[str, Any] = {}
        if self._session.is_s3:
            part = max(_PART_NBYTES, -(-size // _MOST_PARTS))
            more = {"chunksize": part, "max_concurrency": 2}
        self._written(
            name, lambda path: self._ask("put_file", str(file), path, nbytes=size, **more)
        )
        return self._located(name, self._written(name, lambda path: self._ask("info", path)))

    def _written(self, name: str, put: Callable[[str], Awaitable[T]]) -> T:
        file = f"{self}/{name}"
        path = self._session.strip(f"{self.url}/{name}")
        try:
            return self._run(lambda: put(path), f"{self.url}/{name}")
        except FileError as error:
            raise _unwritten(error, file) from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that are not there are none that could be left."""
        paths = [self._session.strip(f"{self.url}/{name}") for name in names]

        async def each(path: str) -> None:
            with contextlib.suppress(MissingFileError):
                await self._ask("rm_file", path)

        async def all_of_them() -> None:
            await gather_limited([partial(each, path) for path in paths], limit=_MAX_CONCURRENT)

        if paths:
            try:
                self._run(all_of_them, self.url)
            except FileError as error:
                raise _unwritten(error, str(self)) from error

    async def _ask(self, *call: Any, **kwargs: Any) -> Any:
        return await objects.call(self._session, self.url, self._policy, *call, **kwargs)

    def _run(self, attempt: Callable[[], Awaitable[T]], url: str) -> T:
        async def work() -> T:
            return await persist(attempt, self._policy, file=without_secrets(url))

        return self._session.run(work)

    def close(self) -> None:
        """Release the connection."""
        self._session.release()


def _unwritten(error: FileError, file: str) -> WriteError:
    """Return the WriteError for what a failed write, or the look at a target before it, was told."""
    if isinstance(error, WriteError):
        return error
    problem = error.problem.replace("reading failed", "it failed")
    return WriteError(f"it can't be written: {problem}", file=file, cure=error.cure)
