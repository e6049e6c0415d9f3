"""Files of any fsspec file system but HTTP: memory, S3, Google Cloud, SFTP, archives."""

import asyncio
import errno
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from penstock.errors import (
    AccessError,
    DataError,
    FileError,
    MissingFileError,
    NotAFileError,
    ReadError,
)
from penstock.io.location import Location, without_secrets
from penstock.io.reader import Bytes
from penstock.io.remote import s3
from penstock.io.remote.retry import RetryPolicy, TransientError
from penstock.io.remote.session import Session

# The names under which file systems state the version of a file, best first.
_VERSION_KEYS = ("ETag", "etag", "md5Hash", "md5", "mtime", "LastModified", "updated", "created")

# Methods that file systems answer from what they listed before.
_LISTINGS = ("info", "ls", "find", "glob")


async def stat(session: Session, url: str, policy: RetryPolicy) -> Location:
    """Return the size and version that the storage states for the file; one try."""
    return locate(url, await call(session, url, policy, "info", session.strip(url)))


def locate(url: str, info: Mapping[str, Any]) -> Location:
    """Return the location of one file from what fsspec says of it."""
    if info.get("type") == "directory":
        cure = "Name the files in it."
        raise NotAFileError("this is a directory", file=without_secrets(url), cure=cure)
    size = info.get("size")
    if not isinstance(size, int):
        cure = "Copy it to a local disk first."
        problem = "the storage does not say how large it is"
        raise DataError(problem, file=without_secrets(url), cure=cure)
    versions = (_text(info[key]) for key in _VERSION_KEYS if info.get(key))
    return Location(url, size, etag=next(versions, None))


def _text(version: Any) -> str:
    """Return a version as text: some file systems have a time as a number in listings, and as an object elsewhere."""
    return str(version.timestamp() if isinstance(version, datetime) else version)


async def fetch(
    session: Session, location: Location, target: Bytes, offset: int, policy: RetryPolicy
) -> None:
    """Fill `target` with the bytes from `offset` on; one try."""
    span = {"start": offset, "end": offset + target.size}
    path = session.strip(location.url)
    if session.is_s3:
        limit = policy.time_limit(target.size)
        try:
            part = s3.fetch_part(session.fs, path, location, target, offset)
            await asyncio.wait_for(part, limit)
        except TransientError:
            raise
        except Exception as error:
            raise _failure(error, str(location)) from error
        return
    data = await call(session, location.url, policy, "cat_file", path, nbytes=target.size, **span)
    if len(data) > target.size:
        problem = f"wanted {target.size} bytes, and the storage gave {len(data)}"
        cure = "It cannot read parts of files: copy this one to a local disk first."
        raise DataError(problem, file=str(location), offset=offset, cure=cure)
    target[: len(data)] = np.frombuffer(data, np.uint8)
    if len(data) < target.size:
        raise TransientError(f"the answer ended after {len(data)} bytes", num_done=len(data))


async def call(
    session: Session,
    url: str,
    policy: RetryPolicy,
    method: str,
    *args: Any,
    nbytes: int = 1,
    **kwargs: Any,
) -> Any:
    """Return what a method of the file system returns, within the policy's time limit for `nbytes`."""
    if method in _LISTINGS:
        session.fs.invalidate_cache()  # What was listed before may have changed since.
    try:
        return await asyncio.wait_for(
            session.invoke(method, *args, **kwargs), policy.time_limit(nbytes)
        )
    except Exception as error:
        raise _failure(error, without_secrets(url)) from error


def _failure(error: Exception, file: str) -> Exception:
    """Return a TransientError if the failure may pass, else the DataError that says what is wrong."""
    if isinstance(error, FileError):
        return error
    found = s3.failure(error, file=file)
    if found is not None:
        return found
    if isinstance(error, FileNotFoundError):
        return MissingFileError("there is no such file", file=file, cure="Check the URL.")
    if isinstance(error, PermissionError):
        cure = "Pass credentials in storage_options."
        return AccessError("the storage refuses to give it", file=file, cure=cure)
    if isinstance(error, IsADirectoryError):
        return NotAFileError("this is a directory", file=file, cure="Name the files in it.")
    if isinstance(error, TimeoutError):
        return TransientError("the storage stalled")
    status = getattr(error, "status", 0)
    if (isinstance(error, OSError) and error.errno != errno.EINVAL) or status >= 500:
        return TransientError(f"{type(error).__name__}: {error}")
    return ReadError(f"reading failed: {type(error).__name__}: {error}", file=file)
