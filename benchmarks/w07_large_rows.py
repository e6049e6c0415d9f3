"""W7: rows of 12 MB, batches of 32 (384 MB), in 2 GB."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import npy_files
import numpy as np
from harness import Case, Contender, Round, fact_within, times_as_fast
from measure import Sample, device_bytes, forget_pages, must_be_cold, peak_rss

SHAPE = (500, 1000, 1000, 3)
BATCH_SIZE = 32
MEMORY = 2 << 30
NAME = "images.npy"
NBYTES = int(np.prod(SHAPE)) * 4


def prepare(directory: Path) -> None:
    npy_files.write(directory / NAME, SHAPE, _rows())


def _rows() -> Iterator[np.ndarray]:
    row = np.random.default_rng(0).random(SHAPE[1:], np.float32)
    for number in range(SHAPE[0]):
        row[0, 0, 0] = number
        yield row


def _penstock(directory: Path) -> Round:
    import penstock as ps

    path = directory / NAME

    def one_round() -> Sample:
        ds = ps.from_arrays(np.load(path, mmap_mode="r")).shuffle(seed=0).batch(BATCH_SIZE)
        forget_pages(path)
        before = device_bytes()
        began = time.perf_counter()
        numbers = [batch[:, 0, 0, 0].astype(np.int64) for batch in ds]
        took = time.perf_counter() - began
        must_be_cold(path, device_bytes() - before)
        if not np.array_equal(np.sort(np.concatenate(numbers)), np.arange(SHAPE[0])):
            raise AssertionError("not every row came once")
        return Sample(NBYTES / took, {"peak_rss": float(peak_rss())})

    return one_round


def _tf_data(directory: Path) -> Round:
    import tensorflow as tf

    x = np.load(directory / NAME, mmap_mode="r")
    dataset = tf.data.Dataset.from_tensor_slices(x).shuffle(SHAPE[0]).batch(BATCH_SIZE)

    def one_round() -> Sample:
        began = time.perf_counter()
        for _ in dataset:
            pass
        return Sample(NBYTES / (time.perf_counter() - began), {"peak_rss": float(peak_rss())})

    return one_round


CASES = (
    Case(
        name="w7",
        title="500 x 1000 x 1000 x 3 float32 (12 MB a row), shuffled, batch 32, in 2 GB",
        unit="B/s",
        rounds=3,
        prepare=prepare,
        contenders=(
            Contender(
                "penstock",
                "from_arrays(np.load(path, mmap_mode='r')).shuffle(seed=0).batch(32)",
                _penstock,
                memory=MEMORY,
            ),
            *npy_files.dd(NAME, MEMORY),
            Contender(
                "tf.data",
                "from_tensor_slices(memmap), same cgroup: holds it all, and is killed for it",
                _tf_data,
                memory=MEMORY,
                may_fail=True,
            ),
        ),
        bars=(
            # The workload was measured without a cgroup; in one, dd reuses its pages and is far faster.
            times_as_fast(0.7, "dd, no limit"),
            times_as_fast(0.7, "dd"),
            fact_within("peak_rss", "peak memory under 2 GB", unit="B", at_most=float(2 << 30)),
        ),
    ),
)
