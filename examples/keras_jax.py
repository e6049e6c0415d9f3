"""Train a Keras model on JAX in several processes: keras.distribution makes one training of them.

    python examples/start.py 2 examples/keras_jax.py run/

Kill it at any moment and start it again, with 2 processes or with 1, 3, 4: it goes on after the last checkpoint.
"""

import os
import sys

os.environ["KERAS_BACKEND"] = "jax"

import jax

# Before Keras is imported, which asks for the devices. On a cluster, initialize() finds the first three by itself. When
# a process dies, the others end within the time of a heartbeat; the defaults are 100 and 300 seconds (JAX 0.5 takes
# neither).
jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for CPUs only
jax.distributed.initialize(
    os.environ["COORDINATOR"],
    int(os.environ["WORLD_SIZE"]),
    int(os.environ["RANK"]),
    heartbeat_timeout_seconds=10,
    shutdown_timeout_seconds=10,
)

import keras
import numpy as np

import penstock as ps

# Not auto_shard_dataset: each process reads its own rows.
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

# Each process reads its rows of each global batch of 48. The last one, of 41, is filled up to 48, so that nothing is
# compiled twice: fit gets the weights of its rows as sample_weight.
x = np.random.default_rng(0).random((1001, 8), np.float32)
y = x.sum(axis=1, keepdims=True) + 0.1
ds = ps.from_arrays((x, y)).shuffle(seed=7).batch(48)
feed = ds.distribute(uneven="pad", static=True).to_keras()

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
is_first = jax.process_index() == 0
model.fit(
    feed,
    epochs=3,
    verbose=2 if is_first else 0,
    # The first process saves, and all go on from what it saved.
    callbacks=[feed.checkpoint(sys.argv[1], every_batches=5)],
)
loss = model.evaluate(feed, verbose=0)  # All processes must call it: JAX computes on all devices.
if is_first:
    print(f"the loss of all rows is {loss:.6f}", flush=True)
