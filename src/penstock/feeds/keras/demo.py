"""The training half of `penstock demo`: a Keras model on files, in a process of its own that may be killed."""

import functools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.core.system import peak_nbytes
from penstock.feeds.keras.release import choose_backend

BATCH_SIZE = 512
NUM_CLASSES = 10
_INTERVAL = 0.1  # Seconds between two words of how far it is.


def train(folder: Path, memory: int) -> dict[str, object]:
    """Train one epoch on `x.npy` and `y.npy` of a folder; return what happened."""
    import numpy as np

    from penstock.makers import from_arrays

    arrays = [np.load(folder / name, mmap_mode="r") for name in ("x.npy", "y.npy")]
    held_out = arrays[0].shape[0] // 50
    rows = from_arrays(tuple(arrays)).with_options(memory=memory)
    model = _model(arrays[0].shape[1])
    feed = rows.skip(held_out).shuffle(seed=0).batch(BATCH_SIZE).to_keras()
    started = time.perf_counter()
    model.fit(feed, verbose=0)
    seconds = time.perf_counter() - started
    report = feed.report()
    assert report is not None, "an epoch was read"
    accuracy = model.evaluate(rows.take(held_out).batch(BATCH_SIZE).to_keras(), verbose=0)[1]
    return {
        "seconds": seconds,
        "num_rows": arrays[0].shape[0] - held_out,
        "waited_seconds": report.waited_seconds,
        "peak_nbytes": report.peak_nbytes,
        "accuracy": float(accuracy),
    }


def train_in_memory(folder: Path, _: int) -> dict[str, object]:
    """Train as most scripts do, by `fit` of an array: all of it is in memory, whatever the budget."""
    import numpy as np

    x, y = (np.load(folder / name) for name in ("x.npy", "y.npy"))
    held_out = len(x) // 50
    model = _model(x.shape[1])
    started = time.perf_counter()
    model.fit(x[held_out:], y[held_out:], batch_size=BATCH_SIZE, verbose=0)
    seconds = time.perf_counter() - started
    accuracy = model.evaluate(x[:held_out], y[:held_out], batch_size=BATCH_SIZE, verbose=0)[1]
    return {"seconds": seconds, "num_rows": len(x) - held_out, "accuracy": float(accuracy)}


def train_by_tf_data(folder: Path, _: int) -> dict[str, object]:
    """Train by tf.data, with a true shuffle, as its guide has it."""
    import numpy as np
    import tensorflow as tf

    x, y = (np.load(folder / name, mmap_mode="r") for name in ("x.npy", "y.npy"))
    held_out = len(x) // 50
    slices = tf.data.Dataset.from_tensor_slices
    batches = slices((x[held_out:], y[held_out:])).shuffle(len(x)).batch(BATCH_SIZE)
    model = _model(x.shape[1])
    started = time.perf_counter()
    model.fit(batches.prefetch(tf.data.AUTOTUNE), verbose=0)
    seconds = time.perf_counter() - started
    others = slices((x[:held_out], y[:held_out])).batch(BATCH_SIZE)
    accuracy = model.evaluate(others, verbose=0)[1]
    return {"seconds": seconds, "num_rows": len(x) - held_out, "accuracy": float(accuracy)}


WAYS: dict[str, Callable[[Path, int], dict[str, object]]] = {
    "penstock": train,
    "ndarray": train_in_memory,
    "tf.data": train_by_tf_data,
}


def _model(num_features: int) -> Any:
    """Return the model; its `fit` tells how far it is."""
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((num_features,)), keras.layers.Dense(NUM_CLASSES)])
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    told = keras.callbacks.LambdaCallback(on_train_batch_end=_Teller())
    model.fit = functools.partial(model.fit, callbacks=[told])
    return model


class _Teller:
    """Tells how many batches were trained on, a few times a second."""

    def __init__(self) -> None:
        self._told = 0.0

    def __call__(self, batch: int, logs: Any) -> None:
        now = time.monotonic()
        if now - self._told >= _INTERVAL:
            self._told = now
            _tell({"batches": batch + 1})


def _tell(words: dict[str, object]) -> None:
    """Write a line to the pipe that the command reads; standard output is full of what frameworks say."""
    os.write(int(sys.argv[4]), json.dumps(words).encode() + b"\n")


def main() -> None:
    """Join a cgroup if one is named, train, and tell what happened. Arguments: folder, memory, way, pipe, cgroup."""
    folder, memory, way, _, group = sys.argv[1:]
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    backend = choose_backend(by_file=False)
    result = WAYS[way](Path(folder), int(memory))
    _tell({"result": {"backend": backend, **result, "peak_rss": peak_nbytes()}})


if __name__ == "__main__":
    main()
