"""W9: Keras `fit` of one Dense(10) on each backend, from arrays in RAM and from a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import arrays
import npy_files
import numpy as np
from harness import Bar, Case, Contender, Outcomes, Round, time_at_most
from measure import Sample, peak_rss

BACKENDS = ("tensorflow", "jax", "torch")
NUM_ROWS = 64_000
BATCH_SIZE = 32
NUM_STEPS = NUM_ROWS // BATCH_SIZE
NUM_LABELS = 10
# The file is five times the budget.
BUDGET = 256 << 20
FILE_ROWS = 3_200_000
STRIDE = 100_000
FRAMEWORK_ALLOWANCE = 150 << 20


def prepare(directory: Path) -> None:
    rng = np.random.default_rng(0)
    block = rng.random((STRIDE, arrays.NUM_FEATURES), np.float32)
    blocks = (block for _ in range(FILE_ROWS // STRIDE))
    npy_files.write(directory / "x.npy", (FILE_ROWS, arrays.NUM_FEATURES), blocks)
    np.save(directory / "y.npy", rng.integers(0, NUM_LABELS, FILE_ROWS, np.int32))


def _arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.random((NUM_ROWS, arrays.NUM_FEATURES), np.float32)
    return x, rng.integers(0, NUM_LABELS, NUM_ROWS, np.int32)


def _model(steps_per_execution: int):
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((arrays.NUM_FEATURES,)), keras.layers.Dense(NUM_LABELS)])
    model.compile(
        optimizer="sgd",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=steps_per_execution,
    )
    return model


def _fit(directory: Path, *, feed: Callable[[Path], tuple], steps: int = 1) -> Round:
    """Return a round of one epoch: seconds a step. Building and compiling are not counted."""
    data, options = feed(directory)
    model = _model(steps)
    settings = {"epochs": 1, "verbose": 0, **options}
    model.fit(data, **settings) if not isinstance(data, tuple) else model.fit(*data, **settings)

    def one_round() -> Sample:
        began = time.perf_counter()
        if isinstance(data, tuple):
            model.fit(*data, **settings)
        else:
            model.fit(data, **settings)
        cost = (time.perf_counter() - began) / NUM_STEPS
        return Sample(cost, {"peak_rss": float(peak_rss())})

    return one_round


def _penstock(_: Path) -> tuple:
    import penstock as ps

    return ps.from_arrays(_arrays()).shuffle(seed=0).batch(BATCH_SIZE).to_keras(), {}


def _penstock_file(directory: Path) -> tuple:
    import penstock as ps

    x = np.load(directory / "x.npy", mmap_mode="r")
    y = np.load(directory / "y.npy", mmap_mode="r")
    ds = ps.from_arrays((x, y)).shuffle(seed=0).batch(BATCH_SIZE).take(NUM_STEPS)
    return ds.with_options(memory=BUDGET).to_keras(), {}


def _ndarray(_: Path) -> tuple:
    return _arrays(), {"batch_size": BATCH_SIZE}


def _tf_data(_: Path) -> tuple:
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(_arrays()).shuffle(NUM_ROWS)
    return dataset.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE), {}


def _py_dataset(_: Path) -> tuple:
    import keras

    x, y = _arrays()

    class Batches(keras.utils.PyDataset):
        def __init__(self) -> None:
            super().__init__()
            self.order = np.random.default_rng(0).permutation(NUM_ROWS)

        def __len__(self) -> int:
            return NUM_STEPS

        def __getitem__(self, index):
            rows = self.order[index * BATCH_SIZE : (index + 1) * BATCH_SIZE]
            return x.take(rows, axis=0), y.take(rows)

    return Batches(), {}


def _memory_bar() -> Bar:
    """Return the bar on what a file costs beyond the framework's own: the budget and 150 MB."""

    def value(_: Case, outcomes: Outcomes) -> float:
        # The least any way of feeding this backend took is what the framework itself takes.
        own = min(
            outcome.fact("peak_rss")
            for name, outcome in outcomes.items()
            if outcome.measured and not name.startswith("penstock")
        )
        return outcomes["penstock, file"].fact("peak_rss") - own

    return Bar(
        "penstock, file: peak memory at most the budget and 150 MB over the framework's own",
        value,
        at_most=float(BUDGET + FRAMEWORK_ALLOWANCE),
        unit="B",
    )


def _contender(name: str, how: str, feed: Callable, backend: str, steps: int = 1) -> Contender:
    return Contender(
        name, how, partial(_fit, feed=feed, steps=steps), environment={"KERAS_BACKEND": backend}
    )


def _case(backend: str) -> Case:
    one = partial(_contender, backend=backend)
    return Case(
        name=f"w9-{backend}",
        title=f"Keras fit on {backend}, Dense(10) on 100 features, batch 32, time a step",
        unit="s",
        higher_is_better=False,
        prepare=prepare,
        contenders=(
            one(
                "penstock",
                "fit(from_arrays((x, y)).shuffle(seed=0).batch(32).to_keras())",
                _penstock,
            ),
            one(
                "penstock, file",
                f"the same from a 1.3 GB memmap, with_options(memory={BUDGET >> 20} MB)",
                _penstock_file,
            ),
            one("fit(ndarray)", "fit(x, y, batch_size=32): shuffles by default", _ndarray),
            one("fit(tf.data)", "slices.shuffle(n).batch(32).prefetch(AUTOTUNE)", _tf_data),
            one("fit(PyDataset)", "a take a batch", _py_dataset),
        ),
        bars=(
            time_at_most(1.03, "fit(ndarray)"),
            time_at_most(1.1, "fit(ndarray)", subject="penstock, file"),
            _memory_bar(),
        ),
    )


def _several_steps() -> Case:
    one = partial(_contender, backend="tensorflow", steps=32)
    return Case(
        name="w9-steps",
        title="Keras fit on tensorflow with steps_per_execution=32, time a step",
        unit="s",
        higher_is_better=False,
        prepare=prepare,
        contenders=(
            one("penstock", "as in w9-tensorflow", _penstock),
            one("fit(tf.data)", "slices.shuffle(n).batch(32).prefetch(AUTOTUNE)", _tf_data),
        ),
        bars=(time_at_most(1, "fit(tf.data)"),),
    )


CASES = (*(_case(backend) for backend in BACKENDS), _several_steps())
