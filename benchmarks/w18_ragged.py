"""W18: ragged rows of 5 to 200 int32, shuffled, padded batches of 32."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import throughput

NUM_ROWS = 100_000
SHORTEST, LONGEST = 5, 200
BATCH_SIZE = 32


def _rows() -> list[np.ndarray]:
    """Return rows whose first value is their number, the second their length, and none else is 0."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(SHORTEST, LONGEST + 1, NUM_ROWS)
    rows = [rng.integers(1, 1000, length).astype(np.int32) for length in lengths]
    for number, row in enumerate(rows):
        row[:2] = number, len(row)
    return rows


def _is_every_row_padded(batches: Iterable) -> None:
    """Raise unless every row comes once, in a random order, with zeros behind it up to the longest."""
    order = []
    for batch in batches:
        batch = np.asarray(batch)
        lengths = batch[:, 1]
        is_padding = np.arange(batch.shape[1]) >= lengths[:, None]
        if batch.shape[1] != lengths.max() or not np.array_equal(
            batch[:, 1:] == 0, is_padding[:, 1:]
        ):
            raise AssertionError("rows are not padded to the longest of their batch")
        order.append(batch[:, 0].copy())
    rows = np.concatenate(order)
    if not np.array_equal(np.sort(rows), np.arange(NUM_ROWS)):
        raise AssertionError(f"{len(rows)} rows are not every one of {NUM_ROWS} once")
    # Of a uniform order, neighbours are a third of the length apart on average.
    apart = np.abs(np.diff(rows.astype(np.int64))).mean() / NUM_ROWS
    if not 0.32 < apart < 0.35:
        raise AssertionError(f"neighbours are {apart:.3f} of the length apart, not a third")


def _round(start: Callable[[], Iterable], *, at_most: float | None = None) -> Round:
    return throughput(start, num_rows=NUM_ROWS, check=_is_every_row_padded, at_most=at_most)


def prepare(directory: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    import penstock as ps

    rows = _rows()
    pq.write_table(pa.table({"x": pa.array(rows)}), directory / "lists.parquet")
    ps.from_arrays(rows).write(directory / "shards")


def penstock(_: Path) -> Round:
    import penstock as ps

    return _round(ps.from_arrays(_rows()).shuffle(seed=0).padded_batch(BATCH_SIZE).__iter__)


def penstock_parquet(directory: Path) -> Round:
    import penstock as ps

    ds = ps.from_files(directory / "lists.parquet", fields="x").shuffle(seed=0)
    return _round(ds.padded_batch(BATCH_SIZE).__iter__)


def penstock_shards(directory: Path) -> Round:
    import penstock as ps

    ds = ps.from_files(directory / "shards").shuffle(seed=0)
    return _round(ds.padded_batch(BATCH_SIZE).__iter__)


def plain_numpy(_: Path) -> Round:
    rows = _rows()
    rng = np.random.default_rng(0)

    def epoch():
        order = rng.permutation(NUM_ROWS).tolist()
        for first in range(0, NUM_ROWS, BATCH_SIZE):
            some = [rows[number] for number in order[first : first + BATCH_SIZE]]
            batch = np.zeros((len(some), max(map(len, some))), np.int32)
            for place, row in enumerate(some):
                batch[place, : len(row)] = row
            yield batch

    return _round(epoch)


def tf_slices(_: Path) -> Round:
    import tensorflow as tf

    rows = _rows()
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(rows), [len(row) for row in rows])
    # padded_batch takes tensors: a map makes one of each ragged slice.
    dataset = tf.data.Dataset.from_tensor_slices(ragged).map(
        lambda row: row, num_parallel_calls=tf.data.AUTOTUNE
    )
    dataset = dataset.shuffle(NUM_ROWS).padded_batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return _round(dataset.__iter__, at_most=4.0)


def tf_ragged_batch(_: Path) -> Round:
    import tensorflow as tf

    rows = _rows()
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(rows), [len(row) for row in rows])
    dataset = tf.data.Dataset.from_tensor_slices(ragged).shuffle(NUM_ROWS).batch(BATCH_SIZE)
    dataset = dataset.map(lambda batch: batch.to_tensor(), num_parallel_calls=tf.data.AUTOTUNE)
    return _round(dataset.prefetch(tf.data.AUTOTUNE).__iter__, at_most=4.0)


def tf_generator(_: Path) -> Round:
    import tensorflow as tf

    rows = _rows()
    signature = tf.TensorSpec((None,), tf.int32)
    dataset = tf.data.Dataset.from_generator(lambda: iter(rows), output_signature=signature)
    dataset = dataset.shuffle(NUM_ROWS).padded_batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return _round(dataset.__iter__, at_most=30.0)


CASES = (
    Case(
        name="w18",
        title=f"{NUM_ROWS:,} rows of {SHORTEST} to {LONGEST} int32, shuffled, padded batches of 32",
        unit="rows/s",
        rounds=3,
        prepare=prepare,
        contenders=(
            Contender("penstock", "from_arrays(list).shuffle(seed=0).padded_batch(32)", penstock),
            Contender("penstock, Parquet", "the same from a column of lists", penstock_parquet),
            Contender("penstock, shards", "the same from what write() wrote", penstock_shards),
            Contender("plain NumPy", "permutation, a loop over the rows of a batch", plain_numpy),
            Contender(
                "tf.data, padded_batch",
                "from_tensor_slices(ragged).map(AUTOTUNE).shuffle(n).padded_batch(32).prefetch(AUTOTUNE)",
                tf_slices,
            ),
            Contender(
                "tf.data, to_tensor",
                "from_tensor_slices(ragged).shuffle(n).batch(32).map(to_tensor, AUTOTUNE).prefetch(AUTOTUNE)",
                tf_ragged_batch,
            ),
            Contender(
                "tf.data, generator",
                "from_generator.shuffle(n).padded_batch(32).prefetch(AUTOTUNE)",
                tf_generator,
            ),
        ),
        bars=(
            times_as_fast(30, "tf.data, padded_batch"),
            times_as_fast(30, "tf.data, to_tensor"),
            times_as_fast(30, "tf.data, generator"),
        ),
    ),
)
