"""Two bars of the engine: making the order, and gathering the rows it names.

These look below the public surface on purpose: `w1` says whether the whole is fast, these say which
part is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, time_at_most
from measure import Sample, throughput

BLOCK_ROWS = 4096
NUM_FEATURES = 100


def _cost_a_row(work: Callable[[int], object], *, num_blocks: int, at_least: float = 0.3) -> Round:
    """Return a round that calls `work` with block numbers in turn and gives seconds a row."""

    def one_round() -> Sample:
        blocks, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < at_least:
            work(blocks % num_blocks)
            blocks += 1
        return Sample(took / (blocks * BLOCK_ROWS))

    one_round()
    return one_round


def _order(num_rows: int) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        from penstock.core.order import Permutation

        permutation = Permutation(num_rows, (0, 0))
        # Spread over the whole range: the cost must not depend on where a block lies.
        firsts = np.linspace(0, num_rows - BLOCK_ROWS, 24).astype(np.int64)
        blocks = [np.arange(first, first + BLOCK_ROWS) for first in firsts]
        return _cost_a_row(lambda block: permutation.rows(blocks[block]), num_blocks=24)

    return start


def _numpy_order(_: Path) -> Round:
    rng = np.random.default_rng(0)
    num_rows = 100_000

    def one_round() -> Sample:
        repeats, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < 0.3:
            rng.permutation(num_rows)
            repeats += 1
        return Sample(took / (repeats * num_rows))

    return one_round


def _blocks_of_rows(num_rows: int) -> np.ndarray:
    order = np.random.default_rng(0).permutation(num_rows)
    return order[: num_rows // BLOCK_ROWS * BLOCK_ROWS].reshape(-1, BLOCK_ROWS)


def _array(num_rows: int) -> np.ndarray:
    # Written in full: pages that were never touched all read from one page of zeros.
    return np.ones((num_rows, NUM_FEATURES), np.float32)


def _kernel(num_rows: int) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        from penstock import _native

        x, blocks = _array(num_rows), _blocks_of_rows(num_rows)
        source = x.view(np.uint8)
        out = np.empty((1, BLOCK_ROWS, source.shape[1]), np.uint8)
        return _cost_a_row(
            lambda block: _native.gather(source, blocks[block], out), num_blocks=len(blocks)
        )

    return start


def _take(num_rows: int) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        x, blocks = _array(num_rows), _blocks_of_rows(num_rows)
        out = np.empty((BLOCK_ROWS, NUM_FEATURES), np.float32)
        # mode="clip" is what NumPy's own page advises: "raise" buffers the output.
        return _cost_a_row(
            lambda block: np.take(x, blocks[block], axis=0, out=out, mode="clip"),
            num_blocks=len(blocks),
        )

    return start


def _stream(num_rows: int) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        import penstock as ps

        ds = ps.from_arrays(_array(num_rows)).shuffle(seed=0).batch(BLOCK_ROWS)
        rate = throughput(ds.__iter__, num_rows=num_rows, batch_size=BLOCK_ROWS)
        rate()
        return lambda: Sample(1 / rate().value)

    return start


def _gather_case(name: str, num_rows: int) -> Case:
    nbytes = num_rows * NUM_FEATURES * 4
    return Case(
        name=name,
        title=f"gathering random rows of 400 bytes from {nbytes // 10**6} MB, blocks of 4,096",
        unit="s",
        higher_is_better=False,
        contenders=(
            Contender("penstock", "the gather kernel alone", _kernel(num_rows)),
            Contender(
                "penstock, whole",
                "from_arrays(x).shuffle(seed=0).batch(4096), the order included",
                _stream(num_rows),
            ),
            Contender("np.take", "the bare limit: out=, mode='clip'", _take(num_rows)),
        ),
        bars=(
            time_at_most(1.25, "np.take"),
            time_at_most(1.25, "np.take", subject="penstock, whole"),
        ),
    )


SMALL, LARGE = "penstock, 1e5 rows", "penstock, 2**40 rows"

CASES = (
    Case(
        name="order",
        title="making the order: time a row, by number of rows",
        unit="s",
        higher_is_better=False,
        contenders=(
            Contender(SMALL, "Permutation(100_000).rows, blocks of 4,096", _order(100_000)),
            Contender(LARGE, "Permutation(2**40).rows, blocks of 4,096", _order(2**40)),
            Contender("NumPy", "rng.permutation(100_000), all of it at once", _numpy_order),
        ),
        # 'The same' within what two runs of the same thing differ by here.
        bars=(time_at_most(1.1, SMALL, subject=LARGE),),
    ),
    _gather_case("gather-80MB", 200_000),
    _gather_case("gather-800MB", 2_000_000),
)
