"""W1: arrays in RAM, a full shuffle each epoch, batches of 32."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
from arrays import BATCH_SIZE, NUM_ROWS
from harness import Case, Contender, Round, times_as_fast
from measure import throughput


def _round(start: Callable[[], Iterable], *, at_most: float | None = None) -> Round:
    return throughput(start, num_rows=NUM_ROWS, check=arrays.is_every_row_shuffled, at_most=at_most)


def penstock(_: Path) -> Round:
    return _round(penstock_dataset().__iter__)


def penstock_dataset():
    import penstock as ps

    return ps.from_arrays(arrays.make()).shuffle(seed=0).batch(BATCH_SIZE)


def plain_numpy(_: Path) -> Round:
    x, y = arrays.make()
    rng = np.random.default_rng(0)

    def epoch():
        order = rng.permutation(NUM_ROWS)
        for first in range(0, NUM_ROWS, BATCH_SIZE):
            rows = order[first : first + BATCH_SIZE]
            yield x.take(rows, axis=0), y.take(rows)

    return _round(epoch)


def tf_data(_: Path) -> Round:
    return _round(tf_data_dataset().__iter__)


def tf_data_dataset():
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(arrays.make())
    return dataset.shuffle(NUM_ROWS).batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)


def torch_default(_: Path) -> Round:
    return _round(torch_default_loader().__iter__)


def torch_default_loader():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    dataset = TensorDataset(*(torch.from_numpy(array) for array in arrays.make()))
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)


def torch_batch_sampler(_: Path) -> Round:
    return _round(torch_batch_sampler_loader().__iter__)


def torch_batch_sampler_one_thread(directory: Path) -> Round:
    import torch

    # On a busy machine torch's threads wait for each other in a loop that gets ten times slower.
    torch.set_num_threads(1)
    return torch_batch_sampler(directory)


def torch_batch_sampler_loader():
    import torch
    from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

    class Rows(Dataset):
        def __init__(self) -> None:
            self.x, self.y = (torch.from_numpy(array) for array in arrays.make())

        def __len__(self) -> int:
            return len(self.y)

        def __getitem__(self, rows):
            return self.x[rows], self.y[rows]

    dataset = Rows()
    sampler = BatchSampler(RandomSampler(dataset), BATCH_SIZE, drop_last=False)
    return DataLoader(dataset, sampler=sampler, batch_size=None)


def grain(_: Path) -> Round:
    # 20,000 rows a second: a whole epoch each round would take ten seconds.
    return _round(grain_dataset().__iter__, at_most=2.0)


def grain_dataset():
    import grain as gr

    class Rows:
        def __init__(self) -> None:
            self.x, self.y = arrays.make()

        def __len__(self) -> int:
            return len(self.y)

        def __getitem__(self, row):
            return self.x[row], self.y[row]

    dataset = gr.MapDataset.source(Rows()).seed(0).shuffle().batch(BATCH_SIZE)
    return dataset.to_iter_dataset(gr.ReadOptions(num_threads=0))


CASES = (
    Case(
        name="w1",
        title=f"arrays in RAM, {NUM_ROWS:,} x 100 float32 + int32, full shuffle, batch 32",
        unit="rows/s",
        contenders=(
            Contender("penstock", "from_arrays((x, y)).shuffle(seed=0).batch(32)", penstock),
            Contender("plain NumPy", "the bare limit: permutation, a take a batch", plain_numpy),
            Contender(
                "tf.data", "from_tensor_slices.shuffle(n).batch(32).prefetch(AUTOTUNE)", tf_data
            ),
            Contender(
                "torch, default", "DataLoader(TensorDataset, 32, shuffle=True)", torch_default
            ),
            Contender(
                "torch, BatchSampler",
                "DataLoader(sampler=BatchSampler(RandomSampler), batch_size=None)",
                torch_batch_sampler,
            ),
            Contender(
                "torch, BatchSampler, 1 thread",
                "the same after torch.set_num_threads(1)",
                torch_batch_sampler_one_thread,
            ),
            Contender(
                "Grain",
                "MapDataset.source.shuffle.batch, ReadOptions(num_threads=0) as for data in memory",
                grain,
            ),
        ),
        bars=(
            times_as_fast(1.1, "plain NumPy"),
            times_as_fast(50, "tf.data"),
            times_as_fast(35, "torch, default"),
            times_as_fast(15, "torch, BatchSampler"),
            times_as_fast(15, "torch, BatchSampler, 1 thread"),
            times_as_fast(150, "Grain"),
        ),
    ),
)
