"""W3: a Python generator that yields one row and a label at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import throughput

NUM_ROWS = 200_000
NUM_FEATURES = 100
BATCH_SIZE = 32

Rows = Callable[[], Iterator]


def same_row() -> Iterator:
    """Yield one prebuilt row again and again: the cost is all in whoever takes it."""
    row = np.arange(NUM_FEATURES, dtype=np.float32), np.int32(7)
    for _ in range(NUM_ROWS):
        yield row


def new_row() -> Iterator:
    """Yield a row that was made for it, as most generators do."""
    rng = np.random.default_rng(0)
    label = np.int32(7)
    for _ in range(NUM_ROWS):
        yield rng.random(NUM_FEATURES, np.float32), label


def _checked(rows: Rows) -> Callable[[Iterable], None]:
    def check(batches: Iterable) -> None:
        # The first batches are enough: the slowest contender would take a minute for all.
        expected = list(itertools.islice(rows(), 2 * BATCH_SIZE))
        for number, (x, y) in enumerate(itertools.islice(batches, 2)):
            x, y = np.asarray(x), np.asarray(y)
            if (x.shape, y.shape) != ((BATCH_SIZE, NUM_FEATURES), (BATCH_SIZE,)):
                raise AssertionError(f"a batch has shapes {x.shape} and {y.shape}")
            if (x.dtype, y.dtype) != (np.float32, np.int32):
                raise AssertionError(f"a batch has dtypes {x.dtype} and {y.dtype}")
            for position in range(BATCH_SIZE):
                row, label = expected[number * BATCH_SIZE + position]
                if not np.array_equal(x[position], row) or y[position] != label:
                    raise AssertionError(f"row {number * BATCH_SIZE + position} is another")

    return check


def _round(start: Callable[[], Iterable], rows: Rows, *, at_most: float | None = None) -> Round:
    return throughput(start, num_rows=NUM_ROWS, check=_checked(rows), at_most=at_most)


def _penstock(rows: Rows) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        import penstock as ps

        spec = (ps.ArraySpec((NUM_FEATURES,), "float32"), ps.ArraySpec((), "int32"))
        return _round(ps.from_generator(rows, spec=spec).batch(BATCH_SIZE).__iter__, rows)

    return start


def _bare_loop(rows: Rows) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        x = np.empty((BATCH_SIZE, NUM_FEATURES), np.float32)
        y = np.empty(BATCH_SIZE, np.int32)

        def epoch() -> Iterator:
            position = 0
            for row, label in rows():
                x[position] = row
                y[position] = label
                position += 1
                if position == BATCH_SIZE:
                    yield x, y
                    position = 0

        return _round(epoch, rows)

    return start


def _tf_data(rows: Rows) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        import tensorflow as tf

        signature = (
            tf.TensorSpec((NUM_FEATURES,), tf.float32),
            tf.TensorSpec((), tf.int32),
        )
        dataset = tf.data.Dataset.from_generator(rows, output_signature=signature)
        dataset = dataset.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
        return _round(dataset.__iter__, rows, at_most=3.0)

    return start


def _torch(rows: Rows) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        from torch.utils.data import DataLoader, IterableDataset

        class Stream(IterableDataset):
            def __iter__(self) -> Iterator:
                return rows()

        loader = DataLoader(Stream(), batch_size=BATCH_SIZE)
        return _round(loader.__iter__, rows, at_most=3.0)

    return start


def _case(name: str, what: str, rows: Rows) -> Case:
    bars = [times_as_fast(0.7, "bare loop")]
    if rows is same_row:
        bars.append(times_as_fast(30, "tf.data"))
    return Case(
        name=name,
        title=f"a generator of (100,) float32 rows and labels, {what}, batch 32",
        unit="rows/s",
        contenders=(
            Contender("penstock", "from_generator(f, spec).batch(32)", _penstock(rows)),
            Contender(
                "bare loop",
                "the bare limit: copies rows into one batch",
                _bare_loop(rows),
            ),
            Contender(
                "tf.data",
                "from_generator(output_signature).batch(32).prefetch(AUTOTUNE)",
                _tf_data(rows),
            ),
            Contender("torch", "DataLoader(IterableDataset, batch_size=32)", _torch(rows)),
        ),
        bars=tuple(bars),
    )


CASES = (
    _case("w3a", "the same prebuilt row each time", same_row),
    _case("w3b", "rng.random(100) each time", new_row),
)
