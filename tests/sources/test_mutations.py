"""Damaged files of every kind: rows or an error that names the file; no crash, no kill, no hang."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sources.mutations.kinds import KINDS

GROUPS = Path("/sys/fs/cgroup/memory")
LIMIT = 450 << 20  # The budget of 64 MB, and the interpreter with the libraries of all formats.
TOP = Path(__file__).parents[2]
SECONDS = int(os.environ.get("PENSTOCK_MUTATION_SECONDS", "1200"))


@pytest.fixture
def cgroup() -> Iterator[Path | None]:
    """A memory cgroup of our own; None where none can be made, so that all but the kills is tested."""
    group = GROUPS / f"penstock-mutations-{os.getpid()}"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
        yield group
    finally:
        group.rmdir()


def failures(
    kinds: list[str], first: int, count: int, seconds: int, group: Path | None
) -> Iterator[Any]:
    """Yield what failed; a process that dies in a case is followed by another, which goes on after it."""
    at = first
    while kinds:
        # The rest of the kind in which the last process died, then all others.
        now, rest = (kinds, []) if at == first else (kinds[:1], kinds[1:])
        numbers = [at, max(1, first + count - at) if count else 0, seconds]
        command = [sys.executable, "-m", "tests.sources.mutations.reading", *map(str, numbers)]
        command += [str(group or ""), *now]
        found = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        yield from (line for line in lines if "failure" in line)
        if found.returncode == 0:
            kinds, at = rest, first
            continue
        assert lines, found.stderr
        yield {**lines[-1], "died": found.returncode, "stderr": found.stderr[-3000:]}
        kinds, at = kinds[kinds.index(lines[-1]["kind"]) :], lines[-1]["case"] + 1
        if count and at >= first + count:
            kinds, at = kinds[1:], first


def told(found: Iterator[Any]) -> str:
    """Return the first failures, as text."""
    return "\n".join(str(one) for one in itertools.islice(found, 20))


@pytest.mark.slow
def test_damaged_files_give_rows_or_a_clear_error(cgroup: Path | None) -> None:
    assert not told(failures(list(KINDS), 0, 8, 0, cgroup))


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_minutes_of_damaged_files_give_rows_or_clear_errors(kind: str, cgroup: Path | None) -> None:
    assert not told(failures([kind], 1000, 0, SECONDS, cgroup))
