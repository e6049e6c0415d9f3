"""W17: starts. A stream opened and closed, a short epoch, thousands of files, a mix of hundreds of datasets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
from harness import Case, Contender, Round, fact_within, value_at_most
from measure import Sample, throughput

NUM_ROWS = 1_000
NUM_FILES = 20_000
NUM_DATASETS = 500
DATASET_ROWS = 2_000
WIDTH = 16
BATCH_SIZE = 32


def _each(do: Callable[[], object]) -> Round:
    """Return a round that does something for a second, and gives the seconds that it takes each time."""
    do()

    def one_round() -> Sample:
        began, count = time.perf_counter(), 0
        while (took := time.perf_counter() - began) < 1.0:
            do()
            count += 1
        return Sample(took / count)

    return one_round


# A stream opened and closed, and an epoch of 1,000 rows.


def _penstock(num_rows: int):
    import penstock as ps

    return ps.from_arrays(arrays.make(num_rows)).shuffle(seed=0).batch(BATCH_SIZE)


def _tf_data(num_rows: int):
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays.make(num_rows))
    return dataset.shuffle(num_rows).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def _torch(num_rows: int):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    dataset = TensorDataset(*(torch.from_numpy(array) for array in arrays.make(num_rows)))
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)


def penstock_open(_: Path) -> Round:
    ds = _penstock(arrays.NUM_ROWS)
    return _each(lambda: ds.stream().close())


def _iterator(make: Callable[[int], Iterable]) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        dataset = make(arrays.NUM_ROWS)
        return _each(lambda: iter(dataset))

    return start


def _short_epoch(make: Callable[[int], Iterable]) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        dataset = make(NUM_ROWS)
        arrays.is_every_row(dataset, num_rows=NUM_ROWS)

        def epoch() -> None:
            for batch in dataset:  # noqa: B007 (a user's loop holds on to its batch as well)
                pass

        return _each(epoch)

    return start


# 20,000 files.


def write_files(directory: Path) -> None:
    rows = np.random.default_rng(0).random((10, WIDTH), np.float32)
    for number in range(NUM_FILES):
        np.save(directory / f"part-{number:05d}.npy", rows + number)


def _once(do: Callable[[], int], num_rows: int) -> Round:
    def one_round() -> Sample:
        began = time.perf_counter()
        found = do()
        took = time.perf_counter() - began
        if found != num_rows:
            raise AssertionError(f"{found} rows were found, not {num_rows}")
        return Sample(took)

    one_round()
    return one_round


def penstock_files(directory: Path) -> Round:
    import penstock as ps

    return _once(lambda: len(ps.from_files(directory / "*.npy")), 10 * NUM_FILES)


def numpy_files(directory: Path) -> Round:
    def mapped() -> int:
        # Not one list of all: 65,530 mappings are the most that Linux allows a process by default.
        paths = sorted(directory.glob("*.npy"))
        return sum(len(np.load(path, mmap_mode="r")) for path in paths)

    return _once(mapped, 10 * NUM_FILES)


# A mix of 500 datasets.


def _datasets() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((DATASET_ROWS, WIDTH), np.float32) for _ in range(NUM_DATASETS)]


def write_datasets(directory: Path) -> None:
    for number, rows in enumerate(_datasets()):
        np.save(directory / f"{number:03d}.npy", rows)


def _mix_round(start: Callable[[], Iterable]) -> Round:
    # One or another dataset ends first, a little before all of its rows have come.
    num_rows = sum(len(batch) for batch in start())
    if num_rows < 0.9 * NUM_DATASETS * DATASET_ROWS:
        raise AssertionError(f"only {num_rows} rows were mixed")
    measured = throughput(start, num_rows=num_rows, at_most=2.0)

    def one_round() -> Sample:
        sample = measured()
        return Sample(sample.value, {**sample.facts, "rate": sample.value})

    return one_round


def penstock_mix(_: Path) -> Round:
    import penstock as ps

    inputs = [ps.from_arrays(one).shuffle(seed=n) for n, one in enumerate(_datasets())]
    return _mix_round(ps.mix(inputs).batch(BATCH_SIZE).__iter__)


def penstock_mix_of_files(directory: Path) -> Round:
    import penstock as ps

    inputs = [ps.from_files(path).shuffle(seed=0) for path in sorted(directory.glob("*.npy"))]
    return _mix_round(ps.mix(inputs).batch(BATCH_SIZE).__iter__)


def tf_data_mix(_: Path) -> Round:
    import tensorflow as tf

    inputs = [tf.data.Dataset.from_tensor_slices(one).shuffle(DATASET_ROWS) for one in _datasets()]
    mixed = tf.data.Dataset.sample_from_datasets(inputs, seed=0)
    dataset = mixed.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    # At 50,000 rows a second, or less, an epoch would take half a minute.
    return throughput(
        dataset.__iter__, num_rows=NUM_DATASETS * DATASET_ROWS, batch_size=BATCH_SIZE, at_most=2.0
    )


CASES = (
    Case(
        name="w17-open",
        title="a stream of W1 opened and closed, nothing read",
        unit="s",
        higher_is_better=False,
        contenders=(
            Contender("penstock", "ds.stream().close(), as in w1", penstock_open),
            Contender("tf.data", "iter(dataset), as in w1", _iterator(_tf_data)),
            Contender("torch, default", "iter(loader), as in w1", _iterator(_torch)),
        ),
        bars=(value_at_most(0.001, "opened and closed within 1 ms", unit="s"),),
    ),
    Case(
        name="w17-epoch",
        title="an epoch of 1,000 rows of 100 float32 + int32, full shuffle, batch 32",
        unit="s",
        higher_is_better=False,
        contenders=(
            Contender("penstock", "as in w1", _short_epoch(_penstock)),
            Contender("tf.data", "as in w1", _short_epoch(_tf_data)),
            Contender("torch, default", "as in w1", _short_epoch(_torch)),
        ),
        bars=(value_at_most(0.002, "an epoch of 1,000 rows within 2 ms", unit="s"),),
    ),
    Case(
        name="w17-files",
        title=f"{NUM_FILES:,} .npy files opened: their rows can be read by number",
        unit="s",
        higher_is_better=False,
        prepare=write_files,
        contenders=(
            Contender("penstock", 'from_files("*.npy")', penstock_files),
            Contender("plain NumPy", 'np.load(path, mmap_mode="r") of each', numpy_files),
        ),
        bars=(value_at_most(1.0, f"{NUM_FILES:,} files opened within 1 s", unit="s"),),
    ),
    Case(
        name="w17-mix",
        title=f"a mix of {NUM_DATASETS} shuffled datasets of {DATASET_ROWS:,} x {WIDTH} float32, batch 32",
        unit="rows/s",
        prepare=write_datasets,
        contenders=(
            Contender("penstock", "mix([from_arrays(x).shuffle() ...]).batch(32)", penstock_mix),
            Contender(
                "penstock, .npy files",
                "mix([from_files(path).shuffle() ...]).batch(32)",
                penstock_mix_of_files,
            ),
            Contender(
                "tf.data",
                "sample_from_datasets([slices.shuffle(n) ...]).batch(32).prefetch(AUTOTUNE)",
                tf_data_mix,
            ),
        ),
        bars=(
            fact_within(
                "rate", "at least 1M rows/s from memory", unit="rows/s", at_least=1_000_000
            ),
        ),
    ),
)
