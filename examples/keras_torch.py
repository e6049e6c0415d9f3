"""Train a Keras model on PyTorch in several processes: fit averages gradients over them, and reports what one would.

    torchrun --standalone --nproc-per-node 2 examples/keras_torch.py run/

Kill it at any moment and start it again, with 2 processes or with 1, 3, 4: it goes on after the last checkpoint.
"""

import os
import sys
from datetime import timedelta

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from torch import distributed

import penstock as ps

# torchrun ends all processes when one of them dies. The time limit is for one that hangs; the default is 30 minutes.
distributed.init_process_group("gloo", timeout=timedelta(seconds=60))

# Each process reads its rows of each global batch of 48. The last one, of 41, is filled up where it has to be: fit gets
# the weights of its rows as sample_weight.
x = np.random.default_rng(0).random((1001, 8), np.float32)
y = x.sum(axis=1, keepdims=True) + 0.1
feed = ps.from_arrays((x, y)).shuffle(seed=7).batch(48).distribute(uneven="pad").to_keras()

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.01), "mse")
is_first = distributed.get_rank() == 0
model.fit(
    feed,
    epochs=3,
    verbose=2 if is_first else 0,
    # The first process saves, and all go on from what it saved.
    callbacks=[feed.checkpoint(sys.argv[1], every_batches=5)],
)
if is_first:  # Any process may evaluate and predict alone: it reads all rows.
    print(f"the loss of all rows is {model.evaluate(feed, verbose=0):.6f}", flush=True)
distributed.barrier()
distributed.destroy_process_group()
