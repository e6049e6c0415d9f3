"""A real memory limit for a contender: a version 1 memory cgroup of its own."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup/memory")
_numbers = itertools.count()


class MemoryCgroup:
    """A new cgroup that holds its processes to `limit` bytes, page cache included."""

    def __init__(self, limit: int) -> None:
        if not (ROOT / "memory.limit_in_bytes").exists():
            raise FileNotFoundError(f"{ROOT} is not a version 1 memory controller")
        self.path = ROOT / f"penstock-bench-{os.getpid()}-{next(_numbers)}"
        self.path.mkdir()
        try:
            (self.path / "memory.limit_in_bytes").write_text(str(limit))
            swap = self.path / "memory.memsw.limit_in_bytes"
            if swap.exists():
                swap.write_text(str(limit))
        except OSError:
            self.path.rmdir()
            raise

    def close(self) -> None:
        """Remove it. Its processes must have ended."""
        for _ in range(100):
            try:
                self.path.rmdir()
            except OSError:
                # The kernel lets go of a process that was reaped a moment after the fact.
                time.sleep(0.05)
            else:
                return
        raise RuntimeError(f"{self.path} still has processes in it")


def join(path: str) -> None:
    """Move this process into the cgroup at `path`."""
    (Path(path) / "cgroup.procs").write_text(str(os.getpid()))
