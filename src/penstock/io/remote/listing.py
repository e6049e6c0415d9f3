"""Remote files by URL, folder or glob."""

import glob
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import AccessError, DataError, MissingFileError
from penstock.io.local.listing import STORE_MARKS
from penstock.io.location import Location, split_chain, without_secrets
from penstock.io.remote import objects, s3
from penstock.io.remote.reader import stat
from penstock.io.remote.retry import RetryPolicy, persist
from penstock.io.remote.session import Session, gather_limited
from penstock.io.selection import Selection, braces_cure

UNFINISHED = ".unfinished.jsonl"
"""An object that is there as long as penstock writes to its folder."""
WHOLE = "manifest.json"
"""An object that is there once some formats are written; others are whole when `UNFINISHED` is gone."""
# How many files' sizes are asked for at once.
_MAX_CONCURRENT = 16


def list_remote(
    url: str,
    selection: Selection,
    storage_options: Mapping[str, Any],
    *,
    retry: RetryPolicy | None = None,
) -> list[Location]:
    """Return what one URL, folder or glob names, sorted by name."""
    policy = retry or RetryPolicy()
    session = Session.share(url, storage_options)
    listing = _list_http if session.is_http else _list_objects
    try:
        found = session.run(lambda: listing(session, url, selection, policy))
    except MissingFileError as error:
        cure = braces_cure(without_secrets(url))
        if not cure:
            raise
        problem = "there is no such file"
        raise MissingFileError(problem, file=without_secrets(url), cure=cure) from error
    finally:
        session.release()
    if not found:
        what = "nothing matches" if _is_glob(url) else f"there are no {selection} in it"
        shown = without_secrets(url)
        raise MissingFileError(what, file=shown, cure=braces_cure(shown) or "Check the URL.")
    found = [replace(one, storage_options=storage_options) for one in found]
    return sorted(found, key=lambda one: one.url)


def _is_glob(url: str) -> bool:
    """Return whether the path of a URL is a pattern; [ may be part of a host, ? starts a query."""
    first = split_chain(url)[0]
    path = first.partition("://")[2].partition("/")[2]
    if first.startswith(("http://", "https://")):
        path = path.partition("?")[0]
    return glob.has_magic(path)


async def _list_http(
    session: Session, url: str, selection: Selection, policy: RetryPolicy
) -> list[Location]:
    if urlsplit(url).path.rstrip("/").endswith(".zarr"):
        return [Location(url, 0, is_directory=True)]  # by its name: HTTP knows no folders
    if _is_glob(url):
        found = await _ask(session, url, policy, "glob", url)
        urls = [one for one in found if not one.endswith("/")]
    elif url.endswith("/"):
        found = await _ask(session, url, policy, "ls", url, detail=False)
        names = {one: one.removeprefix(url) for one in found if one.startswith(url)}
        # An index page also has links to itself in other orders: ?C=S;O=A.
        urls = [one for one, name in names.items() if _is_child(name) and selection.takes(name)]
    else:
        urls = [url]

    def look(one: str) -> Any:
        return lambda: stat(session, one, policy)

    return await gather_limited([look(one) for one in urls], limit=_MAX_CONCURRENT)


def _is_child(name: str) -> bool:
    return bool(name) and "/" not in name and "?" not in name


async def _list_objects(
    session: Session, url: str, selection: Selection, policy: RetryPolicy
) -> list[Location]:
    path = session.strip(url)
    if _is_glob(url):
        found = await _ask(session, url, policy, "glob", path, detail=True)
        await _check_folders(session, url, found, policy)
        return await _locate_all(session, found.values(), policy)
    info = await _ask(session, url, policy, "info", path)
    if info["type"] != "directory":
        return [objects.locate(url, info)]
    if _is_named_store(path):
        return [await _store(session, url, policy)]
    # With folders, since some are Zarr stores.
    how = {} if selection.recursive else {"maxdepth": 1, "withdirs": True}
    found = await _ask(session, url, policy, "find", path, detail=True, **how)
    names = {str(name).removeprefix(path).lstrip("/") for name in found}
    if UNFINISHED in names and WHOLE not in names:
        raise _unfinished(url)
    if not names.isdisjoint(STORE_MARKS):
        return [Location(url, 0, is_directory=True)]
    taken = [one for name, one in found.items() if selection.takes(_last_name(name))]
    return await _locate_all(session, taken, policy)


def _last_name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _is_named_store(path: str) -> bool:
    return path.rstrip("/").endswith(".zarr")


async def _locate_all(
    session: Session, found: Iterable[Mapping[str, Any]], policy: RetryPolicy
) -> list[Location]:
    """Return the files among what was found, and the folders that are Zarr stores by their names."""

    def look(info: Mapping[str, Any]) -> Any:
        return lambda: _store(session, str(session.fs.unstrip_protocol(info["name"])), policy)

    infos = list(found)
    stores = [
        look(info)
        for info in infos
        if info["type"] == "directory" and _is_named_store(info["name"])
    ]
    files = [_locate(session, info) for info in infos if info["type"] != "directory"]
    return files + await gather_limited(stores, limit=_MAX_CONCURRENT)


async def _store(session: Session, url: str, policy: RetryPolicy) -> Location:
    """Return a Zarr store; raise if it was not written to its end. It is not listed: it may have many chunks."""
    if await _is_there(session, url, policy, f"{url.rstrip('/')}/{UNFINISHED}"):
        raise _unfinished(url)
    return Location(url, 0, is_directory=True)


async def _check_folders(
    session: Session, pattern: str, found: Iterable[str], policy: RetryPolicy
) -> None:
    """Raise if a folder with something found was not written to its end, or if there is no bucket.

    (`glob` takes a bucket that is not there for an empty one.)
    """
    fixed = pattern.rpartition("/")[0]
    while _is_glob(fixed):
        fixed = fixed.rpartition("/")[0]
    unstrip = session.fs.unstrip_protocol
    folders = {str(unstrip(str(name).rpartition("/")[0])) for name in found} - {fixed}

    def look(folder: str) -> Any:
        return lambda: _check_folder(session, pattern, folder, policy)

    await gather_limited([look(one) for one in (fixed, *sorted(folders))], limit=_MAX_CONCURRENT)


async def _check_folder(session: Session, pattern: str, folder: str, policy: RetryPolicy) -> None:
    is_begun = await _is_there(session, pattern, policy, f"{folder}/{UNFINISHED}")
    if is_begun and not await _is_there(session, pattern, policy, f"{folder}/{WHOLE}"):
        raise _unfinished(folder)


async def _is_there(session: Session, asked: str, policy: RetryPolicy, url: str) -> bool:
    """Return whether there is an object, as far as this user may see; raise, of `asked`, if there is no bucket."""
    try:
        await _ask(session, asked, policy, "info", session.strip(url))
    except MissingFileError as error:
        if s3.is_about_bucket(error):
            raise
        return False
    except AccessError:  # Some may read objects, and not ask whether others are there.
        return False
    return True


def is_remote_folder(url: str, storage_options: Mapping[str, Any]) -> bool:
    """Return whether a URL is that of a folder, as far as this user may see; over HTTP, none is."""
    policy = RetryPolicy()
    session = Session.share(url, storage_options)
    try:
        if session.is_http or _is_glob(url):
            return False
        found = session.run(lambda: _ask(session, url, policy, "info", session.strip(url)))
        return bool(found["type"] == "directory")
    except (MissingFileError, AccessError):
        return False
    finally:
        session.release()


def _unfinished(url: str) -> DataError:
    return DataError(
        "this folder was never finished: whatever wrote it was interrupted, or is still at it",
        file=without_secrets(url),
        cure="Wait for it, run it again (it starts over, or goes on from there), or remove the folder.",
    )


def _locate(session: Session, info: Mapping[str, Any]) -> Location:
    return objects.locate(str(session.fs.unstrip_protocol(info["name"])), info)


async def _ask(session: Session, url: str, policy: RetryPolicy, *call: Any, **kwargs: Any) -> Any:
    async def attempt() -> Any:
        return await objects.call(session, url, policy, *call, **kwargs)

    return await persist(attempt, policy, file=without_secrets(url))
