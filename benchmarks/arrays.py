"""The arrays of the first workload, and the check that an epoch over them is a full shuffle."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

NUM_ROWS = 200_000
NUM_FEATURES = 100
BATCH_SIZE = 32


def make(num_rows: int = NUM_ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Return x (num_rows, 100) float32 and y int32, where y is the row's number."""
    x = np.random.default_rng(0).random((num_rows, NUM_FEATURES), np.float32)
    y = np.arange(num_rows, dtype=np.int32)
    x[:, 0] = y
    return x, y


def is_every_row_shuffled(batches: Iterable, *, num_rows: int = NUM_ROWS) -> None:
    """Raise unless the batches hold every row once, x beside its y, in a random order."""
    labels = []
    for x, y in batches:
        x, y = np.asarray(x), np.asarray(y)
        if not np.array_equal(x[:, 0].astype(np.int32), y):
            raise AssertionError("x and y do not belong together")
        labels.append(y.copy())
    order = np.concatenate(labels)
    if not np.array_equal(np.sort(order), np.arange(num_rows)):
        raise AssertionError(f"{len(order)} rows are not every one of {num_rows} once")
    # Of a uniform order, neighbours are a third of the length apart on average.
    apart = np.abs(np.diff(order.astype(np.int64))).mean() / num_rows
    if not 0.32 < apart < 0.35:
        raise AssertionError(f"neighbours are {apart:.3f} of the length apart, not a third")


def is_every_row(batches: Iterable, *, num_rows: int) -> None:
    """Raise unless the batches hold every row once, x beside its y, in any order."""
    labels = []
    for x, y in batches:
        x, y = np.asarray(x), np.asarray(y)
        if not np.array_equal(x[:, 0].astype(y.dtype), y):
            raise AssertionError("x and y do not belong together")
        labels.append(y.copy())
    order = np.concatenate(labels)
    if not np.array_equal(np.sort(order), np.arange(num_rows)):
        raise AssertionError(f"{len(order)} rows are not every one of {num_rows} once")
