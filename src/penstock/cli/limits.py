"""A process with a memory limit: by a cgroup where one can be made, else by a look at what it takes, now and then."""

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_INTERVAL = 0.05  # Seconds between two looks.
_LINE = 300  # Characters of the last line that a failed process wrote.


@dataclass(frozen=True, slots=True)
class Group:
    """A memory cgroup, of version 1 or 2, by the names that its files have there."""

    root: Path
    limit: str
    peak: str
    """The most bytes that its processes took, their part of the page cache included."""


_KINDS = (
    Group(Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    Group(Path("/sys/fs/cgroup"), "memory.max", "memory.peak"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a process ended."""

    result: dict[str, Any] | None
    """What it told, if it came to its end."""
    was_killed: bool
    """Whether it took more memory than it may."""
    error: str
    """The last line that it wrote, if it failed otherwise."""
    seconds: float
    peak_nbytes: int | None
    """The most memory that was seen, with its part of the page cache if it ran in a cgroup."""
    is_in_cgroup: bool


def run_limited(
    module: str, arguments: list[str], *, limit: int, heard: Callable[[dict[str, Any]], None]
) -> Outcome:
    """Run a module of Python in a process of its own, within `limit` bytes.

    It is called with `arguments`, the number of a pipe and the folder of its cgroup ("" without one), which it joins
    itself. Each line that it writes to the pipe is a JSON object: `heard` is called with it; that with a "result" is
    the outcome. What it writes elsewhere is only looked at if it fails.
    """
    started = time.monotonic()
    told, ours = os.pipe()
    with (
        _cgroup(limit) as group,
        tempfile.TemporaryFile() as log,
        os.fdopen(told, "rb") as lines,
    ):
        folder = "" if group is None else str(group[0])
        command = [sys.executable, "-m", module, *arguments, str(ours), folder]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[ours]
        )
        try:
            os.close(ours)
            watched = _Watched(process, None if group is not None else limit)
            result = watched.listen(lines, heard)
            code = process.wait()
        finally:
            process.kill()
            process.wait()
        peak = watched.peak or None
        if group is not None:
            with contextlib.suppress(OSError, ValueError):  # memory.peak is newer than cgroup 2.
                peak = int((group[0] / group[1].peak).read_text())
        was_killed = watched.was_killed or (group is not None and code == -signal.SIGKILL)
        error = "" if result is not None or was_killed else _last_line(log, code)
    seconds = time.monotonic() - started
    return Outcome(result, was_killed, error, seconds, peak, group is not None)


class _Watched:
    """A process that is listened to; without a cgroup, it is ended here when it takes more than it may."""

    def __init__(self, process: subprocess.Popen[bytes], limit: int | None) -> None:
        self._process = process
        self._limit = limit
        self.peak = 0
        self.was_killed = False

    def listen(self, lines: Any, heard: Callable[[dict[str, Any]], None]) -> dict[str, Any] | None:
        """Return the result that it tells; None if it ends without one."""
        result, left = None, b""
        with selectors.DefaultSelector() as selector:
            selector.register(lines, selectors.EVENT_READ)
            while True:
                is_ready = bool(selector.select(_INTERVAL))
                self._look()
                if not is_ready:
                    continue
                data = os.read(lines.fileno(), 1 << 16)
                if not data:
                    return result
                *whole, left = (left + data).split(b"\n")
                for line in whole:
                    words = json.loads(line)
                    result = words.get("result", result)
                    heard(words)

    def _look(self) -> None:
        nbytes = _anonymous_nbytes(self._process.pid)
        self.peak = max(self.peak, nbytes)
        if self._limit is not None and nbytes > self._limit:
            self.was_killed = True
            self._process.kill()


def _anonymous_nbytes(pid: int) -> int:
    """Return the memory that a process can't give back: not the pages of files that it has mapped."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def _last_line(log: Any, code: int) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    # Of our own errors, the message is enough.
    return re.sub(r"^penstock\.errors\.\w+: ", "", last)[:_LINE] or f"it ended with status {code}"


@contextlib.contextmanager
def _cgroup(limit: int) -> Iterator[tuple[Path, Group] | None]:
    """Yield a new memory cgroup with this limit, or None where none can be made."""
    made = None
    for kind in _KINDS:
        folder = kind.root / f"penstock-demo-{os.getpid()}"
        try:
            folder.mkdir()
            made = folder, kind
            (folder / kind.limit).write_text(str(limit))
            break
        except OSError:
            if made is not None:
                _remove(folder)
            made = None
    if made is None:
        yield None
        return
    try:
        yield made
    finally:
        _remove(made[0])


def _remove(folder: Path) -> None:
    for _ in range(50):  # The kernel takes an ended process out of its cgroup a moment later.
        with contextlib.suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(_INTERVAL)
