"""How much memory this process may really use, by the limits of its cgroups and by what the host has free."""

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("", 1000), ("IB", 1024), ("I", 1024))
}
_MOST = 2 << 30  # A pipeline gains nothing from more than this; the rest is left to the user.
# The default budget is half of what is free: the model needs memory too. A quarter would refuse a shuffle
# window, and the blocks made of it, in a container of 300 MB.
_SHARE = 2


def parse_nbytes(size: int | str) -> int:
    """Return a number of bytes from a number or a text such as '512MB' or '1.5 GiB'.

    >>> parse_nbytes("512MB"), parse_nbytes("1 KiB"), parse_nbytes(4096)
    (512000000, 1024, 4096)
    """
    if isinstance(size, bool) or not (isinstance(size, str) or hasattr(size, "__index__")):
        raise TypeError(f"a size must be a number of bytes or a text like '512MB', got {size!r}.")
    if isinstance(size, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", size)
        if match is None or match[2].upper() not in _UNITS:
            raise ValueError(f"a size must look like '512MB' or '2GiB', got {size!r}.")
        size = int(float(match[1]) * _UNITS[match[2].upper()])
    nbytes = int(size.__index__())  # Integers of NumPy are accepted, too.
    if nbytes < 1:
        raise ValueError(f"a size must be at least 1 byte, got {nbytes}.")
    return nbytes


def format_nbytes(nbytes: float) -> str:
    """Return a size as a person would say it.

    >>> format_nbytes(1536000), format_nbytes(12)
    ('1.54 MB', '12 B')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if abs(nbytes) >= scale:
            return (
                f"{nbytes / scale:.3g} {unit}"
                if nbytes < 999.5 * scale
                else f"{nbytes / scale:.0f} {unit}"
            )
    return f"{nbytes:.0f} B"


def default_budget(root: Path = Path("/"), *, own_nbytes: int = 0) -> int:
    """Return half of the memory that is free to this process, at most 2 GiB.

    `own_nbytes`, the bytes that all streams have mapped already, count as free: the budget covers them.
    """
    return max(1, min(_MOST, (free_nbytes(root) + own_nbytes) // _SHARE))


def free_nbytes(root: Path = Path("/")) -> int:
    """Return the memory that is free to this process, by the host and its cgroups."""
    return min((_host_free(root), *_cgroup_free(root)))


def host_nbytes() -> int:
    """Return the bytes of memory that the host has, in use or not."""
    pages: int = os.sysconf("SC_PHYS_PAGES")
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Group(NamedTuple):
    """The files of one memory cgroup, and the names that it has for cached pages of files."""

    limit: str
    usage: str
    stat: str
    inactive: str
    active: str


def _host_free(root: Path) -> int:
    try:
        for line in _read(str(root / "proc/meminfo")).splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return host_nbytes()


def _cgroup_free(root: Path) -> Iterator[int]:
    """Yield the bytes that each cgroup of this process has free, for cgroups of versions 1 and 2."""
    try:
        lines = _read(str(root / "proc/self/cgroup"))
    except OSError:
        return
    for group in _groups(str(root), lines):
        try:
            allowed = _read(group.limit).strip()
            if allowed == "max" or int(allowed) >= 1 << 60:
                continue
            used = int(_read(group.usage))
            # Cached pages of files count as used, but the kernel drops them when memory is needed.
            for line in _read(group.stat).splitlines():
                if line.startswith(group.inactive):
                    used -= int(line.split()[1])
                elif line.startswith(group.active):
                    used -= int(line.split()[1]) // 2  # Half, as the kernel does for MemAvailable.
        except (OSError, ValueError):
            continue
        yield max(0, int(allowed) - used)


# Every stream that opens asks: which files to look at changes only when the process is moved to another cgroup.
@lru_cache(maxsize=8)
def _groups(root: str, lines: str) -> tuple[_Group, ...]:
    """Return the cgroups that /proc/self/cgroup names, and all of their ancestors."""
    mount = f"{root.rstrip('/')}/sys/fs/cgroup"
    found: list[_Group] = []
    for line in lines.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for base in (mount, f"{mount}/unified"):
                names = ("memory.max", "memory.current", "inactive_file")
                found += _groups_along(base, path, *names)
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += _groups_along(f"{mount}/memory", path, *names)
    return tuple(found)


def _groups_along(base: str, path: str, limit: str, usage: str, cache: str) -> Iterator[_Group]:
    # A limit on any ancestor binds. Inside a container the path may be the host's, and not exist here:
    # then the root of the mount is the cgroup of this process. So the root is always looked at.
    for folder in (PurePosixPath(path), *PurePosixPath(path).parents):
        group = f"{base}/{str(folder).lstrip('/')}"
        active = cache.replace("inactive", "active")
        yield _Group(
            f"{group}/{limit}",
            f"{group}/{usage}",
            f"{group}/memory.stat",
            f"{cache} ",
            f"{active} ",
        )


def _read(path: str) -> str:
    """Return a file of the kernel's; by its number, since a `Path` takes several times as long."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(number, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode()
    finally:
        os.close(number)
