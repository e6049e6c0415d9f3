"""From what a user writes (a path, a list, a glob, a folder, a URL) to the files that it names."""

import contextlib
import copy
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from penstock.core.arguments import at_home
from penstock.core.lazy import lazy
from penstock.errors import DataError, warn_user
from penstock.io.local.listing import list_local
from penstock.io.location import Location, is_url, without_secrets
from penstock.io.selection import Selection

if TYPE_CHECKING:
    from penstock.io.remote import listing as remote_listing
    from penstock.io.remote import session as remote_session
else:
    remote_listing = lazy("penstock.io.remote.listing")  # They import asyncio and ssl.
    remote_session = lazy("penstock.io.remote.session")

PathLike: TypeAlias = str | os.PathLike[str]
_CUT_URL = re.compile(r"(s3a?|gc?s|az|abfss?|hf|https?|memory):/[^/]")


def expand(
    paths: PathLike | Iterable[PathLike],
    *,
    suffixes: Collection[str] = (),
    recursive: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    skipped: list[Exception] | None = None,
) -> list[Location]:
    """Return the files that `paths` names, each once, with their sizes and versions; warns of a path that comes twice.

    What a glob or a folder holds comes sorted by name; a list keeps the order it was written in,
    since the rows of other files may be aligned with it. Nothing is read but names and sizes.

    Args:
        paths: A path, a glob (`**` for any depth), a folder, a URL, or several of these.
        suffixes: Which files of a folder to take, such as `(".npy",)`; all of them if empty. Files
            whose names start with `.` or `_` (`.git`, `_SUCCESS`) are no data, and never taken.
        recursive: Whether to look into the folders of a folder too.
        storage_options: For URLs: what fsspec needs to know, such as credentials.
        skipped: A list for the errors of paths that do not exist or may not be read; the other paths
            are returned. Without a list, or if no other path is left, the first error is raised.

    Raises:
        MissingFileError: Nothing matches, or a path does not exist.
        AccessError: A file or folder may not be read.
        ImportError: A URL needs a package that is not installed; the message has the command.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.npy", "a.npy", "notes.txt"):
    ...     _ = (folder / name).write_bytes(b"1234")
    >>> [(file.name, file.size) for file in expand(folder, suffixes=(".npy",))]
    [('a.npy', 4), ('b.npy', 4)]
    >>> [file.name for file in expand([folder / "b.npy", folder / "*.npy"])]
    ['b.npy', 'a.npy']
    """
    options = own_options(storage_options)
    missed: list[DataError] | None = None if skipped is None else []
    selection = Selection(tuple(suffix.lower() for suffix in suffixes), recursive, missed)
    found: dict[str, Location] = {}
    named: Counter[str] = Counter()
    for path in _each(paths):
        local = _local_path(path)
        named[local or path] += 1
        try:
            some = (
                remote_listing.list_remote(path, selection, options)
                if local is None
                else list_local(local, selection)
            )
        except DataError as error:
            selection.missed(error)
            continue
        for location in some:
            found.setdefault(location.url, location)
    if missed and not found:
        raise missed[0]
    if skipped is not None and missed is not None:
        skipped += missed
    if not found:
        raise ValueError("paths must name at least one file, got an empty list.")
    _warn_of_repeats(named)
    return list(found.values())


def _warn_of_repeats(named: Counter[str]) -> None:
    """Say that a path which is named several times is read once: somebody may have wanted its rows as often."""
    again = [path for path, count in named.items() if count > 1]
    if again:
        more = f" (and {len(again) - 1} other paths)" if len(again) > 1 else ""
        warn_user(
            f"{without_secrets(again[0])} is named {named[again[0]]} times{more}, and is read once. For its rows as "
            "often, put datasets one after the other: ps.concatenate(ds, ds)."
        )


@contextlib.contextmanager
def connected(
    paths: PathLike | Iterable[PathLike], storage_options: Mapping[str, Any] | None
) -> Iterator[None]:
    """Keep the connections to URLs meanwhile: else each of their files would be opened over one of its own."""
    with contextlib.ExitStack() as stack:
        is_one = isinstance(paths, str | os.PathLike)
        # A generator is left to whoever goes through it; that `paths` is wrong, `expand` says.
        several = paths if isinstance(paths, list | tuple) else ()
        urls = [one for one in ([paths] if is_one else several) if isinstance(one, str)]
        for url in (one for one in urls if is_url(one) and _local_path(one) is None):
            with contextlib.suppress(DataError):  # It is raised when the file is looked for.
                session = remote_session.Session.share(url, own_options(storage_options))
                stack.callback(session.release)
        yield


def is_folder(paths: PathLike | Iterable[PathLike]) -> bool:
    """Return whether this is one path, of a folder on this machine; False where this user may not look."""
    return isinstance(paths, str | os.PathLike) and os.path.isdir(at_home(paths))  # noqa: PTH112


def is_remote_folder(url: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Return whether a URL is that of a folder that can be listed, as far as this user may see."""
    return remote_listing.is_remote_folder(url, own_options(storage_options))


def remote_target(path: PathLike) -> str:
    """Return the URL that something is to be written to, or '' if `path` is one on this machine."""
    text: object = os.fspath(path)
    if not isinstance(text, str) or not text:
        return ""
    if not isinstance(path, str) and _CUT_URL.match(text):
        raise ValueError(
            f"a URL must be given as a str, since a Path takes a slash out of it: got {text!r}."
        )
    return text if _local_path(text) is None else ""


def local_target(path: PathLike) -> PathLike:
    """Return the path that a file:// URL means; any other path as it is."""
    is_one = isinstance(path, str) and path.startswith(("file://", "local://"))
    return _local_path(str(path)) or path if is_one else path


def own_options(options: object) -> Mapping[str, Any]:
    """Return a copy, which later changes of the user's dict do not reach."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise TypeError(f"storage_options must be a dict of what fsspec needs to know, got {kind}.")
    try:
        return copy.deepcopy(dict(options))
    except Exception:  # noqa: BLE001  # An open session, say, can't be copied: it is shared.
        return dict(options)


def _each(paths: object) -> list[str]:
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if isinstance(paths, bytes) or not isinstance(paths, Iterable):
        raise TypeError(f"paths must be a path or a list of paths, got {type(paths).__name__}.")
    # Sorted, since the order of a set differs from run to run.
    if isinstance(paths, set | frozenset):
        paths = sorted(paths, key=os.fspath)
    return [_text(path) for path in paths]


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"a path must be a str or a pathlib.Path, got {text!r}.")
    if not text or "\0" in text:
        raise ValueError(f"a path must not be empty or hold a null byte, got {text!r}.")
    return text


def _local_path(path: str) -> str | None:
    """Return the absolute local path that is meant, or None if it is the URL of a remote file."""
    for scheme in ("file://", "local://"):
        if path.startswith(scheme):
            path = path.removeprefix(scheme).removeprefix("localhost")
            # pathlib writes a space as %20 into a URL, fsspec leaves it as it is.
            path = path if os.path.lexists(path) else unquote(path)
    if is_url(path) and not os.path.lexists(path):  # a local name may contain ::
        return None
    # Absolute, so that it means the same in a worker process; links are not resolved.
    return str(at_home(path).absolute())
