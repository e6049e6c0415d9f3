"""Files over HTTP: sizes, versions, and parts of files straight into the caller's memory.

fsspec brings the session and its options. Its own reads are not used: they hold a whole answer in
memory, even if the server sends the whole file whatever part was asked for.
"""

import asyncio
import re
from typing import Any

import numpy as np

from penstock.core.optional import require
from penstock.errors import AccessError, DataError, FileChangedError, MissingFileError
from penstock.io.location import Location, without_secrets
from penstock.io.reader import Bytes
from penstock.io.remote.retry import RetryPolicy, TransientError
from penstock.io.remote.session import Session, wrong_options

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")
# Worth another try besides 5xx: request timeout, too early, too many requests.
_PASSING = (408, 425, 429)
_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 10
_NOT_IMPLEMENTED = (405, 501)


async def stat(session: Session, url: str, policy: RetryPolicy) -> Location:
    """Return the size and version that the server states for the file."""
    head = await _headers_of(session, "HEAD", url, {}, policy)
    size = None if head is None else _number(head.get("Content-Length"))
    if head is None or size is None or head.get("Content-Encoding", "identity") != "identity":
        # HEAD is not supported, or states no size: a GET of the first byte states the size of the whole file.
        head = await _headers_of(session, "GET", url, {"Range": "bytes=0-0"}, policy)
        total = _CONTENT_RANGE.match((head or {}).get("Content-Range", ""))
        size = _number(total[3]) if total else None
    if head is None or size is None:
        cure = "Download it, or use a server that states Content-Length."
        raise DataError("the server does not say how large it is", file=_name(url), cure=cure)
    return Location(url, size, etag=_version(head))


async def fetch(
    session: Session, location: Location, target: Bytes, offset: int, policy: RetryPolicy
) -> None:
    """Fill `target` with the bytes from `offset` on; one try."""
    headers = {"Range": f"bytes={offset}-{offset + target.size - 1}"}
    done = 0
    try:
        async with await _request(
            session, "GET", location.url, headers, policy, target.size
        ) as response:
            _check_status(response, location.url)
            _check_part(response, location, offset, target.size)
            async for chunk in response.content.iter_any():
                if done + len(chunk) > target.size:
                    raise _ignores_ranges(location)  # noqa: TRY301  it passes _failure unchanged
                target[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                done += len(chunk)
    except Exception as error:  # noqa: BLE001  # It is raised, as one of ours.
        problem = _failure(error, location.url, session)
        if isinstance(problem, TransientError):
            problem.num_done = done
        raise problem from _shown_cause(error)
    if done < target.size:
        raise TransientError(f"the answer ended after {done} bytes", num_done=done)


def _failure(error: Exception, url: str, session: Session) -> Exception:
    """Return a TransientError if the failure may pass, else the error that says what is wrong."""
    aiohttp = require("aiohttp", "reading http://", "remote")
    if isinstance(error, TransientError | DataError):
        return error
    if isinstance(error, aiohttp.InvalidURL):
        return DataError("this is not a valid URL", file=_name(url), cure="Check its spelling.")
    if isinstance(error, aiohttp.ClientSSLError):
        cure = "Check the server's certificate, and the date of this machine."
        return DataError(f"no secure connection: {error}", file=_name(url), cure=cure)
    if isinstance(error, asyncio.TimeoutError):
        return TransientError("the server stalled")
    if isinstance(error, aiohttp.ClientError | OSError):
        return TransientError(f"{type(error).__name__}: {error}")
    if isinstance(error, TypeError | ValueError):  # Of options that aiohttp does not take.
        return wrong_options(error, session.options, file=_name(url))
    return error


def _shown_cause(error: Exception) -> Exception | None:
    """Return what an error may be raised from: not one whose text may hold a secret of the options."""
    is_ours = isinstance(error, TransientError | DataError)
    return None if isinstance(error, TypeError | ValueError) and not is_ours else error


async def _headers_of(
    session: Session, method: str, url: str, headers: dict[str, str], policy: RetryPolicy
) -> Any:
    """Return the answer's headers, or None if the server does not know the method."""
    try:
        async with await _request(session, method, url, headers, policy, 1) as response:
            if method == "HEAD" and response.status in _NOT_IMPLEMENTED:
                return None
            # Signed URLs are often good for GET only.
            if method == "HEAD" and response.status in (401, 403):
                return None
            _check_status(response, url)
            return response.headers
    except Exception as error:  # noqa: BLE001  # It is raised, as one of ours.
        raise _failure(error, url, session) from _shown_cause(error)


async def _request(
    session: Session,
    method: str,
    url: str,
    headers: dict[str, str],
    policy: RetryPolicy,
    nbytes: int,
) -> Any:
    aiohttp = require("aiohttp", "reading http://", "remote")
    timeout = aiohttp.ClientTimeout(
        total=policy.time_limit(nbytes),
        sock_connect=policy.stall_timeout,
        sock_read=policy.stall_timeout,
    )
    yarl = require("yarl", "reading http://", "remote")
    # Not compressed: the offsets are those of the file itself.
    headers = {"Accept-Encoding": "identity", **headers}
    target = session.fs.encode_url(url)
    target = target if hasattr(target, "origin") else yarl.URL(target)
    home = target.origin()
    for _ in range(_MOST_REDIRECTS):
        if target.origin() == home:
            client = await session.fs.set_session()
            options = dict(session.fs.kwargs)
            options["headers"] = {**options.get("headers", {}), **headers}
        else:
            # Whoever we were sent to gets no header, cookie or password that was meant for the first server.
            client, options = session.bare_client(), {"headers": headers}
        answer = await client.request(
            method, target, timeout=timeout, **{**options, "allow_redirects": False}
        )
        where = answer.headers.get("Location")
        if answer.status not in _REDIRECTS or where is None:
            return answer
        answer.release()
        target = _followed(target, where, url)
    raise _astray(url, "in a circle")


def _followed(target: Any, where: str, url: str) -> Any:
    """Return the address that an answer leads to."""
    yarl = require("yarl", "reading http://", "remote")
    try:
        given = yarl.URL(where)
        found = target.join(given)
    except ValueError:
        found = None
    is_cut = found is not None and bool(given.scheme) and not given.host
    if found is None or is_cut or found.scheme not in ("http", "https") or not found.host:
        raise _astray(url, "to no web address")
    return found


def _astray(url: str, where: str) -> DataError:
    cure = "Name the address of the file itself."
    return DataError(f"the server redirects {where}", file=_name(url), cure=cure)


def _check_status(response: Any, url: str) -> None:
    status, file = int(response.status), _name(url)
    if status < 400:
        return
    if status in (404, 410):
        problem = f"there is no such file (HTTP {status})"
        raise MissingFileError(problem, file=file, cure="Check the URL.")
    if status in (401, 403):
        cure = "Pass credentials in storage_options, or renew a signed URL."
        raise AccessError(f"the server refuses to give it (HTTP {status})", file=file, cure=cure)
    if status == 416:
        raise FileChangedError("the file has shrunk since it was listed (HTTP 416)", file=file)
    if status in _PASSING or status >= 500:
        after = _number(response.headers.get("Retry-After")) or 0
        raise TransientError(f"HTTP {status} {response.reason}", retry_after=float(after))
    raise DataError(f"the server answered HTTP {status} {response.reason}", file=file)


def _check_part(response: Any, location: Location, offset: int, nbytes: int) -> None:
    """Raise unless the answer is this part of the very file that was listed."""
    headers, file = response.headers, str(location)
    version = _version(headers)
    if location.etag and version and version != location.etag:
        cure = "Build the dataset again."
        raise FileChangedError("the file was replaced on the server", file=file, cure=cure)
    if headers.get("Content-Encoding", "identity") != "identity":
        cure = "Turn compression off on the server, or download the file."
        raise DataError("the server sends it compressed, unasked", file=file, cure=cure)
    if response.status != 206:
        if offset == 0 and nbytes == location.size == _number(headers.get("Content-Length")):
            return  # the whole file was asked for anyway
        raise _ignores_ranges(location)
    found = _CONTENT_RANGE.match(headers.get("Content-Range", ""))
    if not found or _number(found[1]) != offset:
        raise _ignores_ranges(location)
    if found[3] not in ("*", str(location.size)):
        change = f"it had {location.size} bytes and has {found[3]} now"
        raise FileChangedError(f"the file changed after it was listed: {change}", file=file)


def _ignores_ranges(location: Location) -> DataError:
    return DataError(
        "the server ignores Range requests, so that no part of the file can be read by itself",
        file=str(location),
        cure="Download the file first, or serve it with a server that knows Range.",
    )


def _version(headers: Any) -> str | None:
    """Return what tells this version of the file from another."""
    version = headers.get("ETag") or headers.get("Last-Modified")
    return None if version is None else str(version).removeprefix("W/")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _name(url: str) -> str:
    return without_secrets(url)
