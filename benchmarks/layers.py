"""Where the time of a batch goes: W1's batch of 32 rows of 404 bytes, layer by layer, each with all below it.

These look below the public surface on purpose; docs/where_time_goes.md explains each row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
from arrays import BATCH_SIZE, NUM_FEATURES, NUM_ROWS
from harness import Case, Contender, Round, value_at_most
from measure import Sample

NUM_BATCHES = NUM_ROWS // BATCH_SIZE
BLOCK_BATCHES = 160  # About 2 MB, as the engine's own.


def _a_batch(epoch: Callable[[], object], num_batches: int = NUM_BATCHES) -> Round:
    """Return a round that runs whole epochs and gives seconds a batch."""

    def one_round() -> Sample:
        epochs, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < 0.5:
            epoch()
            epochs += 1
        return Sample(took / (epochs * num_batches))

    epoch()
    return one_round


def _drained(make: Callable[[], Iterable]) -> Round:
    def epoch() -> None:
        for batch in make():  # noqa: B007 (a user's loop holds on to its batch as well)
            pass

    return _a_batch(epoch)


def copied(_: Path) -> Round:
    x, y = arrays.make()
    out = np.empty(BATCH_SIZE * BLOCK_BATCHES * 404, np.uint8)
    raw = [x.reshape(-1).view(np.uint8), y.view(np.uint8)]

    def epoch() -> None:
        for array in raw:
            for first in range(0, len(array), len(out)):
                piece = array[first : first + len(out)]
                np.copyto(out[: len(piece)], piece)

    return _a_batch(epoch)


def ordered(_: Path) -> Round:
    from penstock.core.order import Permutation

    step = BLOCK_BATCHES * BATCH_SIZE

    def epoch() -> None:
        order = Permutation(NUM_ROWS, (0, 0))
        for first in range(0, NUM_ROWS, step):
            order.rows(np.arange(first, min(NUM_ROWS, first + step)))

    return _a_batch(epoch)


def gathered(_: Path) -> Round:
    """Order and rows in one native call a block, into the same memory again and again."""
    from penstock import _native
    from penstock.core.arrays import raw_rows
    from penstock.core.route import Tables

    x, y = arrays.make()
    route = Tables((raw_rows(x, 1), raw_rows(y, 1))).shuffled(NUM_ROWS, (0, 0))
    wide, narrow = BATCH_SIZE * NUM_FEATURES * 4, BATCH_SIZE * 4
    columns = np.array([[0, wide], [BLOCK_BATCHES * wide, narrow]])
    memory = np.empty(BLOCK_BATCHES * (wide + narrow), np.uint8)
    step = BLOCK_BATCHES * BATCH_SIZE

    def epoch() -> None:
        for first in range(0, NUM_ROWS, step):
            parts = route.parts(first, min(NUM_ROWS, first + step))
            _native.Job(parts, memory, columns, BATCH_SIZE).run()

    return _a_batch(epoch)


def handed_out(_: Path) -> Round:
    """Views of batches that are in memory, as a stream hands them out."""
    x, y = arrays.make()
    xs, ys = x.reshape(NUM_BATCHES, BATCH_SIZE, -1), y.reshape(NUM_BATCHES, BATCH_SIZE)
    return _drained(lambda: zip(xs, ys, strict=False))


def _dataset():
    import penstock as ps

    return ps.from_arrays(arrays.make()).shuffle(seed=0).batch(BATCH_SIZE)


def _streamed(threads: int | None) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        ds = _dataset()
        ds = ds.prefetch(0) if threads == 0 else ds.with_options(threads=threads)
        return _drained(ds.__iter__)

    return start


def by_torch(_: Path) -> Round:
    feed = _dataset().to_torch()
    return _drained(feed.__iter__)


def by_jax(_: Path) -> Round:
    feed = _dataset().to_jax()
    return _drained(feed.__iter__)


def mapped(_: Path) -> Round:
    ds = _dataset().map(lambda x, y: (x * 2, y))
    return _drained(ds.__iter__)


def function_alone(_: Path) -> Round:
    x, y = (array[:BATCH_SIZE] for array in arrays.make())

    def epoch() -> None:
        for _ in range(NUM_BATCHES):
            x * 2, y.copy()

    return _a_batch(epoch)


def block_cost(threads: int) -> Callable[[Path], Round]:
    """Return what a block costs besides its bytes: the time of a stream less that of its native calls, a block."""

    def start(_: Path) -> Round:
        import penstock as ps
        from penstock.engine.plan import plan

        plan.BLOCK_NBYTES = 1 << 17  # Small, so that there are many.
        x = np.ones((50_000, 1_000), np.float32)
        ds = ps.from_arrays((x, np.arange(50_000))).shuffle(seed=0).batch(32)
        ds = ds.with_options(threads=threads) if threads else ds.prefetch(0)

        def one_round() -> Sample:
            with ds.stream() as stream:
                began = time.perf_counter()
                for batch in stream:  # noqa: B007
                    pass
                took = time.perf_counter() - began
                report = stream.report()
            native = sum(stage.seconds for stage in report.stages) / max(1, threads)
            return Sample((took - native) / report.num_blocks)

        one_round()
        return one_round

    return start


CASES = (
    Case(
        name="layers",
        title="where the time of W1's batch goes, layer by layer",
        unit="s",
        higher_is_better=False,
        contenders=(
            Contender("bytes copied", "a limit: the same bytes in order, 2 MB at a time", copied),
            Contender("order", "which rows: a block's row numbers, one call", ordered),
            Contender("order and rows", "a native job a block: order and gather", gathered),
            Contender("handed out", "views of batches that are there: zip of arrays", handed_out),
            Contender("stream, no threads", "prefetch(0): all of it, on one core", _streamed(0)),
            Contender("stream, one thread", "threads=1: blocks made beside", _streamed(1)),
            Contender("penstock", "as it is: a thread for each core", _streamed(None)),
            Contender("to_torch", "tensors over the same memory", by_torch),
            Contender("to_jax", "arrays over the same memory", by_jax),
            Contender("function alone", "x * 2, y.copy() on a batch that stays", function_alone),
            Contender("map", "batch(32).map(x * 2), at the hand-over", mapped),
        ),
    ),
    Case(
        name="layers-block",
        title="what a block costs besides its bytes",
        unit="s",
        higher_is_better=False,
        contenders=(
            Contender("penstock", "no threads", block_cost(0)),
            Contender("two threads", "threads=2", block_cost(2)),
        ),
        bars=(
            value_at_most(20e-6, "under 20 us without threads", unit="s"),
            value_at_most(40e-6, "under 40 us with two", unit="s", subject="two threads"),
        ),
    ),
)
