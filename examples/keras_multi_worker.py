"""Keras on several workers: each gets its rows of every global batch, and the training is that of one process.

    python examples/keras_multi_worker.py --workers 2

starts two workers on this machine. On several machines start it on each of them with TF_CONFIG set, as
MultiWorkerMirroredStrategy wants it:

    TF_CONFIG='{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}' \
        python examples/keras_multi_worker.py --folder /shared/run

Run it again after a crash, with as many workers or more or fewer, and it goes on from the last checkpoint.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

os.environ["KERAS_BACKEND"] = "tensorflow"

NUM_ROWS = 2000
BATCH = 60  # of all workers together


def train(folder, epochs):
    """Train as one of the workers that TF_CONFIG names."""
    import keras
    import numpy as np
    import tensorflow as tf

    import penstock as ps

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before anything else of TensorFlow

    # Every worker declares the same dataset, here a file that all of them see. Only its own rows are read.
    ds = ps.from_files(str(folder / "rows.npz")).map(lambda row: (row["x"], row["y"]))

    keras.utils.set_random_seed(0)  # Every worker begins with the same weights.
    with strategy.scope():
        layers = [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1),
        ]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
        # 2000 rows are 33 batches of 60 and one of 20: "pad" fills that one up with rows of no weight.
        feed = ds.shuffle(seed=0).batch(BATCH).distribute(uneven="pad").to_keras()

    # The first worker writes the checkpoint, and all of them go on from it.
    checkpoint = feed.checkpoint(str(folder / "checkpoint"), every_batches=10)
    model.fit(feed, epochs=epochs, verbose=0, callbacks=[checkpoint])
    loss, mae = model.evaluate(feed, verbose=0)  # the figures of one process, on every worker
    predictions = model.predict(feed, verbose=0)  # all rows, in the order of the dataset
    if strategy.cluster_resolver.task_id == 0:
        total = float(np.sum(predictions))
        print(json.dumps({"loss": loss, "mae": mae, "rows": len(predictions), "sum": total}))


def write_rows(folder):
    """Write the data, once."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.npz"
    if not path.exists():
        rng = np.random.default_rng(0)
        x = rng.normal(size=(NUM_ROWS, 8)).astype("float32")
        y = (x @ np.arange(8, dtype="float32"))[:, None] / 8
        np.savez(path, x=x, y=y)


def start_workers(count, folder, epochs):
    """Start the workers on this machine, and return the first return code that is not 0."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    workers = []
    for index in range(count):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        command = [sys.executable, __file__, "--folder", str(folder), "--epochs", str(epochs)]
        workers.append(
            subprocess.Popen(command, env=os.environ | {"TF_CONFIG": json.dumps(config)})
        )
    failed = None
    while any(worker.poll() is None for worker in workers):
        # TensorFlow ends the others soon after one has died; those that hang all the same are killed.
        if failed is None and any(worker.poll() for worker in workers):
            failed = time.monotonic()
        if failed is not None and time.monotonic() - failed > 60:
            for worker in workers:
                worker.kill()
        time.sleep(0.1)
    return next((worker.returncode for worker in workers if worker.returncode), 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2, help="how many to start on this machine")
    parser.add_argument(
        "--folder",
        type=Path,
        default="run",
        help="where the data and checkpoints are; all workers see it",
    )
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    if "TF_CONFIG" in os.environ:
        train(given.folder, given.epochs)
    else:
        write_rows(given.folder)
        sys.exit(start_workers(given.workers, given.folder, given.epochs))
