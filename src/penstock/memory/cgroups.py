"""The cgroups of this process, of versions 1 and 2: where the limits of a container stand."""

import os
from functools import lru_cache
from typing import NamedTuple


class Cgroup(NamedTuple):
    """A cgroup, by the folder of its files, whose names differ by the version."""

    folder: str
    version: int


def cgroups(controller: str, root: str = "/") -> tuple[Cgroup, ...]:
    """Return the cgroups that bind this process by a controller such as "memory": its own, and all above it."""
    try:
        lines = read_text(f"{root.rstrip('/')}/proc/self/cgroup")
    except OSError:
        return ()
    return _found(controller, root.rstrip("/"), lines)


# Every stream that opens asks: which folders to look at changes only when the process is moved to another cgroup.
@lru_cache(maxsize=8)
def _found(controller: str, root: str, lines: str) -> tuple[Cgroup, ...]:
    mount = f"{root}/sys/fs/cgroup"
    found: list[Cgroup] = []
    for line in lines.splitlines():
        _, controllers, path = line.split(":", 2)
        # A limit on any ancestor binds. Inside a container the path may be the host's, and not exist here:
        # then the root of the mount is the cgroup of this process. So the root is always looked at.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        folders = ["/".join(["", *parts[:depth]]) for depth in range(len(parts), -1, -1)]
        if controllers == "":
            found += [Cgroup(f"{mount}{one}", 2) for one in folders]
            found += [Cgroup(f"{mount}/unified{one}", 2) for one in folders]
        elif controller in controllers.split(","):
            found += [Cgroup(f"{mount}/{controller}{one}", 1) for one in folders]
    return tuple(found)


def read_text(path: str) -> str:
    """Return a file of the kernel's; by its number, since a `Path` takes several times as long."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(number, 1 << 16):
            parts.append(part)
        return b"".join(parts).decode()
    finally:
        os.close(number)
