"""Local files by path, folder or glob."""

import difflib
import errno
import glob
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from penstock.errors import AccessError, DataError, MissingFileError, NotAFileError
from penstock.io.failures import read_failure
from penstock.io.location import Location
from penstock.io.selection import Selection, braces_cure

# A folder with one of these in it is a Zarr array or group: one thing, not a folder of files.
STORE_MARKS = ("zarr.json", ".zarray", ".zgroup")
_NAMES_SHOWN = 3


def list_local(path: str, selection: Selection) -> list[Location]:
    """Return what one absolute path, folder or glob names, sorted by name."""
    # A file that is really called data[1].npy wins over the pattern.
    if glob.has_magic(path) and not os.path.lexists(path):
        return _list_glob(path, selection)
    found = _stat(path)
    if stat.S_ISDIR(found.st_mode) and not is_store(path):
        return _list_folder(path, selection)
    return [_locate(path, found)]


def is_store(path: str) -> bool:
    """Return whether a folder is one thing that is read as a whole: a Zarr array or group."""
    # By os.path: Path.exists raises where this user may not look.
    return path.endswith(".zarr") or any(os.path.exists(f"{path}/{mark}") for mark in STORE_MARKS)  # noqa: PTH110


def _locate(path: str, found: os.stat_result) -> Location:
    is_directory = stat.S_ISDIR(found.st_mode)
    if not is_directory and not stat.S_ISREG(found.st_mode):
        cure = "Name a plain file; to read a stream, use from_generator."
        raise NotAFileError("this is a pipe, socket or device", file=path, cure=cure)
    mode = os.R_OK | (os.X_OK if is_directory else 0)
    if not _may(path, mode):
        raise read_failure(PermissionError(errno.EACCES, ""), file=path)
    size = 0 if is_directory else found.st_size
    version = found.st_mtime_ns
    return Location(path, size, mtime_ns=version, is_directory=is_directory, inode=found.st_ino)


def _may(path: str | Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _is_special(found: os.stat_result) -> bool:
    return not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode)


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)  # noqa: PTH116  There may be tens of thousands.
    except FileNotFoundError as error:
        raise _missing(path) from error
    except OSError as error:
        raise read_failure(error, file=path) from error


def _list_folder(folder: str, selection: Selection) -> list[Location]:
    files = sorted(_walk(folder, selection, set()), key=lambda one: one.url)
    if files:
        return files
    others = _names(folder)
    holds = f"it holds {others}" if others else "it is empty"
    deeper = "" if selection.recursive else " Folders in it are not looked into."
    cure = f"Name the files or a glob, such as {folder}/*.npy.{deeper}"
    raise MissingFileError(f"the folder has no {selection}: {holds}", file=folder, cure=cure)


def _walk(folder: str, selection: Selection, seen: set[tuple[int, int]]) -> Iterator[Location]:
    here = _stat(folder)
    if (here.st_dev, here.st_ino) in seen:  # a link that leads back up
        return
    seen.add((here.st_dev, here.st_ino))
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError as error:
        raise _closed(folder) from error
    for name in names:
        path = f"{folder.rstrip('/')}/{name}"
        if not selection.may_enter(name):
            continue
        try:
            found = _stat(path)
            if stat.S_ISDIR(found.st_mode) and not is_store(path):
                if selection.recursive:
                    yield from _walk(path, selection, seen)
            elif selection.takes(name) and not _is_special(found):
                yield _locate(path, found)
        except DataError as error:
            selection.missed(error)


def _closed(folder: str) -> AccessError:
    cure = f"Let this user list it (chmod +rx {folder})."
    return AccessError("the folder cannot be listed", file=folder, cure=cure)


def _list_glob(pattern: str, selection: Selection) -> list[Location]:
    matches = sorted(set(glob.glob(pattern, recursive=True)))  # noqa: PTH207  Path.glob takes no absolute pattern
    files, folders = [], []
    for path in matches:
        try:
            found = _stat(path)
            if stat.S_ISDIR(found.st_mode) and not is_store(path):
                folders.append(path)
            else:
                files.append(_locate(path, found))
        except DataError as error:
            selection.missed(error)
    if files or (matches and not folders):
        return files
    if matches:  # only folders: days/2024-*
        return [one for path in folders for one in _list_folder(path, selection)]
    raise _missing(pattern, is_pattern=True)


def _missing(path: str, *, is_pattern: bool = False) -> DataError:
    """Return the error for a path that does not exist, with the names that do."""
    # By os.path: methods of Path raise where this user may not look, and for names that are too long.
    if os.path.islink(path):  # noqa: PTH114
        target = Path(path).readlink()
        cure = "Make the link point to the file."
        return MissingFileError(f"a link to {target}, which is not there", file=path, cure=cure)
    problem = "nothing matches" if is_pattern else "there is no such file"
    folder = Path(path).parent
    while not os.path.isdir(folder) and folder != folder.parent:  # noqa: PTH112
        folder = folder.parent
    if not _may(folder, os.R_OK | os.X_OK):
        return _closed(str(folder))
    names = _names(str(folder), like=Path(path).name)
    cure = f"{folder} holds {names}." if names else f"{folder} is empty."
    if str(folder) != str(Path(path).parent):
        cure = f"Of this path, only {folder} exists."
    cure = braces_cure(path) or cure
    return MissingFileError(problem, file=path, cure=cure)


def _names(folder: str, like: str = "") -> str:
    """Return a few names in the folder, those most like `like` first: 'a.npy, b.npy and 7 more'."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except OSError:
        return ""
    alike = difflib.get_close_matches(like, names[:1000], n=_NAMES_SHOWN) if like else []
    shown = (alike + [name for name in names if name not in alike])[:_NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
