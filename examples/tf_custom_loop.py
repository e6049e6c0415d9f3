"""A training loop of one's own in TensorFlow, on the devices of one machine or on several workers.

    python examples/tf_custom_loop.py --devices 2      MirroredStrategy, on two logical CPUs
    TF_CONFIG=... python examples/tf_custom_loop.py    MultiWorkerMirroredStrategy, one process for each worker

The losses are those of one device: penstock deals the rows of every global batch, and the last one, which is not whole,
is filled up with rows of no weight.
"""

import argparse
import json
import os

import numpy as np
import tensorflow as tf

import penstock as ps

NUM_ROWS = 1000
BATCH = 64  # of all devices together


def make_strategy(devices):
    """Return the strategy; it must be made before anything else of TensorFlow is used."""
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical)
    return tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(devices)])


def main(devices, epochs):
    """Train a linear model, and print the loss of each epoch."""
    strategy = make_strategy(devices)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, 8)).astype("float32")
    y = (x @ np.arange(8, dtype="float32"))[:, None]
    ds = ps.from_arrays((x, y)).shuffle(seed=0).batch(BATCH)

    with strategy.scope():
        kernel = tf.Variable(tf.zeros((8, 1)))
        # In the scope, distribute() finds the workers and the devices. "pad" gives pairs of a batch and its weights.
        feed = ds.distribute(uneven="pad").to_tf()

    def on_replica(batch):
        (x, y), weight = batch
        with tf.GradientTape() as tape:
            losses = tf.reduce_sum((x @ kernel - y) ** 2, axis=-1)
            loss = tf.reduce_mean(
                weight * losses
            )  # The mean of this over replicas is that of the global batch.
        gradient = tape.gradient(loss, kernel)
        gradient = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
        kernel.assign_sub(0.05 * gradient)
        return loss

    @tf.function(reduce_retracing=True)
    def step(batch):
        return strategy.reduce("MEAN", strategy.run(on_replica, args=(batch,)), axis=None)

    spread = strategy.experimental_distribute_dataset(feed)
    for epoch in range(epochs):  # Each iteration is the next epoch, shuffled anew.
        losses = [float(step(batch)) for batch in spread]
        print(json.dumps({"epoch": epoch, "steps": len(losses), "loss": float(np.mean(losses))}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--devices", type=int, default=2, help="without TF_CONFIG: how many logical CPUs"
    )
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    main(given.devices, given.epochs)
