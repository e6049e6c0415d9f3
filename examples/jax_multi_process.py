"""Train with JAX in several processes: global batches that are the same however many there are.

    python examples/start.py 2 examples/jax_multi_process.py run/

Kill it at any moment and start it again, with 2 processes or with 1, 3, 4: it goes on after the last checkpoint.
"""

import json
import os
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import penstock as ps

EPOCHS, EVERY = 3, 5

# On a cluster, jax.distributed.initialize() finds these by itself. A process that dies ends all others: within the time
# of a heartbeat, or as soon as they miss it in a sum. The defaults are 100 and 300 seconds (JAX 0.5 takes neither).
jax.config.update("jax_cpu_collectives_implementation", "gloo")  # for CPUs only
jax.distributed.initialize(
    os.environ["COORDINATOR"],
    int(os.environ["WORLD_SIZE"]),
    int(os.environ["RANK"]),
    heartbeat_timeout_seconds=10,
    shutdown_timeout_seconds=10,
)
checkpoint = Path(sys.argv[1]) / "checkpoint.npz"

# Each process reads its rows of each global batch of 48. The last one is filled up to 48: it has the same shape then.
x = np.random.default_rng(0).random((1001, 8), np.float32)
ds = ps.from_arrays((x, x.sum(axis=1) + 0.1)).shuffle(seed=7)
part = ds.batch(48).distribute(uneven="pad", static=True)
mesh = Mesh(np.array(jax.devices()), ("data",))
feed = part.to_jax(sharding=NamedSharding(mesh, PartitionSpec("data")))


@jax.jit
def step(model, rows, batch, weight):
    def loss(model):
        x, y = batch
        return jnp.mean(weight * (x @ model["w"] + model["b"] - y) ** 2)

    slopes = jax.grad(loss)(model)
    model = jax.tree.map(lambda value, slope: value - 0.05 * slope, model, slopes)
    return model, rows + jnp.sum(weight > 0)  # The repeats that fill up a batch weigh 0.


def save(model, rows):
    """Save the model together with the place in the data. One process does it, in one step."""
    if jax.process_index() == 0:
        unfinished = checkpoint.with_name("unfinished.npz")
        np.savez(unfinished, state=json.dumps(feed.state()), rows=rows, **model)
        unfinished.replace(checkpoint)
        print(f"saved after {rows} rows", flush=True)


model, rows = {"w": np.zeros(8, np.float32), "b": np.zeros((), np.float32)}, 0
if checkpoint.exists():
    with np.load(checkpoint) as saved:
        model, rows = {name: saved[name] for name in model}, int(saved["rows"])
        feed.resume(json.loads(str(saved["state"])))
while feed.state()["epoch"] < EPOCHS:
    for number, (batch, weight) in enumerate(feed):
        model, rows = step(model, rows, batch, weight)
        if number % EVERY == EVERY - 1:
            save(model, rows)
    save(model, rows)
print(f"trained on {rows} rows: {np.asarray(model['w']).round(3).tolist()}", flush=True)
