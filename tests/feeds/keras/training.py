"""A training run that can be killed: trains, saves, and writes its final weights. Run by test_checkpoint.py.

Usage: training.py KIND FOLDER... KIND is 'rows', 'filter', 'steps' or 'several'; each folder is a run of its own.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import penstock as ps

NUM_ROWS = 96
EPOCHS = 3


class RowsSeen(keras.layers.Layer):
    """Counts how often each row was trained on, by the number in its first column."""

    def build(self, shape):
        self.seen = self.add_weight(shape=(NUM_ROWS,), trainable=False, initializer="zeros")

    def call(self, x, training=False):
        if training:
            rows = keras.ops.cast(x[:, 0], "int32")
            self.seen.assign(self.seen + keras.ops.sum(keras.ops.one_hot(rows, NUM_ROWS), 0))
        return x


def dataset(kind):
    rng = np.random.default_rng(0)
    x = rng.random((NUM_ROWS, 5), np.float32)
    x[:, 0] = np.arange(NUM_ROWS)
    ds = ps.from_arrays((x, rng.random(NUM_ROWS).astype("float32")))
    if kind == "filter":
        ds = ds.filter(lambda x, y: x[0] < NUM_ROWS - 7)
    return ds.shuffle(seed=5).batch(8)


class Tick(keras.callbacks.Callback):
    """Tells the parent of each step, so that it can choose when to kill."""

    def __init__(self, run):
        super().__init__()
        self.run = run

    def on_train_batch_end(self, batch, logs=None):
        print(self.run, flush=True)


def main(kind, folder):
    keras.utils.set_random_seed(0)
    layers = [RowsSeen(), keras.layers.Dense(4), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    model.compile(
        keras.optimizers.Adam(1e-3),
        "mse",
        metrics=["mae"],
        steps_per_execution=3 if kind == "several" else 1,
    )
    feed = dataset(kind).to_keras()
    history = model.fit(
        feed,
        epochs=EPOCHS,
        steps_per_epoch=7 if kind == "steps" else None,
        validation_data=dataset("rows").to_keras(),
        verbose=0,
        callbacks=[feed.checkpoint(str(folder / "run"), every_batches=2), Tick(folder.name)],
    )
    values = [keras.ops.convert_to_numpy(v.value) for v in model.variables]
    values += [keras.ops.convert_to_numpy(v.value) for v in model.optimizer.variables]
    seen = keras.ops.convert_to_numpy(layers[0].seen.value)
    losses = np.array(history.history.get("loss", []) + history.history.get("mae", []))
    np.savez(folder / "final.tmp.npz", *values, seen=seen, losses=losses)
    (folder / "final.tmp.npz").rename(folder / "final.npz")


if __name__ == "__main__":
    for each in sys.argv[2:]:
        main(sys.argv[1], Path(each))
