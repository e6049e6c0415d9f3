"""Train an Equinox model with Optax, from a feed of jax Arrays, and go on after a kill.

    python examples/equinox_loop.py run/

The place in the data is saved together with the model: started again, it goes on with the very next batch.
"""

import json
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import optax

import penstock as ps

EPOCHS, EVERY = 3, 5
checkpoint = Path(sys.argv[1]) / "checkpoint.eqx"
checkpoint.parent.mkdir(parents=True, exist_ok=True)

x = np.random.default_rng(0).random((1001, 8), np.float32)
feed = ps.from_arrays((x, x.sum(axis=1) + 0.1)).shuffle(seed=7).batch(48).to_jax()

model = eqx.nn.MLP(8, "scalar", width_size=16, depth=1, key=jax.random.key(0))
adam = optax.adam(0.01)
state = adam.init(eqx.filter(model, eqx.is_array))


@eqx.filter_jit
def step(model, state, inputs, targets):
    def loss_of(model):
        return ((jax.vmap(model)(inputs) - targets) ** 2).mean()

    loss, gradients = eqx.filter_value_and_grad(loss_of)(model)
    updates, state = adam.update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


def save():
    """Save model, optimizer and place in the data in one step: the place is the first line of the file."""
    new = checkpoint.with_suffix(".new")
    with new.open("wb") as file:
        file.write(json.dumps(feed.state()).encode() + b"\n")
        eqx.tree_serialise_leaves(file, (model, state))
    new.replace(checkpoint)


if checkpoint.exists():
    with checkpoint.open("rb") as file:
        feed.resume(json.loads(file.readline()))
        model, state = eqx.tree_deserialise_leaves(file, (model, state))
while feed.state()["epoch"] < EPOCHS:
    for number, (inputs, targets) in enumerate(feed):
        model, state, loss = step(model, state, inputs, targets)
        if number % EVERY == EVERY - 1:
            save()
    save()
    print(f"epoch {feed.state()['epoch'] - 1}: loss {loss:.5f}", flush=True)
