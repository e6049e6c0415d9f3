"""W16: what `distribute` costs a rank, what a second rank brings, and how much of a file each rank reads."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from functools import partial
from pathlib import Path

import arrays
import numpy as np
from arrays import BATCH_SIZE, NUM_ROWS
from harness import Bar, Case, Contender, Outcomes, Round, times_as_fast
from measure import Sample, throughput

FILE_ROWS = 5_000_000  # 2 GB.
FILE_WIDTH = 100
FILE_NBYTES = 4 * FILE_ROWS * FILE_WIDTH
WINDOW_NBYTES = 64 << 20
MANY_ROWS = 10**11
MANY_RANKS = 1024


def for_two() -> tuple[np.ndarray, np.ndarray]:
    """Return the arrays of w1 twice, so that each of two ranks has a w1 of its own."""
    x, y = arrays.make()
    return np.concatenate([x, x]), np.concatenate([y, y])


def rank_of_two(_: Path, *, uneven: str | None = None) -> Round:
    import penstock as ps

    ds = ps.from_arrays(for_two()).shuffle(seed=0).batch(2 * BATCH_SIZE)
    ds = ds.distribute(rank=1, world=2, uneven=uneven)
    return throughput(ds.__iter__, num_rows=NUM_ROWS)


def not_distributed(_: Path) -> Round:
    """Return a round over as many rows as a rank has, in batches as large."""
    import penstock as ps

    ds = ps.from_arrays(for_two()).shuffle(seed=0).take(NUM_ROWS).batch(BATCH_SIZE)
    return throughput(ds.__iter__, num_rows=NUM_ROWS)


def paired(at_least: float, over: str) -> Bar:
    """Return the bar on the median of the ratios of rounds that ran one after the other."""

    def value(_: Case, outcomes: Outcomes) -> float:
        ours, theirs = outcomes["penstock"].samples, outcomes[over].samples
        return statistics.median(a.value / b.value for a, b in zip(ours, theirs, strict=True))

    return Bar(f"median of pairs at least {at_least:g}x {over}", value, at_least=at_least)


def make_file(directory: Path) -> None:
    x = np.lib.format.open_memmap(directory / "x.npy", "w+", np.float32, (FILE_ROWS, FILE_WIDTH))
    for first in range(0, FILE_ROWS, 100_000):
        x[first : first + 100_000] = np.arange(first, first + 100_000)[:, None]


def ranks(directory: Path, *, world: int) -> Round:
    """Return a round in which all ranks, of one thread each, read the warm file; its value is rows a second of all."""
    context = multiprocessing.get_context("spawn")

    def one_round() -> Sample:
        # To begin and to end together: how long processes take to start and to exit is not counted.
        gate = context.Barrier(world + 1, timeout=600)
        readers = [
            context.Process(target=_read, args=(directory, rank, world, gate))
            for rank in range(world)
        ]
        for one in readers:
            one.start()
        gate.wait()
        began = time.perf_counter()
        gate.wait()
        seconds = time.perf_counter() - began
        for one in readers:
            one.join()
        return Sample(FILE_ROWS / seconds)

    return one_round


def _part(directory: Path, rank: int, world: int):
    import penstock as ps

    ds = ps.from_files(directory / "x.npy").shuffle(seed=0).batch(960)
    return ds.distribute(rank=rank, world=world, uneven="drop").with_options(threads=1)


def _read(directory: Path, rank: int, world: int, gate) -> None:
    ds = _part(directory, rank, world)
    gate.wait()
    for _ in ds:
        pass
    gate.wait()


def share_read(directory: Path, *, world: int) -> Round:
    """Return a round whose value is the part of the file that one rank reads, as the kernel counts it."""

    def one_round() -> Sample:
        found = []
        for rank in {0, world - 1}:
            before = _num_read()
            for _ in _part(directory, rank, world):
                pass
            found.append((_num_read() - before) / FILE_NBYTES)
        return Sample(max(found))

    return one_round


def _num_read() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("rchar")).split()[1])


def make_sparse_file(directory: Path) -> None:
    """Make a file of 10 TB, none of which is on disk: nothing of it is read but its header."""
    with (directory / "x.npy").open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (MANY_ROWS, 25)}
        np.lib.format.write_array_header_1_0(file, header)
        file.truncate(file.tell() + 100 * MANY_ROWS)


def plan_many(directory: Path) -> Round:
    """Return a round whose value is the time, in ms, that one of 1,024 ranks takes until it could read."""
    import penstock as ps
    from penstock.engine.plan import make_plan

    ds = ps.from_files(directory / "x.npy").shuffle(seed=0).batch(MANY_RANKS * 32)

    def one_round() -> Sample:
        seconds, steps = [], set()
        for rank in range(MANY_RANKS):
            began = time.perf_counter()
            part = ds.distribute(rank=rank, world=MANY_RANKS, uneven="drop")
            make_plan(part.node, part.options)
            seconds.append(time.perf_counter() - began)
            steps.add(len(part))
        if len(steps) != 1:
            raise AssertionError(f"ranks differ in their steps: {steps}")
        return Sample(1e3 * statistics.median(seconds))

    return one_round


def _plan_bar() -> Bar:
    def value(_: Case, outcomes: Outcomes) -> float:
        return min(sample.value for sample in outcomes["penstock"].samples)

    return Bar("at most 10 ms a rank", value, at_most=10, unit="ms")


def _share_bar(world: int) -> Bar:
    limit = 1.1 / world + WINDOW_NBYTES / FILE_NBYTES
    name = _named(world)

    def value(_: Case, outcomes: Outcomes) -> float:
        return max(sample.value for sample in outcomes[name].samples)

    return Bar(f"{name}: at most {limit:.3f} of the file", value, at_most=limit, unit="")


def _named(world: int) -> str:
    return "penstock" if world == 1 else f"a rank of {world}"


CASES = (
    Case(
        name="w16-cost",
        title="arrays in RAM as in w1 for each of two ranks: one of them against a dataset of that size",
        unit="rows/s",
        rounds=21,
        contenders=(
            Contender("penstock", "shuffle().batch(64).distribute(rank=1, world=2)", rank_of_two),
            Contender("not distributed", "shuffle().take(n / 2).batch(32)", not_distributed),
        ),
        bars=(paired(0.95, "not distributed"),),
    ),
    Case(
        name="w16-pad",
        title='the same with uneven="pad", which gives a weight for each row',
        unit="rows/s",
        rounds=21,
        contenders=(
            Contender(
                "penstock",
                'shuffle().batch(64).distribute(rank=1, world=2, uneven="pad")',
                partial(rank_of_two, uneven="pad"),
            ),
            Contender("not distributed", "shuffle().take(n / 2).batch(32)", not_distributed),
        ),
    ),
    Case(
        name="w16-ranks",
        title="a warm file of 2 GB, shuffled: two ranks of one thread against one",
        unit="rows/s",
        prepare=make_file,
        contenders=(
            Contender("penstock", "2 processes, a rank each", partial(ranks, world=2)),
            Contender("one rank", "1 process", partial(ranks, world=1)),
        ),
        bars=(times_as_fast(1.6, "one rank"),),
    ),
    Case(
        name="w16-bytes",
        title="the part of a file of 2 GB that a rank reads, shuffled in windows of 64 MB",
        unit="of the file",
        rounds=1,
        higher_is_better=False,
        prepare=make_file,
        contenders=tuple(
            Contender(_named(world), f"distribute(world={world})", partial(share_read, world=world))
            for world in (1, 2, 4, 8)
        ),
        bars=tuple(_share_bar(world) for world in (2, 4, 8)),
    ),
    Case(
        name="w16-plan",
        title="the plan of each of 1,024 ranks over 10^11 rows",
        unit="ms",
        rounds=3,
        higher_is_better=False,
        prepare=make_sparse_file,
        contenders=(Contender("penstock", "distribute(world=1024) and its plan", plan_many),),
        bars=(_plan_bar(),),
    ),
)
