"""What it costs that a stream is measured: W1 as it is, against W1 without samples, spans and counts of rows.

Or against another version of penstock, from before: PENSTOCK_BEFORE=PATH/TO/python names an interpreter that has it.
An epoch of each in turn, since nothing else is quiet enough for a difference of a percent.

And what it costs to watch it: W1 with watch=True, about a second of each in turn, since it is written once a second.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import arrays
from arrays import BATCH_SIZE
from harness import Bar, Case, Contender, Outcomes, Round
from measure import Sample

EPOCHS = 30  # Of each, for one pair.
PAIRS = 21
WATCHED_EPOCHS = 60  # About a second: what a thread does once a second is in each.


def serve(kind: str) -> None:
    """In a process of its own: run some epochs for each line of input, and answer with their seconds."""
    if kind == "unmeasured":
        _measure_nothing()
    import penstock as ps

    ds = ps.from_arrays(arrays.make()).shuffle(seed=0).batch(BATCH_SIZE)
    if kind == "watched":
        ds = ds.with_options(watch=True)
    count = WATCHED_EPOCHS if "watched" in kind else 1
    for number, _ in enumerate(sys.stdin):
        began = 0.0
        for epoch in range(count if number else 5):  # The first time to warm up.
            if epoch == 0 or not number:
                began = time.perf_counter()
            for batch in ds:  # noqa: B007 (a user's loop holds on to its batch as well)
                pass
        print(time.perf_counter() - began, flush=True)


def _measure_nothing() -> None:
    """Switch off what a report needs besides the time of each stage."""
    from penstock.core import clock
    from penstock.engine.stream import meter

    clock.SHORTEST = float("inf")
    meter._COSTS = 1e9  # noqa: SLF001  # After the first sample there is no second.
    meter.Meter.used = lambda *_: None


def _process(python: str, argument: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, __file__, argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _epoch(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def pairs(_: Path) -> Round:
    before = os.environ.get("PENSTOCK_BEFORE")
    one = _process(sys.executable, "measured")
    other = _process(before or sys.executable, "measured" if before else "unmeasured")
    for process in (one, other):
        _epoch(process)

    def one_round() -> Sample:
        took: dict[subprocess.Popen[str], list[float]] = {one: [], other: []}
        for number in range(EPOCHS):
            for process in (one, other) if number % 2 else (other, one):
                took[process].append(_epoch(process))
        return Sample(statistics.median(took[one]) / statistics.median(took[other]))

    return one_round


def watched_pairs(_: Path) -> Round:
    watched, plain = _process(sys.executable, "watched"), _process(sys.executable, "unwatched")
    for process in (watched, plain):
        _epoch(process)
    turns = itertools.cycle([(watched, plain), (plain, watched)])

    def one_round() -> Sample:
        took = {process: _epoch(process) for process in next(turns)}
        return Sample(took[watched] / took[plain])

    return one_round


def _median(case: Case, outcomes: Outcomes) -> float:
    return case.median(outcomes["penstock"])


CASES = (
    Case(
        name="report-cost",
        title=f"arrays in RAM as in w1: measured for a report, over not; {EPOCHS} epochs of each in turn",
        unit="x",
        higher_is_better=False,
        rounds=PAIRS,
        contenders=(Contender("penstock", "from_arrays((x, y)).shuffle(seed=0).batch(32)", pairs),),
        bars=(Bar(f"the median of {PAIRS} pairs at most 1.02x", _median, at_most=1.02),),
    ),
    Case(
        name="watch-cost",
        title=f"arrays in RAM as in w1: with watch=True, over without; {WATCHED_EPOCHS} epochs of each in turn",
        unit="x",
        higher_is_better=False,
        rounds=PAIRS,
        contenders=(
            Contender(
                "penstock",
                "from_arrays((x, y)).shuffle(seed=0).batch(32).with_options(watch=True)",
                watched_pairs,
            ),
        ),
        bars=(Bar(f"the median of {PAIRS} pairs at most 1.01x", _median, at_most=1.01),),
    ),
)

if __name__ == "__main__":
    serve(sys.argv[1])
