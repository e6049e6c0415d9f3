"""Which files of a folder penstock made: only these are ever removed.

They are those that a manifest or a journal of ours lists. TFRecords, Parquet files and Zarr stores have none, since
other libraries take every file of a folder for data: they carry a mark of ours, an extended attribute with the size and
time of what we wrote. All else is the user's, whatever it is called.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from penstock.core.descriptors import Descriptor
from penstock.core.system import get_attribute, set_attribute
from penstock.errors import DataError, TargetExistsError
from penstock.io.atomic import is_empty_folder
from penstock.io.failures import write_errors
from penstock.io.leftovers import is_unfinished_name, remove_leftovers
from penstock.io.local.whole_file import read_whole
from penstock.shards import journal, manifest
from penstock.shards.manifest import Manifest, parse_manifest
from penstock.shards.writing import hidden_name

_MARK = "user.penstock"


def mark_files(folder: Path) -> None:
    """Mark all files of a folder, and of the folders in it, as ours.

    Where the file system can't hold marks, they are nobody's.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            with contextlib.suppress(OSError):
                set_attribute(path, _MARK, _version(path))


def _is_marked(path: Path) -> bool:
    """Return whether a file is marked as ours, or is a folder in which all files are: a part of a store."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            return all(map(_is_marked, path.iterdir()))
        return get_attribute(path, _MARK) == _version(path)
    except OSError:
        return False


def _version(path: Path) -> bytes:
    found = path.lstat()
    return f"{found.st_size} {found.st_mtime_ns}".encode()


def own_manifest(folder: Path) -> Manifest | None:
    """Return the manifest of a folder; None if it has none of ours."""
    file = folder / manifest.NAME
    try:
        return parse_manifest(read_whole(file, most=manifest.MAX_NBYTES), file=str(file))
    except (OSError, DataError):
        return None


def listed(folder: Path) -> dict[str, int | None]:
    """Return the names of our files in a folder, each with its bytes if these are known; none: it is not ours."""
    names: dict[str, int | None] = {}
    whole = own_manifest(folder)
    if whole is not None:
        names[manifest.NAME] = None
        names |= {name: one.nbytes for shard in whole.shards for name, one in shard.files.items()}
    begun = journal.read_journal(folder)
    if begun is not None:
        finished = {name for shard in begun.finished.values() for name in shard.files}
        hidden = map(hidden_name, begun.names - finished)
        names |= dict.fromkeys([journal.NAME, *begun.names, *hidden])
    names |= dict.fromkeys(path.name for path in folder.iterdir() if _is_marked(path))
    return names


def is_ours(folder: Path) -> bool:
    """Return whether a folder is empty, or has shards of ours, finished or not."""
    while True:
        names = os.listdir(folder)  # noqa: PTH208  names, not paths
        if all(map(is_unfinished_name, names)) or own_manifest(folder):
            return True
        if all(is_unfinished_name(name) or _is_marked(folder / name) for name in names):
            return True
        if journal.read_journal(folder):
            return True
        # The process that filled it may have given up, and removed it, since we looked.
        if journal.NAME not in names or (folder / journal.NAME).exists():
            return False


def foreign(folder: Path) -> str:
    """Return the name of something in a folder that penstock did not make; '' if there is nothing."""
    ours = listed(folder)
    for name in sorted(os.listdir(folder)):  # noqa: PTH208  names, not paths
        if is_unfinished_name(name):
            continue
        found = (folder / name).lstat()
        nbytes = ours.get(name)
        if name not in ours or not (stat.S_ISREG(found.st_mode) or _is_marked(folder / name)):
            return name
        if nbytes is not None and found.st_size != nbytes:
            return name
    return ""


def check_target(path: Path, *, overwrite: bool) -> None:
    """Raise unless a folder may be made at `path`: nothing is there, or all that is there is ours, and may go."""
    with write_errors(path):
        _check_target(path, overwrite=overwrite)


def _check_target(path: Path, *, overwrite: bool) -> None:
    if not os.path.lexists(path) or is_empty_folder(path):
        return
    if not overwrite:
        cure = "Remove it, choose another path, or write overwrite=True."
        raise TargetExistsError("this exists already", file=str(path), cure=cure)
    if path.is_symlink():
        cure = f"Name the folder itself: {os.path.realpath(path)}."
        raise TargetExistsError("this is a link, and is not overwritten", file=str(path), cure=cure)
    cure = "Remove it yourself if it may go, or choose another path."
    if not path.is_dir() or not listed(path):
        problem = "this was not written by penstock, and is not overwritten"
        raise TargetExistsError(problem, file=str(path), cure=cure)
    check_all_ours(path)
    if not os.access(path, os.W_OK | os.X_OK):
        raise TargetExistsError("this folder may not be written to", file=str(path), cure=cure)
    if _is_locked(path):
        cure = "Wait for it, or choose another path."
        raise TargetExistsError("another process is filling this", file=str(path), cure=cure)


def _is_locked(folder: Path) -> bool:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = Descriptor(os.open(folder, flags), is_private=True)
    try:
        fcntl.flock(fd.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # No locks on this file system.
        return False
    finally:
        fd.close()
    return False


def check_all_ours(folder: Path) -> None:
    """Raise if something in a folder is not ours, and would be lost with it."""
    name = foreign(folder)
    if name:
        raise TargetExistsError(
            f"{name!r} in this folder was not written by penstock, and is not overwritten",
            file=str(folder),
            cure="Move it elsewhere, or choose another path.",
        )


def discard(folder: Path) -> None:
    """Remove a folder with our files in it; raise, and remove nothing, if there is anything else in it."""
    check_all_ours(folder)
    remove_files(folder, listed(folder))
    remove_leftovers(folder)
    with contextlib.suppress(OSError):
        folder.rmdir()


def discard_records(folder: Path) -> None:
    """Remove a folder of marked TFRecords, and nothing else: a kill may leave one where shards are to go."""
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(folder) if not is_unfinished_name(name)]  # noqa: PTH208  names, not paths
        if names and all(_is_marked(folder / name) for name in names):
            discard(folder)


def remove_files(folder: Path, names: Iterable[str]) -> set[str]:
    """Remove some of our files, and what lists them last: after a kill in between, the rest is still listed.

    So it is after an error: what can't be removed stays listed, and the next one who comes tries again. Returns what
    could not be removed.
    """
    lists = (journal.NAME, manifest.NAME)
    left: set[str] = set()
    for name in sorted(names, key=lambda one: (one in lists, one)):
        if name != Path(name).name:  # A list must not reach outside of its folder.
            continue
        try:
            path = folder / name
            if name not in lists and stat.S_ISDIR(_mode(path)):
                _remove_marked(path)
            elif name not in lists or not left:
                path.unlink(missing_ok=True)
        except OSError:
            left.add(name)
    return left


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except FileNotFoundError:
        return 0


def _remove_marked(folder: Path) -> None:
    """Remove a folder of a store, with all marked files in it; raise OSError if anything else is there."""
    for path in folder.iterdir():
        if stat.S_ISDIR(path.lstat().st_mode):
            _remove_marked(path)
        elif _is_marked(path):
            path.unlink()
    folder.rmdir()
