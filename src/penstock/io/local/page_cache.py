"""How much of a file the page cache may hold before it crowds out everything else."""

import functools
import re
from pathlib import Path


@functools.cache
def page_cache_room() -> int:
    """Return how many bytes of files may stay in the page cache: a quarter of `memory_limit()`.

    Larger files gain nothing from the cache: each part has left it before it is read again.
    """
    return memory_limit() // 4


def memory_limit(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of this machine, or of the container around this process if smaller."""
    limits = [_total_memory(proc)]
    for line in _read(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            limits += _limits_up(cgroups, path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits_up(cgroups / "memory", path, "memory.limit_in_bytes")
    return min(limits)


def _total_memory(proc: Path) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", _read(proc / "meminfo"), re.MULTILINE)
    # Without /proc: small enough to be safe anywhere.
    return int(found[1]) * 1024 if found else 1 << 30


def _limits_up(root: Path, path: str, name: str) -> list[int]:
    """Return the limits of a cgroup and of its ancestors, as far as they can be seen."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    folders = [root.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]
    found = (_read(folder / name).strip() for folder in folders)
    return [int(limit) for limit in found if limit.isdigit()]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
