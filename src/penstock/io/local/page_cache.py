"""How much of a file the page cache may hold before it crowds out everything else."""

import functools
import re
from pathlib import Path

from penstock.memory.cgroups import cgroups, read_text


@functools.cache
def page_cache_room() -> int:
    """Return how many bytes of files may stay in the page cache: a quarter of `memory_limit()`.

    Larger files gain nothing from the cache: each part has left it before it is read again.
    """
    return memory_limit() // 4


def memory_limit(root: Path = Path("/")) -> int:
    """Return the memory of this machine, or of the container around this process if smaller."""
    names = {1: "memory.limit_in_bytes", 2: "memory.max"}
    found = [_read(f"{one.folder}/{names[one.version]}") for one in cgroups("memory", str(root))]
    limits = [int(limit) for limit in found if limit.strip().isdigit()]
    return min([_total_memory(root), *limits])


def _total_memory(root: Path) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read(f"{root}/proc/meminfo"), re.MULTILINE)
    # Without /proc: small enough to be safe anywhere.
    return int(found[1]) * 1024 if found else 1 << 30


def _read(path: str) -> str:
    try:
        return read_text(path)
    except OSError:
        return ""
