"""Files and folders that appear whole or not at all, whatever happens while they are written."""

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from penstock.core.descriptors import Descriptor
from penstock.core.system import is_portable
from penstock.errors import DiskFullError, PenstockError, TargetExistsError, WriteError
from penstock.io.failures import write_errors, write_failure
from penstock.io.leftovers import lock, remove, remove_leftovers, unfinished

__all__ = [
    "atomic_directory",
    "atomic_file",
    "check_space",
    "is_empty_folder",
    "remove_leftovers",
    "swap_folders",
    "sync_folder",
    "temporary_folder",
]

# How many names are tried if a cleaner in another container removes each before it is locked.
_NUM_TRIES = 5
# What a descriptor may say of its disk; a connection of the caller's says other things.
_OF_DISKS = {errno.EIO, errno.EROFS, errno.EFBIG, errno.EPERM, errno.EACCES, errno.ESTALE}
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # Of the kernel's renameat2.


@contextlib.contextmanager
def atomic_file(path: Path, *, replace: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write to, which appears as `path` when the block ends without an error.

    Until then the file has a hidden name in the same folder. After an error the file is removed;
    after a kill, the next write in that folder removes it. Its bytes are on disk before it
    gets its name.

    Raises:
        TargetExistsError: `path` exists, and `replace` is False.
        DiskFullError: There is no room.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "manifest.json"
    >>> with atomic_file(path) as file:
    ...     _ = file.write(b"{}")
    >>> path.read_bytes()
    b'{}'
    """
    path = Path(path).absolute()
    with write_errors(path):
        _refuse_existing(path, replace=replace)
        remove_leftovers(path.parent)
        fd, hidden = _create_file(path)
    try:
        # The file is closed, and so unlocked, only after it has its name.
        with _caller_errors(path), os.fdopen(fd.number, "w+b", closefd=False) as file:
            yield file
            with write_errors(path):
                file.flush()
                os.fsync(fd.number)
                _give_name(hidden, path, replace=replace)
                sync_folder(path.parent)
    finally:
        if fd.number >= 0:  # Else this is a forked child, and the file is its parent's.
            remove(hidden)
        fd.close()


@contextlib.contextmanager
def atomic_directory(
    path: Path, *, replace: bool = False, discard: Callable[[Path], None] = remove
) -> Iterator[Path]:
    """Give a folder to fill, which appears as `path` when the block ends without an error.

    Like `atomic_file`. Of several processes that make the same folder, one wins, and the others get
    a TargetExistsError when they are done. With `replace`, the new folder and the old one change places,
    and `discard` removes the old one; if it raises, they change places again.
    """
    path = Path(path).absolute()
    with write_errors(path):
        if not is_empty_folder(path):
            _refuse_existing(path, replace=replace)
        remove_leftovers(path.parent)
        fd, hidden = _create_folder(path)
    try:
        with _caller_errors(path):
            yield hidden
        with write_errors(path):
            _sync_tree(hidden)
            if replace and os.path.lexists(path):
                swap_folders(hidden, path, discard)
            else:
                hidden.rename(path)
            sync_folder(path.parent)
    finally:
        if fd.number >= 0:  # Else this is a forked child, and the folder is its parent's.
            remove(hidden)
        fd.close()


@contextlib.contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Give a folder with a hidden name beside `path`, which is removed when the block ends.

    After a kill, the next write in the folder that it is in removes it.
    """
    with write_errors(path):
        fd, hidden = _create_folder(path)
    try:
        yield hidden
    finally:
        if fd.number >= 0:  # Else this is a forked child, and the folder is its parent's.
            remove(hidden)
        fd.close()


def check_space(folder: Path, nbytes: int) -> None:
    """Raise DiskFullError unless `nbytes` more would fit into `folder` now."""
    try:
        free = shutil.disk_usage(folder).free
    except FileNotFoundError as error:
        cure = "Create it, or choose another path."
        raise WriteError("there is no such folder", file=str(folder), cure=cure) from error
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have.
        failure = error if isinstance(error, OSError) else OSError(0, str(error))
        raise write_failure(failure, file=str(folder)) from error
    if nbytes > free:
        problem = f"{nbytes} bytes are needed here, and {free} are free"
        cure = "Free some space, or choose a path on another disk."
        raise DiskFullError(problem, file=str(folder), cure=cure)


@contextlib.contextmanager
def _caller_errors(path: Path) -> Iterator[None]:
    """Turn an OSError from writing to the open file into a WriteError; other errors of the caller pass unchanged.

    Those of a descriptor name no file. An error that names one may be about something else that the caller does.
    """
    try:
        yield
    except PenstockError:
        raise
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        if not is_full and (error.errno not in _OF_DISKS or error.filename is not None):
            raise
        raise write_failure(error, file=str(path)) from error


def _refuse_existing(path: Path, *, replace: bool) -> None:
    if not replace and os.path.lexists(path):
        cure = "Remove it, or choose another path."
        raise TargetExistsError("this exists already", file=str(path), cure=cure)


def is_empty_folder(path: Path) -> bool:
    """Return whether there is a folder with nothing in it, which may be replaced."""
    return path.is_dir() and not path.is_symlink() and next(path.iterdir(), None) is None


def _create_file(path: Path) -> tuple[Descriptor, Path]:
    for _ in range(_NUM_TRIES):
        hidden = unfinished(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = Descriptor(os.open(hidden, flags, 0o666), is_private=True)
        if lock(fd.number, hidden):
            return fd, hidden
        fd.close()
    raise OSError(0, f"other processes remove what is written in {path.parent}")


def _create_folder(path: Path) -> tuple[Descriptor, Path]:
    for _ in range(_NUM_TRIES):
        hidden = unfinished(path)
        hidden.mkdir()
        with contextlib.suppress(FileNotFoundError):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            fd = Descriptor(os.open(hidden, flags), is_private=True)
            if lock(fd.number, hidden):
                return fd, hidden
            fd.close()
    raise OSError(0, f"other processes remove what is written in {path.parent}")


def _give_name(hidden: Path, path: Path, *, replace: bool) -> None:
    if replace:
        hidden.replace(path)
        return
    try:
        path.hardlink_to(hidden)  # unlike a rename, this fails if another process was faster
    except FileExistsError:
        raise
    except OSError:  # no links on this file system
        _refuse_existing(path, replace=False)
        hidden.rename(path)


def swap_folders(new: Path, path: Path, discard: Callable[[Path], None]) -> None:
    """Put the folder `new` where `path` is, and let `discard` remove what was there; if it raises, all is as before.

    On local file systems there is always one of both at `path`. Others can't exchange names: there the old folder
    is moved aside first, to a name that no cleaner removes, so that a crash in between loses neither.
    """
    fd = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW), is_private=True)
    try:
        # So that no cleaner takes it for a leftover while it may have to come back.
        lock(fd.number, path)
        if _exchange(new, path):
            old = new
        else:
            old = path.with_name(f".{path.name}.{secrets.token_hex(4)}.penstock-old")
            path.rename(old)
            try:
                new.rename(path)
            except BaseException:
                old.rename(path)
                raise
        try:
            discard(old)
        except BaseException:
            if not _exchange(old, path):
                path.rename(new)
                old.rename(path)
            raise
    finally:
        fd.close()


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; return False if this system, or the file system, can't."""
    # Only some C libraries of Linux have it.
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None or is_portable:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if not renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _sync_tree(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            _sync(Path(place) / name, os.O_RDONLY | os.O_NOFOLLOW)
        sync_folder(Path(place))


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, if that can be done."""
    # Some network file systems cannot sync a folder; the file itself is safe by then.
    with contextlib.suppress(OSError):
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
