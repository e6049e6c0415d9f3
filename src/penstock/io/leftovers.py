"""Names and locks of unfinished files, so that what a killed process left behind can be removed.

An unfinished file or folder is called `.NAME.PID-START-SPACE-TOKEN.penstock-tmp`: the process that
writes it, when that process started (numbers are used again), and the boot and container in which
the number means anything. Its writer also holds a lock on it, which the kernel lets go of when the
writer dies, and which means the same in every container.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import re
import secrets
import shutil
from pathlib import Path

_NAME = re.compile(r"\..*\.(\d+)-(\d+)-([0-9a-f]{8})-[0-9a-f]{8}\.penstock-tmp", re.DOTALL)
# A name has at most 255 bytes, and the rest of it takes up to 80.
_MAX_PREFIX = 120


def unfinished(target: Path) -> Path:
    """Return a new name beside `target` for what is not finished yet."""
    prefix = target.name.encode()[:_MAX_PREFIX].decode(errors="ignore")
    pid = os.getpid()
    own = f"{pid}-{_start_time(pid)}-{_process_space()}-{secrets.token_hex(4)}"
    return target.with_name(f".{prefix}.{own}.penstock-tmp")


def lock(fd: int, path: Path) -> bool:
    """Mark the open file or folder as being written; False if it was cleaned away meanwhile."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # a cleaner holds it, between our making it and locking it
    except OSError:
        return True  # no locks on this file system: the name has to do
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what dead processes left unfinished in `folder`, and return what was removed.

    What a living process is writing is left alone, in this container or another, and so is what
    cannot be told.
    """
    removed = []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if _NAME.fullmatch(entry.name)]
    except OSError:
        return []
    for name in names:
        path = folder / name
        if _remove_if_dead(path):
            removed.append(path)
    return removed


def remove(path: Path) -> None:
    """Remove a file or a folder with all in it; what is gone already is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_if_dead(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        locked = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            locked = False
        if _may_live(path.name, by_name_only=not locked):
            return False
        remove(path)
        return not path.exists()
    finally:
        os.close(fd)


def _may_live(name: str, *, by_name_only: bool) -> bool:
    """Return whether the process in the name lives, or might, as far as the name tells."""
    found = _NAME.fullmatch(name)
    if found is None:
        return True
    pid, start, space = int(found[1]), int(found[2]), found[3]
    if space != _process_space():
        return by_name_only  # its number means nothing here: the lock alone can tell
    return _start_time(pid) == start


def _start_time(pid: int) -> int:
    """Return when a process started, in ticks since boot; -1 if there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    # The name in parentheses may hold anything; the 22nd field is the 20th after it.
    return int(text.rpartition(")")[2].split()[19])


@functools.cache
def _process_space() -> str:
    """Return what tells this boot and this container's process numbers from others."""
    parts = []
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        source = Path(path)
        with contextlib.suppress(OSError):
            parts.append(str(source.readlink()) if source.is_symlink() else source.read_text())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
