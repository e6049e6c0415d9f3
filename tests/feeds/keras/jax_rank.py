"""One process of a training with Keras on JAX, which tells what it found. Run by test_ranks_apart.py."""

import os
import tempfile

import jax

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{os.environ['MASTER_PORT']}", WORLD, RANK)

import keras  # noqa: E402  # It asks for devices when it is imported.
import numpy as np  # noqa: E402
from tests.processes import tell  # noqa: E402

import penstock as ps  # noqa: E402


def dataset(num_rows=96):
    rng = np.random.default_rng(0)
    x = rng.random((num_rows, 5), np.float32)
    return ps.from_arrays((x, x.sum(1, keepdims=True) + 0.1)).shuffle(seed=1).batch(24)


def trained(feed):
    keras.utils.set_random_seed(0)
    layers = [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    history = model.fit(feed, epochs=3, verbose=0).history
    figures = model.evaluate(feed, verbose=0)
    predicted = model.predict(feed, verbose=0)
    weights = [np.asarray(w.value.addressable_data(0)).tolist() for w in model.weights]
    written = []
    if RANK == WORLD - 1:  # Nobody else is needed.
        with tempfile.TemporaryDirectory() as folder:
            feed.predict_to(f"{folder}/out.npy", model)
            written = np.load(f"{folder}/out.npy").tolist()
    return {
        "history": history,
        "weights": weights,
        "figures": figures,
        "predicted": predicted.tolist(),
        "written": written,
    }


def refused(ds):
    try:
        trained(ds.to_keras())
    except ps.SpecMismatchError as error:
        return str(error)


def evaluated_in_odd_batches():
    """Return the error of `evaluate` if two devices can't share the last batch."""
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    short = dataset(97).distribute(rank=RANK, world=WORLD, uneven="pad")
    try:
        model.evaluate(short.to_keras(), verbose=0)
    except ps.SpecMismatchError as error:
        return str(error)


def main():
    told = {
        "alone": trained(dataset().to_keras()),
        "alone, padded": trained(dataset(92).to_keras()),
    }
    keras.distribution.set_distribution(
        keras.distribution.DataParallel(
            devices=keras.distribution.list_devices(), auto_shard_dataset=False
        )
    )
    told["ranks"] = trained(dataset().distribute(rank=RANK, world=WORLD).to_keras())
    # The last batch of an epoch has 20 rows, of which each rank must have as many.
    padded = {"uneven": "pad", "static": True}
    told["padded"] = trained(dataset(92).distribute(rank=RANK, world=WORLD, **padded).to_keras())
    if jax.local_device_count() > 1:
        part = dataset().distribute(rank=RANK, world=WORLD)
        told["errors"] = {
            "fewer": refused(part.map(lambda x, y: (x[:2], y[:2]))),
            "short": refused(dataset(98).distribute(rank=RANK, world=WORLD, uneven="pad")),
            "evaluated": evaluated_in_odd_batches(),
            "odd": refused(dataset().unbatch().batch(6).distribute(rank=RANK, world=WORLD)),
        }
    tell(told)


if __name__ == "__main__":
    main()
