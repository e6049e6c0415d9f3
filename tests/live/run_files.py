"""Runs for tests, made by hand, so that every figure is known; and processes that are watched."""

import os
import subprocess
import sys
from time import monotonic, sleep, time
from typing import Any

from penstock.live.pace import Pace
from penstock.live.runs import FORMAT, VERSION, read_run, run_id, run_name, run_names, write_run
from reports.reports import report

SECONDS = 60.0  # How long a test waits for another process at most.


def run(name: str, **values: Any) -> dict[str, Any]:
    """A run that is as far as the report of tests/reports; `values` replace parts of it, or of its report."""
    parts = {
        key: values.pop(key)
        for key in list(values)
        if key in ("is_waiting", "error", "updated_at", "pid")
    }
    found = report(**{"state": "open", **values})
    return {
        "format": FORMAT,
        "version": VERSION,
        "host": "here",
        "pid": int(name.partition("-")[0]),
        "command": "python train.py",
        "folder": "/home/someone",
        "id": run_id(name),
        "began_at": time(),
        "updated_at": time(),
        "pipeline": "from_arrays.map(f)",
        "plan": {},
        "is_asking": False,
        "is_waiting": False,
        "now": Pace().now(found, is_asking=False).to_dict(),
        "advice": found.advice,
        "bottleneck": found.bottleneck,
        "epochs": [],
        "error": "",
        "report": found.to_dict(spans=False),
        **parts,
    }


def written(number: int = 1, *, name: str = "", **values: Any) -> str:
    """Write a run, of this process unless a name is given; return its name."""
    name = name or run_name(number)
    write_run(name, run(name, **values))
    return name


def dead_name(number: int = 1) -> str:
    """The name of a run whose process is gone: it has the number of this one, and started at another time."""
    pid, start, space, _ = run_name(1).split("-")
    return f"{pid}-{int(start) + 1}-{space}-{number}"


def process(script: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a Python program; its stderr can be read."""
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until(condition: Any, seconds: float = SECONDS) -> Any:
    """Return what a function returns as soon as that is true: another process writes when it comes to it."""
    end = monotonic() + seconds
    while not (found := condition()):
        assert monotonic() < end, f"not within {seconds} seconds"
        sleep(0.02)
    return found


def runs_of(pid: int) -> list[dict[str, Any]]:
    """What a process has written, the first run first."""
    names = sorted(name for name in run_names() if name.startswith(f"{pid}-"))
    return [found for name in names if (found := read_run(name)) is not None]
