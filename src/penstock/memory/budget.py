"""How much memory this process may really use, by the limits of its cgroups and by what the host has free."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from penstock.memory.cgroups import cgroups, read_text

_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for suffix, base in (("B", 1000), ("", 1000), ("IB", 1024), ("I", 1024))
}
_MOST = 2 << 30  # A pipeline gains nothing from more than this; the rest is left to the user.
# The default budget is half of what is free: the model needs memory too. A quarter would refuse a shuffle
# window, and the blocks made of it, in a container of 300 MB.
_SHARE = 2


def parse_nbytes(size: int | str, *, least: int = 1) -> int:
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
    if nbytes < least:
        unit = "byte" if least == 1 else "bytes"
        raise ValueError(f"a size must be at least {least} {unit}, got {nbytes}.")
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


class _Names(NamedTuple):
    """The files of a memory cgroup, and the names that it has for cached pages of files."""

    limit: str
    usage: str
    inactive: str
    active: str


_NAMES = {
    1: _Names(
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file ",
        "total_active_file ",
    ),
    2: _Names("memory.max", "memory.current", "inactive_file ", "active_file "),
}


def _host_free(root: Path) -> int:
    try:
        for line in read_text(str(root / "proc/meminfo")).splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return host_nbytes()


def _cgroup_free(root: Path) -> Iterator[int]:
    """Yield the bytes that each cgroup of this process has free, for cgroups of versions 1 and 2."""
    for folder, version in cgroups("memory", str(root)):
        names = _NAMES[version]
        try:
            allowed = read_text(f"{folder}/{names.limit}").strip()
            if allowed == "max" or int(allowed) >= 1 << 60:
                continue
            used = int(read_text(f"{folder}/{names.usage}"))
            # Cached pages of files count as used, but the kernel drops them when memory is needed.
            for line in read_text(f"{folder}/memory.stat").splitlines():
                if line.startswith(names.inactive):
                    used -= int(line.split()[1])
                elif line.startswith(names.active):
                    used -= int(line.split()[1]) // 2  # Half, as the kernel does for MemAvailable.
        except (OSError, ValueError):
            continue
        yield max(0, int(allowed) - used)
