"""W17, processes: how soon an epoch after the first begins whose `map` runs in 2 worker processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import w10_python_map as w10
from harness import Case, Contender, Round, value_at_most
from measure import Sample

NUM_ROWS = 4_000
# An epoch that is begun and left: enough for both processes to have had work.
NUM_BATCHES = 40


def _round(start: Callable[[], Iterable], forget: Callable[[], None] = lambda: None) -> Round:
    """Return a round that reads a part of one epoch, and then times the first batch of the next."""

    def one_round() -> Sample:
        # Within the round: between two rounds other contenders run, for longer than idle processes are kept.
        for _ in zip(range(NUM_BATCHES), start(), strict=False):
            pass
        forget()
        began = time.perf_counter()
        batches = iter(start())
        next(batches)
        return Sample(time.perf_counter() - began)

    one_round()
    return one_round


def penstock(_: Path) -> Round:
    return _round(_dataset().__iter__)


def first_epoch(_: Path) -> Round:
    ds = _dataset()
    return _round(ds.__iter__, ds.close)


def _dataset():
    import penstock as ps

    ds = ps.from_arrays(arrays.make(NUM_ROWS)).map(w10.busy).batch(w10.BATCH_SIZE)
    return ds.with_options(processes=w10.NUM_WORKERS)


class _Rows:
    def __init__(self) -> None:
        self.x, self.y = arrays.make(NUM_ROWS)

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, row):
        return w10.busy(self.x[row], self.y[row])


def torch_workers(_: Path) -> Round:
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _Rows(), batch_size=w10.BATCH_SIZE, num_workers=w10.NUM_WORKERS, persistent_workers=True
    )
    return _round(loader.__iter__)


CASES = (
    Case(
        name="w17-processes",
        title="first batch of an epoch after the first, map of ~100 us a row in 2 processes",
        unit="s",
        rounds=7,
        higher_is_better=False,
        contenders=(
            Contender(
                "penstock",
                "from_arrays((x, y)).map(f).batch(32).with_options(processes=2)",
                penstock,
            ),
            Contender("first epoch", "the same after ds.close(): processes start", first_epoch),
            Contender(
                "torch",
                "DataLoader(num_workers=2, persistent_workers=True), f in __getitem__",
                torch_workers,
            ),
        ),
        bars=(value_at_most(0.05, "an epoch after the first begins within 50 ms", unit="s"),),
    ),
)
