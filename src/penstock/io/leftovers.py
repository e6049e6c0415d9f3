"""Names and locks of unfinished files, so that what a killed process left behind can be removed.

An unfinished file or folder is called `.NAME.PID-START-SPACE-TOKEN.penstock-tmp`. PID is the process
that writes it. START is when that process started, since process numbers are reused. SPACE stands for
the boot and the container in which PID is valid. The writer also holds a lock on the file or folder;
the kernel releases it when the writer dies, and every container sees it.
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

from penstock.core.descriptors import Descriptor
from penstock.core.system import is_portable

_NAME = re.compile(r"\..*\.(\d+)-(\d+)-([0-9a-f]{8})-[0-9a-f]{8}\.penstock-tmp", re.DOTALL)
# A file name has at most 255 bytes, of which the parts after NAME take up to 80.
_MAX_PREFIX = 120


def unfinished(target: Path) -> Path:
    """Return a new hidden path beside `target`, to write to until `target` is finished."""
    prefix = target.name.encode()[:_MAX_PREFIX].decode(errors="ignore")
    pid = os.getpid()
    own = f"{pid}-{_start_time(pid)}-{_process_space()}-{secrets.token_hex(4)}"
    return target.with_name(f".{prefix}.{own}.penstock-tmp")


def is_unfinished_name(name: str) -> bool:
    """Return whether a file or folder is called as `unfinished` calls them."""
    return _NAME.fullmatch(name) is not None


def lock(fd: int, path: Path) -> bool:
    """Lock an open unfinished file or folder; return False if a cleaner removes or removed it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False  # a cleaner locked it after we made it and before we could lock it
    except OSError:
        return True  # no locks on this file system: the name alone must tell that the writer lives
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


def remove_leftovers(folder: Path) -> list[Path]:
    """Remove what dead processes left unfinished in `folder`, and return what was removed.

    What a living process is writing, in this container or another, is not touched; neither is what
    might be a living process's.
    """
    removed = []
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if is_unfinished_name(entry.name)]
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
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        fd = Descriptor(os.open(path, flags), is_private=True)
    except OSError:
        return False
    try:
        locked = True
        try:
            fcntl.flock(fd.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            locked = False
        if _may_live(path.name, by_name_only=not locked):
            return False
        remove(path)
        return not path.exists()
    finally:
        fd.close()


def _may_live(name: str, *, by_name_only: bool) -> bool:
    """Return whether the process in the name lives or may live; `by_name_only`: no lock can tell."""
    found = _NAME.fullmatch(name)
    if found is None:
        return True
    pid, start, space = int(found[1]), int(found[2]), found[3]
    if space != _process_space():
        return by_name_only  # of another boot or container: only the lock can tell
    return _start_time(pid) == start


def process_mark() -> str:
    """Return what tells this process from all others, of other boots and containers, too: fit for a file's name."""
    pid = os.getpid()
    return f"{pid}-{_start_time(pid)}-{_process_space()}"


def mark_lives(mark: str) -> bool:
    """Return whether the process with this mark lives, or may live: in another container, nobody can tell."""
    try:
        pid, start, space = mark.split("-")
        return space != _process_space() or _start_time(int(pid)) == int(start)
    except ValueError:
        return False


def _start_time(pid: int) -> int:
    """Return when a process started, in ticks since boot; -1 if there is no such process, or it has ended.

    Where the system does not tell, 0: another process with the number of a dead one is taken for it.
    """
    if is_portable:
        return 0 if _is_process(pid) else -1
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    # The start is the 22nd field: the 20th after the program's name, which is in parentheses and may hold anything.
    fields = text.rpartition(")")[2].split()
    is_dead = fields[0] in "ZX"  # Its parent has not asked yet how it ended.
    return -1 if is_dead else int(fields[19])


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # Sends nothing.
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # It is another user's.
    return True


@functools.cache
def _process_space() -> str:
    """Return a hash of this boot and this container's process namespace, within which a PID is valid."""
    if is_portable:
        return hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]
    parts = []
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        source = Path(path)
        with contextlib.suppress(OSError):
            parts.append(str(source.readlink()) if source.is_symlink() else source.read_text())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
