"""W2: 20 `.npz` files of 10,000 rows: load, unbatch, shuffle, batch 32."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import throughput

NUM_FILES = 20
ROWS_A_FILE = 10_000
NUM_ROWS = NUM_FILES * ROWS_A_FILE
BATCH_SIZE = 32


def prepare(directory: Path) -> None:
    x, y = arrays.make(NUM_ROWS)
    for number in range(NUM_FILES):
        rows = slice(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE)
        np.savez(directory / f"part-{number:02}.npz", data=x[rows], labels=y[rows])


def _files(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.glob("part-*.npz"))


def _round(
    start: Callable[[], Iterable], *, check: Callable = arrays.is_every_row_shuffled
) -> Round:
    return throughput(start, num_rows=NUM_ROWS, check=check)


def penstock(directory: Path) -> Round:
    import penstock as ps

    ds = ps.from_files(str(directory / "part-*.npz"), fields=("data", "labels"))
    # Data on storage larger than the window is mixed within it, not uniformly over the whole: the
    # check is that every row comes once. W5 measures how well a window mixes.
    return _round(
        ds.shuffle(seed=0).batch(BATCH_SIZE).__iter__,
        check=lambda batches: arrays.is_every_row(batches, num_rows=NUM_ROWS),
    )


def plain_numpy(directory: Path) -> Round:
    files = _files(directory)
    rng = np.random.default_rng(0)

    def epoch():
        parts = []
        for path in files:
            with np.load(path) as archive:
                parts.append((archive["data"], archive["labels"]))
        x = np.concatenate([data for data, _ in parts])
        y = np.concatenate([labels for _, labels in parts])
        order = rng.permutation(NUM_ROWS)
        for first in range(0, NUM_ROWS, BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            yield x.take(rows, axis=0), y.take(rows)

    return _round(epoch)


def _tf_loaded(files: list[str]):
    import tensorflow as tf

    def load(path):
        with np.load(path.numpy()) as archive:
            return archive["data"], archive["labels"]

    def load_in_graph(path):
        x, y = tf.py_function(load, [path], [tf.float32, tf.int32])
        x.set_shape((None, arrays.NUM_FEATURES))
        y.set_shape((None,))
        return x, y

    paths = tf.data.Dataset.from_tensor_slices(files).shuffle(len(files))
    return paths, load_in_graph


def tf_unbatch(directory: Path) -> Round:
    import tensorflow as tf

    paths, load = _tf_loaded(_files(directory))
    rows = paths.map(load, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    dataset = rows.shuffle(NUM_ROWS).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return _round(dataset.__iter__)


def tf_interleave(directory: Path) -> Round:
    import tensorflow as tf

    paths, load = _tf_loaded(_files(directory))
    rows = paths.interleave(
        lambda path: tf.data.Dataset.from_tensor_slices(load(path)),
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    dataset = rows.shuffle(NUM_ROWS).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return _round(dataset.__iter__)


CASES = (
    Case(
        name="w2",
        title=f"{NUM_FILES} .npz files of {ROWS_A_FILE:,} x 100 float32 + label, shuffle, batch 32",
        unit="rows/s",
        prepare=prepare,
        contenders=(
            Contender("penstock", "from_files(glob, fields).shuffle(seed=0).batch(32)", penstock),
            Contender(
                "plain NumPy", "the bare limit: np.load all, concatenate, as in w1", plain_numpy
            ),
            Contender(
                "tf.data, unbatch",
                "map(py_function, AUTOTUNE).unbatch().shuffle(n).batch(32).prefetch(AUTOTUNE)",
                tf_unbatch,
            ),
            Contender(
                "tf.data, interleave",
                "interleave(py_function, AUTOTUNE).shuffle(n).batch(32).prefetch(AUTOTUNE)",
                tf_interleave,
            ),
        ),
        bars=(times_as_fast(30, "tf.data, unbatch"),),
    ),
)
