"""W10: `map` with Python that holds the interpreter lock, about 100 us a row."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import Sample, throughput

NUM_ROWS = 60_000
BATCH_SIZE = 32
# Start of processes and filling of queues; the bar is on the steady state.
SKIP_ROWS = 16_000
NUM_WORKERS = 2


def busy(x: np.ndarray, y: np.integer) -> tuple[np.ndarray, np.integer]:
    """Return the row as it came, after about 100 us of Python that nothing else can overlap."""
    total = 0
    for number in range(1_600):
        total = (total * 31 + number) & 0xFFFF
    if total < 0:
        raise AssertionError("the loop above must not be optimised away")
    return x, y


def _round(start: Callable[[], Iterable]) -> Round:
    return throughput(
        start,
        num_rows=NUM_ROWS,
        check=lambda batches: arrays.is_every_row(batches, num_rows=NUM_ROWS),
        skip_rows=SKIP_ROWS,
    )


def penstock(_: Path) -> Round:
    import penstock as ps

    ds = ps.from_arrays(arrays.make(NUM_ROWS)).map(busy).batch(BATCH_SIZE)
    return _round(ds.__iter__)


def one_process(_: Path) -> Round:
    x, y = arrays.make(NUM_ROWS)

    def epoch() -> Iterable:
        for first in range(0, NUM_ROWS, BATCH_SIZE):
            rows = [busy(x[row], y[row]) for row in range(first, first + BATCH_SIZE)]
            yield np.stack([row for row, _ in rows]), np.stack([label for _, label in rows])

    return _round(epoch)


def two_processes(_: Path) -> Round:
    """Return a round that hands nothing over: what two processes can reach on this machine now."""
    context = multiprocessing.get_context("fork")
    rows_each = (NUM_ROWS - SKIP_ROWS) // NUM_WORKERS

    def one_round() -> Sample:
        gate = context.Barrier(NUM_WORKERS + 1)
        workers = [
            context.Process(target=_busy_rows, args=(rows_each, gate)) for _ in range(NUM_WORKERS)
        ]
        for worker in workers:
            worker.start()
        gate.wait()
        began = time.perf_counter()
        for worker in workers:
            worker.join()
        return Sample(NUM_WORKERS * rows_each / (time.perf_counter() - began))

    return one_round


def _busy_rows(num_rows: int, gate) -> None:
    x, y = np.zeros(arrays.NUM_FEATURES, np.float32), np.int32(0)
    gate.wait()
    for _ in range(num_rows):
        busy(x, y)


class _Rows:
    def __init__(self) -> None:
        self.x, self.y = arrays.make(NUM_ROWS)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row):
        return busy(self.x[row], self.y[row])


def torch_workers(_: Path) -> Round:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _Rows(), batch_size=BATCH_SIZE, num_workers=NUM_WORKERS, persistent_workers=True
    )
    return _round(loader.__iter__)


def grain_workers(_: Path) -> Round:
    import grain as gr

    # What absl flags give a program started through absl; Grain's workers read them.
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["benchmark"])
    dataset = gr.MapDataset.source(_Rows()).batch(BATCH_SIZE)
    dataset = dataset.to_iter_dataset(gr.ReadOptions(num_threads=0))
    dataset = dataset.mp_prefetch(gr.MultiprocessingOptions(num_workers=NUM_WORKERS))
    return _round(dataset.__iter__)


CASES = (
    Case(
        name="w10",
        title="map with Python that holds the interpreter lock, ~100 us a row, steady state",
        unit="rows/s",
        rounds=3,
        contenders=(
            Contender("penstock", "from_arrays((x, y)).map(f).batch(32)", penstock),
            Contender("one process", "a loop that calls f and stacks", one_process),
            Contender(
                "two processes",
                "the bare limit: f alone, nothing handed over; well below 2x one process, "
                "the machine is busy and this case says nothing",
                two_processes,
            ),
            Contender(
                "torch",
                "DataLoader(num_workers=2, persistent_workers=True), f in __getitem__",
                torch_workers,
            ),
            Contender("Grain", "mp_prefetch(num_workers=2), num_threads=0", grain_workers),
        ),
        bars=(
            times_as_fast(1.7, "one process"),
            times_as_fast(1, "torch"),
            times_as_fast(1, "Grain"),
        ),
    ),
)
