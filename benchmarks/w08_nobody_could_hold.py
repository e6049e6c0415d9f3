"""W8: arrays nobody could hold, as sparse `.npy` files, in 512 MB.

Each is compared with a file a hundred times smaller, read the same way: nothing may grow with the
number of rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import npy_files
import numpy as np
from harness import Bar, Case, Contender, Outcomes, Round, fact_within, time_at_most
from measure import Sample, peak_rss

MEMORY = 512 << 20
SMALLER = "penstock, 1/100"
# Rows at least this large are read one by one, in an exact order.
WINDOWED_BELOW = 64 << 10


def _prepare(directory: Path, *, shape: tuple[int, ...], dtype: str) -> None:
    npy_files.write_sparse(directory / "large.npy", shape, dtype)
    npy_files.write_sparse(directory / "small.npy", (shape[0] // 100, *shape[1:]), dtype)


def _penstock(directory: Path, *, name: str, batch_size: int, num_batches: int) -> Round:
    import penstock as ps

    def make():
        x = np.load(directory / name, mmap_mode="r")
        return ps.from_arrays(x).shuffle(seed=0).batch(batch_size)

    if np.load(directory / name, mmap_mode="r")[0].nbytes < WINDOWED_BELOW:
        npy_files.must_explain(make(), "window")

    def one_round() -> Sample:
        began = time.perf_counter()
        ds = make()
        with ds.stream(epoch=0) as stream:
            next(stream)
            first = time.perf_counter() - began
            began = time.perf_counter()
            for _ in range(num_batches):
                next(stream)
            cost = (time.perf_counter() - began) / num_batches
        facts = {
            "first_batch": first,
            "resume_early": _resume(ds, step=1),
            "resume_late": _resume(ds, step=len(ds) - 2),
            "peak_rss": float(peak_rss()),
        }
        return Sample(cost, facts)

    return one_round


def _resume(ds, *, step: int) -> float:
    """Return the seconds from a state after `step` batches to the batch that follows it."""
    there = ds.skip(step - 1)
    with there.stream(epoch=0) as stream:
        next(stream)
        state = stream.state()
    began = time.perf_counter()
    with there.stream(epoch=0, state=state) as stream:
        next(stream)
        return time.perf_counter() - began


def _whole_array(directory: Path, *, batch_size: int, num_batches: int) -> Round:
    def one_round() -> Sample:
        x = np.load(directory / "large.npy")
        order = np.random.default_rng(0).permutation(len(x))
        began = time.perf_counter()
        for batch in range(num_batches):
            x[order[batch * batch_size : (batch + 1) * batch_size]]
        return Sample((time.perf_counter() - began) / num_batches)

    return one_round


def _no_slower_to_resume() -> Bar:
    def value(_: Case, outcomes: Outcomes) -> float:
        samples = outcomes["penstock"].samples
        if not samples:
            raise ValueError("penstock was not measured")
        late = min(sample.facts["resume_late"] for sample in samples)
        return late / min(sample.facts["resume_early"] for sample in samples)

    # 'As fast' within what two runs of the same thing differ by at some milliseconds.
    return Bar("resume at the last step as fast as at the first", value, at_most=1.25)


def _case(
    name: str,
    what: str,
    *,
    prepare: Callable[[Path], None],
    batch_size: int,
    num_batches: int,
    first: float,
) -> Case:
    def penstock(file: str) -> Callable[[Path], Round]:
        return partial(_penstock, name=file, batch_size=batch_size, num_batches=num_batches)

    how = f"from_arrays(np.load(path, mmap_mode='r')).shuffle(seed=0).batch({batch_size})"
    return Case(
        name=name,
        title=f"{what}, sparse, in {MEMORY >> 20} MB, time a batch of {batch_size}",
        unit="s",
        higher_is_better=False,
        rounds=3,
        prepare=prepare,
        contenders=(
            Contender("penstock", how, penstock("large.npy"), memory=MEMORY, fresh=True),
            Contender(
                SMALLER,
                "the same on a file 100 times smaller",
                penstock("small.npy"),
                memory=MEMORY,
                fresh=True,
            ),
            Contender(
                "plain NumPy",
                "np.load, permutation, a take a batch: MemoryError",
                partial(_whole_array, batch_size=batch_size, num_batches=num_batches),
                memory=MEMORY,
                fresh=True,
                may_fail=True,
            ),
        ),
        bars=(
            fact_within("first_batch", f"first batch within {first:g} s", unit="s", at_most=first),
            time_at_most(1.5, SMALLER),
            _no_slower_to_resume(),
        ),
    )


CASES = (
    _case(
        "w8-800GB",
        "1,000,000,000 x 100 float64 (800 GB)",
        prepare=partial(_prepare, shape=(1_000_000_000, 100), dtype="float64"),
        batch_size=32,
        # Half a gigabyte: several windows, so that filling one counts as it does in a long run.
        num_batches=20_000,
        first=0.5,
    ),
    _case(
        "w8-120GB",
        "10,000 x 1000 x 1000 x 3 float32 (120 GB)",
        prepare=partial(_prepare, shape=(10_000, 1000, 1000, 3), dtype="float32"),
        batch_size=8,
        # The small file has 12 batches and a half.
        num_batches=10,
        first=1.0,
    ),
)
