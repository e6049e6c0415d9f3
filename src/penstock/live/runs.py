"""The runs of this user: a folder in the cache directory with one small JSON file a run, replaced as it goes on.

A run is one dataset that one process reads, epoch after epoch. Whoever reads it writes the file, about once a second;
any process of the same user may look: the page of a training process, and `penstock watch`.
"""

import contextlib
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import time
from typing import Any

from penstock.core.user_cache import user_cache
from penstock.io.leftovers import mark_lives, process_mark

FORMAT = "penstock run"
VERSION = 1
_NAME = re.compile(
    r"\d+-\d+-[0-9a-f]{8}-\d+"
)  # The mark of a process, and the number of a run in it.
_MOST_RUNS = 50
_MOST_SECONDS = 7 * 86_400
_SILENT_SECONDS = 15.0
"""A run writes once a second, or when it gets the interpreter lock: after so long without news, that is said."""
_GONE_SECONDS = 60.0
"""After so long without news a run of another boot or container is taken for ended: its process can't be seen here."""
_LARGEST = 1 << 24  # Bytes that are read of a file: no run has so many.

Run = dict[str, Any]


def runs_folder() -> Path:
    """Return where runs are written."""
    return user_cache("runs")


def run_name(number: int) -> str:
    """Return the name of a run of this process."""
    return f"{process_mark()}-{number}"


def run_id(name: str) -> str:
    """Return what a user calls a run: the number of its process, and its own number in that.

    >>> run_id("4711-81234-0a1b2c3d-2")
    '4711-2'
    """
    pid, _, _, number = name.split("-")
    return f"{pid}-{number}"


def is_meant(name: str, wanted: str) -> bool:
    """Return whether a user who asks for '4711' (a process), '4711-2' or a whole name means this run."""
    return wanted in (name, run_id(name), name.partition("-")[0])


def write_run(name: str, found: Mapping[str, Any]) -> None:
    """Write a run, in place of what was written of it before: readers see either, never a part.

    Unlike `atomic_file` it waits for no disk: after a power cut nobody looks at a run, and it is written every second.
    """
    target = runs_folder() / f"{name}.json"
    fresh = target.with_name(f".{name}.new")
    _write_private(fresh, json.dumps(found, separators=(",", ":")).encode())
    fresh.replace(target)


@contextlib.contextmanager
def link_to(url: str) -> Iterator[Path]:
    """Have a file that leads a browser to an address.

    Every user of the machine can see the command that starts a browser, so the address, with its token, is not in it.
    """
    path = runs_folder() / f".open-{os.getpid()}.html"
    _write_private(path, f'<meta http-equiv="refresh" content="0; url={url}">'.encode())
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _write_private(path: Path, data: bytes) -> None:
    """Write a file that only this user can read; make the folder of runs, if there is none."""
    try:
        _write(path, data)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        _write(path, data)


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def run_names() -> list[str]:
    """Return the names of all runs, those that were written last first."""
    return [name for name, _ in _written()]


def _written() -> list[tuple[str, float]]:
    """Return the name of each run, and when it was written."""
    found = []
    with contextlib.suppress(OSError), os.scandir(runs_folder()) as entries:
        for entry in entries:
            name = entry.name.removesuffix(".json")
            if name != entry.name and _NAME.fullmatch(name):
                with contextlib.suppress(OSError):
                    found.append((name, entry.stat(follow_symlinks=False).st_mtime))
    return sorted(found, key=lambda one: (-one[1], one[0]))


def read_run(name: str) -> Run | None:
    """Return a run as it was written last; None if there is none of that name, or it is none."""
    if not _NAME.fullmatch(name):
        return None
    path = runs_folder() / f"{name}.json"
    try:
        found = path.stat()
        return _read(path, (found.st_mtime_ns, found.st_ino, found.st_size))
    except (OSError, ValueError, RecursionError):
        return None


@functools.lru_cache(maxsize=32)
def _read(path: Path, _version: tuple[int, int, int]) -> Run | None:
    """Return what is in a version of a file; kept for whoever looks every second."""
    with path.open("rb") as file:
        found = json.loads(file.read(_LARGEST))
    is_run = isinstance(found, dict) and found.get("format") == FORMAT
    is_known = is_run and found.get("version") == VERSION and isinstance(found.get("report"), dict)
    return found if is_known else None


def status(name: str, found: Run) -> str:
    """Return how a run stands at this moment, in a word.

    "running"; "waiting": the consumer has not asked for data for a while; "silent": nothing was written for a while,
    though the process lives; "between": an epoch is read to its end, and the process lives; "ended"; "stopped": closed
    before its end; "failed"; "killed": its process is gone and said nothing.
    """
    state = found["report"].get("state")
    age = time() - float(found.get("updated_at", 0.0))
    lives = _lives(name, age)
    if state == "failed" or (state != "ended" and found.get("error")):
        return "failed"
    if state == "closed":
        return "stopped"
    if state == "ended":
        return "between" if lives else "ended"
    if not lives:
        return "killed"
    if age > _SILENT_SECONDS:
        return "silent"
    return "waiting" if found.get("is_waiting") else "running"


def is_over(status: str) -> bool:
    """Return whether a run with this status comes to no more."""
    return status in ("ended", "stopped", "failed", "killed")


def _lives(name: str, age: float) -> bool:
    mark = name.rpartition("-")[0]
    is_seen = mark.rpartition("-")[2] == process_mark().rpartition("-")[2]
    return mark_lives(mark) if is_seen else age < _GONE_SECONDS


def clean_up() -> None:
    """Remove runs that are over: those of more than a week ago, and the oldest where there are more than 50."""
    now = time()
    with contextlib.suppress(OSError):
        for place, (name, written) in enumerate(_written()):
            is_kept = place < _MOST_RUNS and now - written < _MOST_SECONDS
            # A process that lives may write a run again.
            if not is_kept and not _lives(name, now - written):
                (runs_folder() / f"{name}.json").unlink(missing_ok=True)
        for path in runs_folder().glob(".*.new"):  # Of processes that were killed as they wrote.
            name = path.name[1:-4]
            if _NAME.fullmatch(name) and not _lives(name, now - path.stat().st_mtime):
                path.unlink(missing_ok=True)
