"""Train a Flax (nnx) model with Optax, from a feed of jax Arrays, and go on after a kill.

    python examples/flax_nnx.py run/

The place in the data is saved together with the model: started again, it goes on with the very next batch.
"""

import pickle
import sys
from pathlib import Path

import jax
import numpy as np
import optax
from flax import nnx

import penstock as ps

EPOCHS, EVERY = 3, 5
checkpoint = Path(sys.argv[1]) / "checkpoint.pkl"
checkpoint.parent.mkdir(parents=True, exist_ok=True)

x = np.random.default_rng(0).random((1001, 8), np.float32)
feed = ps.from_arrays((x, x.sum(axis=1) + 0.1)).shuffle(seed=7).batch(48).to_jax()


class Model(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(8, 16, rngs=rngs)
        self.out = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, inputs):
        return self.out(nnx.relu(self.hidden(inputs)))[:, 0]


def loss_of(model, inputs, targets):
    return ((model(inputs) - targets) ** 2).mean()


@nnx.jit
def step(model, optimizer, inputs, targets):
    loss, gradients = nnx.value_and_grad(loss_of)(model, inputs, targets)
    optimizer.update(model, gradients)
    return loss


model = Model(nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)


def save():
    """Save model, optimizer and place in the data in one step."""
    state = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state((model, optimizer))))
    new = checkpoint.with_suffix(".new")
    new.write_bytes(pickle.dumps((state, feed.state())))
    new.replace(checkpoint)


if checkpoint.exists():
    saved, place = pickle.loads(checkpoint.read_bytes())
    state = nnx.state((model, optimizer))
    nnx.replace_by_pure_dict(state, saved)
    nnx.update((model, optimizer), state)
    feed.resume(place)
while feed.state()["epoch"] < EPOCHS:
    for number, (inputs, targets) in enumerate(feed):
        loss = step(model, optimizer, inputs, targets)
        if number % EVERY == EVERY - 1:
            save()
    save()
    print(f"epoch {feed.state()['epoch'] - 1}: loss {loss:.5f}", flush=True)
