"""What S3 has of its own: parts of objects straight into the caller's memory, the version of each part, its errors.

s3fs brings the client, its options and credentials. Its own reads are not used: they hold a whole answer in memory, and
do not tell which version of the object it is of.
"""

import functools
import re
from typing import Any

import numpy as np

from penstock.core.optional import require
from penstock.errors import AccessError, DataError, FileChangedError, MissingFileError
from penstock.io.location import Location
from penstock.io.reader import Bytes
from penstock.io.remote.retry import TransientError

PROTOCOLS = ("s3", "s3a")
_MAX_CONNECTIONS = 32  # Several streams share one client; botocore's own limit is 10.
_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give "
    "storage_options={'key': ..., 'secret': ...}; for public data, storage_options={'anon': True}."
)
# What S3 says of who asks, rather than of what is asked for.
_REFUSED = {
    "AccessDenied", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId",
    "InvalidToken", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "TokenRefreshRequired", "401", "403",
}  # fmt: skip
_ELSEWHERE = {"PermanentRedirect", "301", "IllegalLocationConstraintException"}
_PASSING = {
    "SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "RequestTimeoutException", "OperationAborted",
    "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequestsException", "429",
}  # fmt: skip
_OF_CONNECTIONS = {
    "botocore.HTTPClientError", "botocore.ConnectionError", "botocore.ResponseParserError", "aiohttp.ClientError",
    "botocore.IncompleteReadError", "httpx.TransportError",
}  # fmt: skip
_CHUNK_NBYTES = 1 << 18
_NO_BUCKET = "there is no bucket"
_TOTAL = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


def set_up(fs: Any) -> None:
    """Set a new file system of s3fs up for us.

    When to try again is left to us, unless the user's options say how: else each layer would, and wait, in turn. What
    botocore knows of all of AWS (1 MB of JSON) is read once a process: a client then takes 10 ms, not 100.
    """
    if fs.session is None:
        fs.session = require("aiobotocore.session", "reading s3://", "s3").AioSession(**fs.kwargs)
        fs.session.register_component("data_loader", _loader())
    retries = {"retries": {"total_max_attempts": 1}, "max_pool_connections": _MAX_CONNECTIONS}
    fs.config_kwargs = retries | dict(fs.config_kwargs or {})
    fs.retries = 1


@functools.cache
def _loader() -> Any:
    return require("botocore.loaders", "reading s3://", "s3").create_loader()


async def close(fs: Any) -> None:
    """Close the connections; s3fs would leave them to the garbage collector."""
    creator = getattr(fs, "_s3creator", None)
    if creator is not None:
        await creator.__aexit__(None, None, None)
        fs._s3 = fs._s3creator = None  # noqa: SLF001  They are of no use any more.


async def fetch_part(fs: Any, path: str, location: Location, target: Bytes, offset: int) -> None:
    """Fill `target` with the bytes from `offset` on; one try. A TransientError says how many bytes came before it."""
    bucket, key, version = fs.split_path(path)
    done = 0
    try:
        answer = await fs._call_s3(  # noqa: SLF001  as its own reads do
            "get_object",
            Bucket=bucket,
            Key=key,
            Range=f"bytes={offset}-{offset + target.size - 1}",
            **({"VersionId": version} if version else {}),
        )
        body = answer["Body"]
        try:
            _check_part(answer, location, offset)
            while chunk := await body.read(_CHUNK_NBYTES):
                if done + len(chunk) > target.size:
                    cure = "Copy it to a local disk first, or use storage that knows Range."
                    problem = "the storage gives more than the part that was asked for"
                    raise DataError(problem, file=str(location), offset=offset, cure=cure)
                target[done : done + len(chunk)] = np.frombuffer(chunk, np.uint8)
                done += len(chunk)
        finally:
            body.close()
    except Exception as error:
        problem_found = failure(error, file=str(location))
        if isinstance(problem_found, TransientError):
            problem_found.num_done = done
        if problem_found is not None and problem_found is not error:
            raise problem_found from error
        raise
    if done < target.size:
        raise TransientError(f"the answer ended after {done} bytes", num_done=done)


def _check_part(answer: Any, location: Location, offset: int) -> None:
    """Raise unless the answer is this part of the very object that was listed."""
    file, etag = str(location), answer.get("ETag")
    if location.etag and etag and etag.strip('"') != location.etag.strip('"'):
        problem = "the object was replaced since it was listed"
        raise FileChangedError(problem, file=file, offset=offset, cure="Build the dataset again.")
    found = _TOTAL.match(answer.get("ContentRange") or "")
    if found is None or int(found[1]) != offset:
        if offset == 0 and answer.get("ContentLength") == location.size:
            return  # The whole object was asked for anyway.
        cure = "Copy it to a local disk first, or use storage that knows Range."
        raise DataError("the storage can't give parts of objects", file=file, cure=cure)
    if int(found[3]) != location.size:
        problem = f"the object had {location.size} bytes when it was listed, and has {found[3]} now"
        raise FileChangedError(problem, file=file, offset=offset, cure="Build the dataset again.")


def failure(error: BaseException, *, file: str) -> Exception | None:
    """Return what an error of S3's means: a TransientError, or one that says the cure; None for errors of others."""
    code, status = _code(error)
    name = type(error).__name__
    bucket = file.partition("://")[2].partition("/")[0]
    if name in ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError"):
        return AccessError("there are no credentials to read it with", file=file, cure=_CREDENTIALS)
    if name in ("ProfileNotFound", "ConfigParseError", "InvalidRegionError", "NoRegionError"):
        cure = "Check AWS_PROFILE, AWS_REGION and ~/.aws, or give storage_options."
        return AccessError(f"AWS is not set up for it: {error}", file=file, cure=cure)
    if code == "NoSuchBucket":
        cure = "Check the bucket's name, and AWS_ENDPOINT_URL or storage_options['endpoint_url']."
        return MissingFileError(f"{_NO_BUCKET} {bucket!r}", file=file, cure=cure)
    if code in ("InvalidRange", "416"):
        problem = "the object has shrunk since it was listed"
        return FileChangedError(problem, file=file, cure="Build the dataset again.")
    if code in _REFUSED:
        return AccessError(f"the storage refuses it ({code})", file=file, cure=_CREDENTIALS)
    if code in _ELSEWHERE:
        cure = "Set AWS_REGION, or storage_options={'client_kwargs': {'region_name': ...}}."
        return DataError(f"bucket {bucket!r} is in another region", file=file, cure=cure)
    if code == "InvalidObjectState":
        cure = "Restore it from its archive first."
        return AccessError("the object is archived", file=file, cure=cure)
    if code in _PASSING or status >= 500:
        return TransientError(f"{code or 'HTTP'} {status or ''}".strip())
    if _is_of_connection(error):
        return TransientError(f"{name}: {error}")
    return None


def is_about_bucket(error: MissingFileError) -> bool:
    """Return whether it is the bucket that is missing, not only an object in it."""
    return error.problem.startswith(_NO_BUCKET)


def _code(error: BaseException | None) -> tuple[str, int]:
    """Return the code and the HTTP status of the answer that an error was made of; '' and 0 if there was none."""
    for _ in range(8):  # An error may be its own cause.
        if error is None:
            break
        answer = getattr(error, "response", None)
        if isinstance(answer, dict) and isinstance(answer.get("Error"), dict):
            status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0
            return str(answer["Error"].get("Code", "")), int(status)
        error = error.__cause__
    return "", 0


def _is_of_connection(error: BaseException) -> bool:
    """Return whether a connection failed, or what came over it can't be an answer."""
    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__}
    return bool(kinds & _OF_CONNECTIONS)
