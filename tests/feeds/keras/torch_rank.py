"""One process of a training with Keras on PyTorch, which tells what it found. Run by test_ranks_on_torch.py."""

import os
from datetime import timedelta

import keras
import numpy as np
import torch
from tests.processes import tell
from torch import distributed

import penstock as ps
from penstock.feeds.keras.ranks_on_torch import average

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
EPOCHS = 3


def dataset(num_rows=96):
    rng = np.random.default_rng(0)
    x = rng.random((num_rows, 5), np.float32)
    return ps.from_arrays((x, x.sum(1, keepdims=True) + 0.1)).shuffle(seed=1).batch(24)


def model_of(seed=0, *, is_alone=False):
    keras.utils.set_random_seed(0 if is_alone else seed)
    layers = [keras.Input((5,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(0.01), "mse", metrics=["mae"])
    return model


def numbers(model):
    return [np.asarray(keras.ops.convert_to_numpy(w)).tolist() for w in model.weights]


def trained(feed, *, is_alone=False):
    # Ranks start with weights of their own: rank 0's count.
    model = model_of(RANK, is_alone=is_alone)
    options = {"epochs": EPOCHS, "verbose": 0}
    history = model.fit(feed, **options).history
    again = model.fit(feed, **options).history
    plain = type(model.optimizer).apply
    is_plain = model.optimizer.apply.__func__ is plain
    return model, {"first": history, "again": again, "weights": numbers(model), "plain": is_plain}


class OwnStep(keras.Model):
    """A model whose training step is the user's."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = keras.ops.mean((self(x) - y) ** 2)
        loss.backward()
        with torch.no_grad():
            self.optimizer.apply([w.value.grad for w in self.trainable_weights])
        return {"loss": loss}


def own_step(feed):
    keras.utils.set_random_seed(0)
    model = OwnStep()
    model.compile(keras.optimizers.SGD(0.05))
    model.fit(feed, epochs=2, verbose=0)
    return numbers(model)


def in_steps(feed):
    """Epochs of Keras that end within those of the dataset."""
    history = model_of().fit(feed, steps_per_epoch=3, epochs=3, verbose=0).history
    return history["loss"]


def gradients():
    """The mean of gradients of several dtypes, of which some ranks have none."""
    mine = [
        torch.full((2,), float(RANK)),
        None,
        torch.ones(1) if RANK == 0 else None,
        torch.full((3, 1), float(RANK), dtype=torch.float64),
    ]
    found = average(mine, [torch.zeros(2), torch.zeros(4), torch.zeros(1), torch.zeros((3, 1))])
    return [None if one is None else one.tolist() for one in found]


def stopped(feed):
    """How many epochs were trained: callbacks that stop on a metric must stop all ranks at once."""
    stop = keras.callbacks.EarlyStopping("loss", min_delta=0.05, patience=0)
    history = model_of().fit(feed, epochs=40, verbose=0, callbacks=[stop], validation_data=feed)
    return len(history.history["loss"])


def failed(part):
    """A fit that fails does not leave the optimizer in the hands of ranks."""

    class Failing(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise RuntimeError("as planned")

    model = model_of()
    try:
        model.fit(part, verbose=0, callbacks=[Failing()])
    except RuntimeError as error:
        kept = error  # Its frames keep the callbacks alive.
    model.fit(np.zeros((8, 5)), np.zeros((8, 1)), verbose=0, epochs=RANK + 1)
    return str(kept)


def main():
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    part = dataset().distribute(rank=RANK, world=WORLD)
    told = {"alone": trained(dataset().to_keras(), is_alone=True)[1]}
    model, told["ranks"] = trained(part.to_keras())
    # The last batch of an epoch has 5 rows.
    short = dataset(101)
    told["alone, padded"] = trained(short.to_keras(), is_alone=True)[1]
    padded = short.distribute(rank=RANK, world=WORLD, uneven="pad")
    told["padded"] = trained(padded.to_keras())[1]
    told["own step"] = [own_step(dataset().to_keras()), own_step(part.to_keras())]
    told["in steps"] = [in_steps(dataset().to_keras()), in_steps(part.to_keras())]
    told["gradients"] = gradients()
    told["stopped"] = stopped(part.to_keras())
    told["failed"] = failed(part.to_keras())
    other = dataset().distribute(rank=0, world=WORLD + 1)
    try:
        model.fit(other.to_keras(), verbose=0)
    except ValueError as error:
        told["other world"] = str(error)
    if RANK == 0:
        feeds = {"whole": dataset(), "part": part, "mapped": part.map(lambda x, y: (x, y))}
        told["evaluated"], told["predicted"] = {}, {}
        for name, ds in feeds.items():
            feed = ds.to_keras()
            told["evaluated"][name] = model.evaluate(feed, verbose=0)
            told["predicted"][name] = model.predict(feed, verbose=0).tolist()
    tell(told)
    # DistributedDataParallel of torch 2.13 leaves threads of gloo behind, which now and then abort the exit.
    os._exit(0)


if __name__ == "__main__":
    main()
