"""Datasets read in a process of their own, in a memory cgroup that kills whatever takes more than it should."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/memory")
BUDGET = 100_000_000
CONSTANT = 150_000_000  # What the interpreter and its libraries may take besides the budget.

_READ = """
import os, sys
group, expression, setup = sys.argv[1:]
open(group + "/cgroup.procs", "w").write(str(os.getpid()))
import numpy as np
import penstock as ps
exec(setup)
try:
    count = sum(1 for _ in eval(expression))
    print(f"{count} rows")
except ps.PenstockError as error:
    print(f"{type(error).__name__}: {error}")
"""


def read_in_a_cgroup(expression: str, budget: int = BUDGET, *, setup: str = "") -> str:
    """Return how many rows a dataset gives, or its error; `expression` makes it, without its budget, after `setup`."""
    group = GROUPS / f"penstock-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(budget + CONSTANT))
    except OSError as error:
        pytest.skip(
            f"no memory cgroup can be made here ({error}); the ledger's peak is tested instead"
        )
    try:
        expression = f"({expression}).with_options(memory={budget})"
        command = [sys.executable, "-c", _READ, str(group), expression, setup]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        return done.stdout.strip()
    finally:
        for _ in range(200):
            try:
                group.rmdir()
                break
            except OSError:  # The kernel lets go of an ended process a moment after the fact.
                time.sleep(0.02)
