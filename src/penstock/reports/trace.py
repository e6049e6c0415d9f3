"""A report as a trace of Chrome's form, which Perfetto reads: the last pieces of work, and counts over all the time."""

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from penstock.io.atomic import atomic_file
from penstock.reports.measured import Measured

# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the form: "X" is a piece of
# work, "C" a count, "i" a moment, "M" a name. Times are in microseconds.
_MICRO = 1e6


def write(report: Measured, path: str | os.PathLike[str]) -> None:
    """Write a report as a trace."""
    with atomic_file(Path(path), replace=True) as file:
        file.write(json.dumps(to_trace(report)).encode() + b"\n")


def to_trace(report: Measured) -> dict[str, Any]:
    """Return the trace: a process for each rank, a thread for each thread, all from when the first was opened."""
    ranks = report.ranks or (report,)
    first = min(one.opened_at for one in ranks)
    events = [event for one in ranks for event in _events(one, one.opened_at - first)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"epoch": report.epoch, "rows": report.num_rows, "seconds": report.seconds},
    }


def _events(report: Measured, since: float) -> Iterator[dict[str, Any]]:
    process = report.rank + 1  # A process 0 is not shown.
    name = f"penstock, epoch {report.epoch}"
    if report.world > 1:
        name += f", rank {report.rank}"
    yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    for number, thread in enumerate(report.thread_names):
        yield {
            "ph": "M",
            "name": "thread_name",
            "pid": process,
            "tid": number + 1,
            "args": {"name": thread},
        }
    for span in report.spans:
        is_wait = span.stage < 0
        yield {
            "ph": "X",
            "name": "waiting" if is_wait else report.stages[span.stage].call,
            "cat": "wait" if is_wait else "stage",
            "pid": process,
            "tid": span.thread + 1,
            "ts": (since + span.start) * _MICRO,
            "dur": span.seconds * _MICRO,
        }
    for one in report.decisions:
        yield {
            "ph": "i",
            "name": one.what,
            "cat": "decision",
            "s": "p",
            "pid": process,
            "tid": 0,
            "ts": (since + one.seconds) * _MICRO,
            "args": {"why": one.why},
        }
    for before, now in pairwise(report.timeline):
        seconds = now.seconds - before.seconds
        if seconds <= 0:
            continue
        waited = 100 * min(1.0, (now.waited_seconds - before.waited_seconds) / seconds)
        counts = {
            "rows a second": {"rows": (now.num_rows - before.num_rows) / seconds},
            "waited": {"%": waited},
            "memory": {"by the stream": now.ledger_nbytes, "held by the consumer": now.held_nbytes},
            "blocks waiting": {"blocks": now.queue},
        }
        for name, values in counts.items():
            at = (since + before.seconds) * _MICRO
            yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at, "args": values}
