"""What Linux has and other systems lack, and what stands in for it.

A portable build (`cmake -DPENSTOCK_PORTABLE=ON`) uses what stands in on Linux, too: `make portable` runs the tests on
one, in an interpreter from which the rest was taken away.
"""

import contextlib
import ctypes
import errno
import functools
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

from penstock._native import is_portable
from penstock.memory.cgroups import cgroups, read_text

__all__ = [
    "advise",
    "cores_of_cgroups",
    "drop_from_page_cache",
    "get_attribute",
    "is_portable",
    "path_of_open",
    "peak_nbytes",
    "set_attribute",
    "sync_data",
    "usable_cores",
]

_MOST_NBYTES = 1024  # Of an attribute of ours.


def usable_cores() -> int:
    """Return how many cores this process may use; all there are where the system does not tell."""
    if sys.platform != "linux" or is_portable:
        return os.cpu_count() or 1
    return min(len(os.sched_getaffinity(0)), cores_of_cgroups())


@functools.cache
def cores_of_cgroups(root: str = "/") -> int:
    """Return how many cores the cgroups of this process give it time on, rounded up: 2 in a container of 1.5 CPUs.

    It has all cores of the host by its affinity, and is stopped as soon as it has used up its share of each 0.1 s: more
    threads than that share wait for each other.
    """
    least = sys.maxsize
    for folder, version in cgroups("cpu", root):
        with contextlib.suppress(OSError, ValueError):
            if version == 1:
                quota = read_text(f"{folder}/cpu.cfs_quota_us").strip()
                period = read_text(f"{folder}/cpu.cfs_period_us")
            else:
                quota, period = read_text(f"{folder}/cpu.max").split()
            if quota not in ("max", "-1"):
                least = min(least, max(1, -(-int(quota) // int(period))))
    return least


def peak_nbytes() -> int:
    """Return the most memory that this process has had at once, with what it mapped of files."""
    if sys.platform == "linux" and not is_portable:
        # Not by getrusage: there, a process starts with the peak of the one that started it.
        found = re.search(
            r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE
        )
        return int(found[1]) * 1024 if found else 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def sync_data(fd: int) -> None:
    """Bring the content of a file to the disk."""
    if sys.platform != "linux" or is_portable:
        os.fsync(fd)  # With its times, which may cost a second write.
    else:
        os.fdatasync(fd)


def advise(fd: int, advice: str) -> None:
    """Tell the system how a file will be read, by the name that POSIX_FADV_ has for it; not every system listens."""
    if sys.platform != "linux" or is_portable:
        return
    with contextlib.suppress(OSError):  # Some file systems refuse advice.
        os.posix_fadvise(fd, 0, 0, getattr(os, f"POSIX_FADV_{advice}"))


def drop_from_page_cache(fd: int) -> None:
    """Tell the system that a file will not be read soon: its pages would only push others out of the page cache."""
    advise(fd, "DONTNEED")


def path_of_open(fd: int) -> str:
    """Return a path that opens an open file of this process once more, even if it has no name."""
    return f"/dev/fd/{fd}" if is_portable else f"/proc/self/fd/{fd}"


def set_attribute(path: Path, name: str, value: bytes) -> None:
    """Give a file an extended attribute; raise OSError where the file system can't hold one."""
    if sys.platform == "linux" and not is_portable:
        os.setxattr(path, name, value)
    else:
        _call_libc("setxattr", path, name, value, len(value))


def get_attribute(path: Path, name: str) -> bytes:
    """Return an extended attribute of a file that is no link; raise OSError if it has none."""
    if sys.platform == "linux" and not is_portable:
        return os.getxattr(path, name, follow_symlinks=False)
    if path.is_symlink():
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(path))
    value = ctypes.create_string_buffer(_MOST_NBYTES)
    nbytes = _call_libc("getxattr", path, name, value, len(value))
    return value.raw[:nbytes]


def _call_libc(function: str, path: Path, name: str, value: Any, nbytes: int) -> int:
    """Call a function for extended attributes, which Python has for Linux alone.

    The last two arguments are those of macOS: a position, and options. Linux has flags in the place of the first for
    `setxattr`; all are 0.
    """
    call = getattr(ctypes.CDLL(None, use_errno=True), function)
    call.restype = ctypes.c_ssize_t if function == "getxattr" else ctypes.c_int
    call.argtypes = [
        *(ctypes.c_char_p,) * 2,
        ctypes.c_void_p,
        ctypes.c_size_t,
        *(ctypes.c_int,) * 2,
    ]
    result: int = call(
        os.fsencode(path), name.encode(), ctypes.cast(value, ctypes.c_void_p), nbytes, 0, 0
    )
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    return result
