"""What the page is told: a few figures of each run, and all of the one that is shown."""

import contextlib
import os
from time import time
from typing import Any

from penstock.live.runs import Run, is_meant, is_over, read_run, run_names, status

_MOST_SHOWN = 30


def all_runs(*, only: str = "", wanted: str = "") -> dict[str, Any]:
    """Return the runs in a few figures each, those that go on first, and all that is known of the one `wanted`.

    Args:
        only: The run, or the process, that may be seen; all if it is ''.
        wanted: The name of the run to tell all of; by default the first one of this process, or of all.
    """
    found = {}
    for name in run_names():
        if not only or is_meant(name, only):
            run = read_run(name)
            with contextlib.suppress(KeyError, TypeError, ValueError, IndexError, AttributeError):
                if run is not None:  # What is not as it should be is left out.
                    found[name] = (run, summary(name, run))
        if len(found) == _MOST_SHOWN:
            break
    order = sorted(found, key=lambda name: _rank(found[name][1]))
    own = [name for name in order if found[name][1]["pid"] == os.getpid()]
    chosen = wanted if wanted in found else next(iter(own + order), "")
    return {
        "at": time(),
        "runs": [found[name][1] for name in order],
        "run": {**found[chosen][0], **found[chosen][1]} if chosen else None,
    }


def _rank(one: dict[str, Any]) -> tuple[bool, float]:
    """Return the place of a run: those that go on first, in the order in which they began; then what ended last."""
    over = is_over(one["status"])
    return over, -one["updated_at"] if over else one["began_at"]


def summary(name: str, run: Run) -> dict[str, Any]:
    """Return a run in a few figures, as it stands at this moment."""
    report, now = run["report"], run["now"]
    word = status(name, run)
    is_on = word in ("running", "waiting")
    budget, ledger = report["budget_nbytes"], report["timeline"]["ledger_nbytes"]
    return {
        "name": name,
        "id": run["id"],
        "status": word,
        "host": run["host"],
        "pid": run["pid"],
        "command": run["command"],
        "pipeline": run["pipeline"],
        "epoch": report["epoch"],
        "rank": report["rank"],
        "world": report["world"],
        "began_at": run["began_at"],
        "updated_at": run["updated_at"],
        "error": report["error"] or run["error"],
        "progress": progress(report),
        "seconds_left": seconds_left(report) if is_on else None,
        "rows_per_second": now["rows_per_second"] if is_on else _mean(report),
        "waited_share": now["waited_share"] if is_on else _share(report),
        "memory_nbytes": (ledger[-1] if ledger else 0) if is_on else report["peak_nbytes"],
        "memory_share": (ledger[-1] if ledger and is_on else report["peak_nbytes"])
        / max(1, budget),
        "is_live": is_on,
    }


def progress(report: dict[str, Any]) -> float | None:
    """Return how much of an epoch is done, from 0 to 1; None if nobody knows."""
    expected = report["num_expected"]
    if expected is None:
        return None
    return min(1.0, report["num_elements"] / expected) if expected else 1.0


def seconds_left(report: dict[str, Any]) -> float | None:
    """Return how long an epoch will go on, at the pace of the later half of its time; None if nobody knows."""
    expected, done = report["num_expected"], report["num_elements"]
    if expected is None or not done:
        return None
    seconds, counts = report["timeline"]["seconds"], report["timeline"]["num_elements"]
    half = report["seconds"] / 2
    first = max((number for number, at in enumerate(seconds) if at <= half), default=-1)
    since, before = (seconds[first], counts[first]) if first >= 0 else (0.0, 0)
    took, made = report["seconds"] - since, done - before
    if not made:
        took, made = report["seconds"], done
    left = (expected - done) * took / made
    return float(left)


def _mean(report: dict[str, Any]) -> float:
    return float(report["num_rows"] / report["seconds"]) if report["seconds"] else 0.0


def _share(report: dict[str, Any]) -> float:
    return (
        float(min(1.0, report["waited_seconds"] / report["seconds"])) if report["seconds"] else 0.0
    )
