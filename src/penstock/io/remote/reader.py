"""Files behind a URL: ranged reads through fsspec, retried when the network fails."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.core.closing import Closing
from penstock.errors import FileChangedError
from penstock.io.cells import Cells, Sums
from penstock.io.location import Location
from penstock.io.reader import Buffer, Bytes, Group, Range, check_range, coalesce, writable_bytes
from penstock.io.remote import http, objects
from penstock.io.remote.cached_reads import CachedReads
from penstock.io.remote.retry import RetryPolicy, TransientError, persist
from penstock.io.remote.session import Call, Session, gather_limited
from penstock.io.remote.traffic import Traffic, cached_file, traffic_of

# No request asks for more than this, so that a broken connection costs little.
MAX_REQUEST = 8 << 20
# Reading over a gap of this size costs less than another round trip.
MAX_GAP = 256 << 10
# Joined ranges are first read into memory of our own: at most this much a request.
MAX_JOINED = 1 << 20
# How many requests one call of read_ranges has under way at once.
MAX_CONCURRENT = 8


class RemoteReader(Closing):
    """A `Reader` of a file behind a URL. See `open_reader`."""

    def __init__(
        self,
        location: Location,
        *,
        retry: RetryPolicy | None = None,
        under: str = "",
    ) -> None:
        self.location = location
        self.under = under or location.url
        """The URL that a stream knows it by: that of the store, for an object in one."""
        self._retry = retry or RetryPolicy()
        self._lock = threading.Lock()
        self._is_closed = False
        self._calls: set[Call[None]] = set()
        self._session: Session | None = None

    @property
    def size(self) -> int:
        """How many bytes the file has."""
        return self.location.size

    def read_into(self, buffer: Buffer, offset: int) -> None:
        """Fill `buffer` with the bytes from `offset` on."""
        self.read_ranges([Range(offset, buffer)])

    def read_ranges(self, ranges: Sequence[Range], cells: Cells | None = None) -> Sums | None:
        """Fill each range's buffer, several requests at once, near neighbours in one."""
        watchers = traffic_of(self.under)
        kept = cached_file(self.location, watchers)
        if kept is None:
            self._fetch_ranges(ranges, watchers)
        else:
            pieces = [(one.offset, writable_bytes(one.buffer)) for one in ranges]
            for offset, piece in pieces:
                check_range(self.location, offset, piece.size)
            CachedReads(kept, self._fetch_apart, watchers).read(pieces)
        if cells is None:
            return None
        return cells.sums(
            [one.offset for one in ranges], [writable_bytes(one.buffer) for one in ranges]
        )

    def _fetch_apart(self, ranges: Sequence[Range], watchers: Sequence[Traffic]) -> None:
        """Do so without reading over gaps: what is in them may be kept on this machine."""
        self._fetch_ranges(ranges, watchers, gap=0)

    def _fetch_ranges(
        self, ranges: Sequence[Range], watchers: Sequence[Traffic], *, gap: int = MAX_GAP
    ) -> None:
        """Fill each range's buffer over the network."""
        groups = coalesce(ranges, gap=gap, limit=MAX_JOINED)
        for group in groups:
            check_range(self.location, group.start, group.stop - group.start)

        async def read(session: Session) -> None:
            work = [request for group in groups for request in self._requests(session, group)]
            await gather_limited(work, limit=MAX_CONCURRENT)

        if groups:
            self._run(read)
            nbytes = sum(group.stop - group.start for group in groups)
            for one in watchers:
                one.count(net=nbytes)

    def check_unchanged(self) -> None:
        """Raise FileChangedError if the file is not the one that was listed."""

        async def look(session: Session) -> None:
            now = await stat(session, self.location.url, self._retry)
            if (now.size, now.etag) != (self.location.size, self.location.etag):
                problem = "the file was replaced since it was listed"
                cure = "Build the dataset again."
                raise FileChangedError(problem, file=str(self.location), cure=cure)

        self._run(look)

    def close(self) -> None:
        """Release the connection; reads under way are stopped and raise, later ones are refused."""
        with self._lock:
            self._is_closed = True
            session = self._take_idle_session()
            # Cancelled, not waited for: a stalled read might go on for minutes.
            for call in self._calls:
                call.cancel()
        if session is not None:
            session.release()

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.location, self._retry, self.under)

    def _run(self, work: Callable[[Session], Coroutine[Any, Any, None]]) -> None:
        with self._lock:
            if self._is_closed:
                raise ValueError(f"the reader of {self.location} is closed.")
            # After a fork, the session's thread exists in the parent only.
            if self._session is None or self._session.pid != os.getpid():
                self._session = Session.share(self.location.url, self.location.storage_options)
            session = self._session
            call = session.start(lambda: work(session))
            self._calls.add(call)
        try:
            call.result()
        except asyncio.CancelledError as error:
            raise ValueError(f"the reader of {self.location} was closed while it read.") from error
        finally:
            self._finish(call)

    def _finish(self, call: Call[None]) -> None:
        with self._lock:
            self._calls.remove(call)
            session = self._take_idle_session() if self._is_closed else None
        if session is not None:
            session.release()

    def _take_idle_session(self) -> Session | None:
        if self._calls:
            return None
        session, self._session = self._session, None
        return session

    def _requests(self, session: Session, group: Group) -> list[Callable[[], Awaitable[None]]]:
        async def read_joined() -> None:
            data = np.empty(group.stop - group.start, np.uint8)
            await self._fetch(session, data, group.start)
            group.scatter(data)

        def read_piece(piece: Bytes, offset: int) -> Callable[[], Awaitable[None]]:
            return lambda: self._fetch(session, piece, offset)

        if len(group.parts) > 1:
            return [read_joined]
        target = group.parts[0][1]
        return [
            read_piece(target[begin : begin + MAX_REQUEST], group.start + begin)
            for begin in range(0, target.size, MAX_REQUEST)
        ]

    async def _fetch(self, session: Session, target: Bytes, offset: int) -> None:
        """Fill `target`; when the connection breaks, go on after the last byte that came."""
        files = http if session.is_http else objects
        done = 0

        async def attempt() -> None:
            nonlocal done
            try:
                await files.fetch(session, self.location, target[done:], offset + done, self._retry)
            except TransientError as error:
                done += error.num_done
                raise

        await persist(attempt, self._retry, file=str(self.location), offset=offset)


def _rebuild(location: Location, retry: RetryPolicy, under: str) -> RemoteReader:
    return RemoteReader(location, retry=retry, under=under)


async def stat(session: Session, url: str, policy: RetryPolicy) -> Location:
    """Return the size and version of one remote file, trying again as the policy says."""
    files = http if session.is_http else objects

    async def attempt() -> Location:
        found: Location = await files.stat(session, url, policy)
        return found

    found = await persist(attempt, policy, file=str(Location(url, 0)))
    return replace(found, storage_options=session.options)
