"""The connection to remote storage: an fsspec file system and an event loop, shared by its readers.

fsspec keeps a thread and its sockets for as long as the process lives. Here they live in a loop of
our own, which ends with the last reader that uses it.
"""

import asyncio
import hashlib
import os
import pickle
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.core import forking
from penstock.core.ctrl_c import keep_interrupting
from penstock.core.optional import require
from penstock.errors import DataError, MissingFileError
from penstock.io.location import split_chain, without_secrets
from penstock.io.remote import s3

T = TypeVar("T")
Work: TypeAlias = Callable[[], Coroutine[Any, Any, T]]

# What to install for a protocol that fsspec has no code of its own for.
_PACKAGES = {"gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}
_PACKAGES |= {"az": "adlfs", "abfs": "adlfs", "abfss": "adlfs", "sftp": "paramiko"}

_PAGE_NBYTES = 32 << 20  # A page of links; those of a million files take about this much.

_sessions: dict[tuple[Any, ...], "Session"] = {}
# Reentrant, since a reader may be collected, and release its session, at any point.
_lock = forking.rlock()


class Session:
    """A file system of fsspec's on a loop of our own. Get one from `share`, and `release` it."""

    def __init__(self, target: str, options: Mapping[str, Any], key: tuple[Any, ...]) -> None:
        self.pid = os.getpid()
        self.key = key
        self.options = options
        self.num_users = 0
        self._bare: Any = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"penstock-{key[1]}", daemon=True
        )
        try:
            self.fs = _file_system(target, options, self._loop)
        except BaseException:
            self._loop.close()
            raise
        self.is_http = target in ("http", "https")
        self.is_s3 = target in s3.PROTOCOLS
        self._thread.start()

    @classmethod
    def share(cls, url: str, options: Mapping[str, Any]) -> "Session":
        """Return the session for this kind of URL and these options, for `release` after use."""
        first, chain = split_chain(url)
        protocol = first.partition("://")[0]
        # The rest of a chain (zip://x.npy::https://host/a.zip) is part of the file system.
        key = (os.getpid(), protocol, chain, _identity(options))
        with _lock:
            session = _sessions.get(key)
            if session is None:
                session = _sessions[key] = cls(url if chain else protocol, options, key)
            session.num_users += 1
            return session

    def release(self) -> None:
        """Give the session back; the last user to do so ends its thread and its connections."""
        with _lock:
            self.num_users -= 1
            if self.num_users:
                return
            _sessions.pop(self.key, None)
        if self.pid == os.getpid():  # after a fork, the thread exists in the parent only
            self._close()

    def bare_client(self) -> Any:
        """Return a client without any of the options but where its proxy is: for servers that we are sent to."""
        if self._bare is None:
            aiohttp = require("aiohttp", "reading http://", "remote")
            trust_env = bool(self.fs.client_kwargs.get("trust_env"))
            self._bare = aiohttp.ClientSession(loop=self._loop, trust_env=trust_env)
        return self._bare

    def strip(self, url: str) -> str:
        """Return the path that the file system knows `url` by."""
        return str(self.fs._strip_protocol(split_chain(url)[0]))  # noqa: SLF001  as its own url_to_fs does

    async def invoke(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Return what a method of the file system returns; it runs on the loop if it is async, else on a thread."""
        if self.fs.async_impl:
            return await getattr(self.fs, f"_{name}")(*args, **kwargs)
        return await asyncio.to_thread(getattr(self.fs, name), *args, **kwargs)

    def start(self, work: Work[T]) -> "Call[T]":
        """Begin `work` on the loop, and return the `Call` that gives its result or stops it."""
        return Call(self._loop, work)

    def run(self, work: Work[T]) -> T:
        """Return what `work` returns."""
        return self.start(work).result()

    def _close(self) -> None:
        async def finish() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
                client = getattr(self.fs, "_session", None) if self.is_http else None
                for one in (client, self._bare):
                    if one is not None:
                        await one.close()
                if self.is_s3:
                    await s3.close(self.fs)
            finally:
                self._loop.stop()

        self.start(finish)
        # The loop's own thread (a reader was collected there) can't wait for itself: it ends without that.
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)
            if not self._thread.is_alive():
                self.fs = None
                self._loop.close()


class Call(Generic[T]):
    """Work that runs on a loop, as another thread sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[T]) -> None:
        self._loop = loop
        self._task: asyncio.Task[T] | None = None
        self._ended = threading.Event()
        loop.call_soon_threadsafe(self._begin, work)

    def result(self) -> T:
        """Wait for the work, and return what it returns; an interrupt stops the work before it is raised."""
        keep_interrupting()
        try:
            self._ended.wait()
        except BaseException:
            self.cancel()
            # The work may be writing into the caller's memory: that must be over when this raises.
            self._ended.wait(timeout=5)
            raise
        assert self._task is not None  # it began, or it could not have ended
        return self._task.result()

    def cancel(self) -> None:
        """Stop the work; a thread that waits for it gets a CancelledError once it has stopped."""
        self._loop.call_soon_threadsafe(lambda: self._task and self._task.cancel())

    def _begin(self, work: Work[T]) -> None:
        self._task = self._loop.create_task(work())
        self._task.add_done_callback(lambda _: self._ended.set())


async def gather_limited(work: list[Callable[[], Awaitable[T]]], *, limit: int) -> list[T]:
    """Return the results of all calls, at most `limit` running at once; a failure stops the rest."""
    permits = asyncio.Semaphore(limit)

    async def one(call: Callable[[], Awaitable[T]]) -> T:
        async with permits:
            return await call()

    tasks = [asyncio.ensure_future(one(call)) for call in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _identity(options: Mapping[str, Any]) -> Any:
    """Return what tells these options from others, without holding their values in the open."""
    try:
        # Not their repr: that of a secret may hide its value, and two of them would be one.
        text = pickle.dumps(sorted(options.items()))
    except Exception:  # noqa: BLE001  # What can't be pickled may raise anything.
        return tuple(sorted((name, id(value)) for name, value in options.items()))
    return hashlib.blake2b(text).digest()


def _file_system(target: str, options: Mapping[str, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Return a file system of fsspec's for a protocol or a chained URL."""
    protocol = split_chain(target)[0].partition("://")[0]
    purpose = f"reading {protocol}://"
    file = f"{protocol}://" if target == protocol else without_secrets(target)
    fsspec = require("fsspec", purpose, "remote")
    if protocol in ("http", "https"):
        require("aiohttp", purpose, "remote")
    if protocol in s3.PROTOCOLS:
        require("s3fs", purpose, "s3")
    try:
        if target != protocol:
            return fsspec.core.url_to_fs(target, **options)[0]
        cls = fsspec.get_filesystem_class(protocol)
        own_loop = {"loop": loop} if cls.async_impl else {}
        fs = cls(**options, **own_loop, skip_instance_cache=True)
        if protocol in ("http", "https"):
            own = {"response_class": _bounded_response()}
            if options:
                traces = fs.client_kwargs.get("trace_configs") or ()
                own["trace_configs"] = [*traces, _refuse_other_servers()]
            fs.client_kwargs = fs.client_kwargs | own
        if protocol in s3.PROTOCOLS:
            s3.set_up(fs)
        return fs  # noqa: TRY300  # What is above may raise all of these.
    except ImportError as error:
        package = _PACKAGES.get(protocol)
        cure = f"needs {package}: pip install {package}" if package else f"failed: {error}"
        raise ImportError(f"{purpose} {cure}", name=package) from error
    except FileNotFoundError as error:  # Of an archive that a chain leads through.
        raise MissingFileError("there is no such file", file=file, cure="Check the URL.") from error
    except Exception as error:
        if not options:
            problem = f"{purpose} is not possible: {type(error).__name__}: {error}"
            raise DataError(problem, file=file) from error
        # Neither the message nor the cause: options may be secrets.
        raise wrong_options(error, options, file=file) from None


def _bounded_response() -> Any:
    """Return the class of answers that hold no more than a page of links may have: fsspec reads it as a whole."""
    base: Any = require("aiohttp", "reading http://", "remote").ClientResponse

    class BoundedResponse(base):  # type: ignore[misc]  # Its package is optional.
        _body: bytes | None = None

        async def read(self) -> Any:
            body = self._body
            if body is None:
                found = bytearray()
                async for piece in self.content.iter_any():
                    found += piece
                    if len(found) > _PAGE_NBYTES:
                        self.close()
                        raise DataError(
                            f"its list of files has more than {_PAGE_NBYTES >> 20} MB",
                            file=without_secrets(str(self.url)),
                            cure="Name the files, instead of a folder or a glob.",
                        )
                self._body = body = bytes(found)
            return body

    return BoundedResponse


def _refuse_other_servers() -> Any:
    """Return what refuses a page of links that is on another server: fsspec would send it our options, too.

    Files are another matter: of their redirects `http.py` takes care.
    """
    aiohttp = require("aiohttp", "reading http://", "remote")

    async def check(_client: Any, _context: Any, redirect: Any) -> None:
        headers = redirect.response.headers
        target = redirect.url.join(type(redirect.url)(headers.get("Location") or headers["URI"]))
        if target.origin() != redirect.url.origin():
            raise DataError(
                f"its list of files is on another server, {target.host}, which shall not get storage_options",
                file=without_secrets(str(redirect.url)),
                cure="Use the address that it leads to, or name the files.",
            )

    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(check)
    return trace


def wrong_options(error: Exception, options: Mapping[str, Any], *, file: str) -> DataError:
    """Return the error for storage_options that can't be used, with their names and not their values."""
    known = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    which = f"{known[1]!r} is not known" if known else f"{type(error).__name__}"
    names = ", ".join(map(str, options))
    cure = "Check their names and types: see the file system of fsspec for this kind of URL."
    return DataError(f"can't be read with storage_options {names}: {which}", file=file, cure=cure)
