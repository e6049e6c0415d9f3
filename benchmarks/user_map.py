"""Map functions that are NumPy all the way, and a consumer that is slow: what penstock adds to either."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
from harness import Case, Contender, Round, times_as_fast, value_at_most
from measure import Sample, throughput

NUM_ROWS = 200_000
STEP_SECONDS = 0.02
NUM_STEPS = 150


def _normalised(x: np.ndarray) -> Callable:
    mean, deviation = x.mean(axis=0), x.std(axis=0) + 1e-6

    def normalise(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (x - mean) / deviation, y

    return normalise


def _penstock(batch_size: int) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        import penstock as ps

        x, y = arrays.make(NUM_ROWS)
        ds = ps.from_arrays((x, y)).shuffle(seed=0).batch(batch_size).map(_normalised(x))
        return throughput(ds.__iter__, num_rows=NUM_ROWS, batch_size=batch_size)

    return start


def _by_hand(batch_size: int) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        x, y = arrays.make(NUM_ROWS)
        normalise = _normalised(x)
        rng = np.random.default_rng(0)

        def epoch() -> Iterable:
            order = rng.permutation(NUM_ROWS)
            for first in range(0, NUM_ROWS, batch_size):
                rows = order[first : first + batch_size]
                yield normalise(x.take(rows, axis=0), y.take(rows))

        return throughput(epoch, num_rows=NUM_ROWS, batch_size=batch_size)

    return start


def stalled(_: Path) -> Round:
    """Return a round that gives the share of the time that a slow consumer waits for data."""
    import penstock as ps

    x, y = arrays.make(NUM_ROWS)
    ds = ps.from_arrays((x, y)).shuffle(seed=0).batch(32).map(_normalised(x))

    def one_round() -> Sample:
        with ds.stream() as stream:
            next(stream)
            waited = 0.0
            began = time.perf_counter()
            for _ in range(NUM_STEPS):
                asked = time.perf_counter()
                next(stream)
                waited += time.perf_counter() - asked
                time.sleep(STEP_SECONDS)
            return Sample(100 * waited / (time.perf_counter() - began))

    return one_round


CASES = (
    *(
        Case(
            name=f"map-{batch_size}",
            title=f"a map that is NumPy all the way: shuffle, batch {batch_size}, normalise",
            unit="rows/s",
            contenders=(
                Contender("penstock", "shuffle(seed=0).batch(n).map(f)", _penstock(batch_size)),
                Contender("by hand", "permutation, take, f in a loop", _by_hand(batch_size)),
            ),
            bars=(times_as_fast(0.9, "by hand"),),
        )
        for batch_size in (32, 256, 1024)
    ),
    Case(
        name="stall",
        title="a consumer that takes 20 ms a batch: how much of its time it waits for data",
        unit="%",
        higher_is_better=False,
        rounds=3,
        contenders=(Contender("penstock", "shuffle, batch 32, map(normalise)", stalled),),
        bars=(value_at_most(2, "under 2 % of the time", unit="%"),),
    ),
)
