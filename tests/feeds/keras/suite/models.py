"""Models that the Keras suite trains, and what it looks at."""

import keras
import numpy as np

import penstock as ps
from feeds.keras.training import RowsSeen

BACKEND = keras.backend.backend()


class StepLosses(keras.callbacks.Callback):
    """Notes what each step reports."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append({name: float(value) for name, value in logs.items()})


def make_model(**compile_options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(6, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(4),
        ]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **compile_options,
    )
    return model


def weights_of(model):
    return [keras.ops.convert_to_numpy(weight.value) for weight in model.variables]


def same_weights(one, other):
    return all(
        np.array_equal(a, b) for a, b in zip(weights_of(one), weights_of(other), strict=True)
    )


def both(x, y, *, batch_size=32, epochs=2, make=make_model, feed_data=None, **fit_options):
    """Train on arrays and on a feed; return both models and what each step reported."""
    results = []
    data = feed_data if feed_data is not None else ((x, y) if y is not None else (x,))
    feed = ps.from_arrays(data).batch(batch_size).to_keras()
    for arguments in ({"x": x, "y": y, "batch_size": batch_size, "shuffle": False}, {"x": feed}):
        model, log = make(), StepLosses()
        model.fit(**arguments, epochs=epochs, verbose=0, callbacks=[log], **fit_options)
        results.append((model, log.steps))
    return results


def two_in_two_out():
    keras.utils.set_random_seed(0)
    a, b = keras.Input((8,), name="a"), keras.Input((3,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    out = {
        "p": keras.layers.Dense(2, name="p")(joined),
        "q": keras.layers.Dense(1, name="q")(joined),
    }
    model = keras.Model({"a": a, "b": b}, out)
    model.compile(optimizer="sgd", loss={"p": "mse", "q": "mae"})
    return model


def light_model(width=8, **options):
    """A model that compiles fast: what is compared is what it is fed."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, **options)
    return model


def resumable_model(kind):
    """A model with all that a resumed run must bring back, and the layer that counts its rows."""
    keras.utils.set_random_seed(0)
    layers = [RowsSeen(), keras.layers.Dense(3), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    steps = 3 if kind == "several" else 1
    model.compile(keras.optimizers.Adam(1e-3), "mse", metrics=["mae"], steps_per_execution=steps)
    return model, layers[0]


class Stop(Exception):
    pass


class StopAt(keras.callbacks.Callback):
    """Raises after so many steps, as if the process had died then."""

    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise Stop


class Spy(keras.layers.Layer):
    """Notes the rows of each batch that it sees, by the number in their first column, as a list in `seen`."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def _note(self, rows):
        self.seen.append([int(row) for row in np.asarray(rows)[:, 0]])
        return np.float32(0)

    def call(self, x):
        if BACKEND == "tensorflow":
            import tensorflow as tf

            tf.numpy_function(self._note, [x], tf.float32)
        elif BACKEND == "jax":
            import jax

            jax.debug.callback(self._note, x)
        elif x.device.type != "meta":
            self._note(x.detach().numpy())
        return x


def spying_model(num_outputs=1, **options):
    """Return a model, and the list of the batches that it sees; several outputs make Keras use tf.data."""
    rows, spy = keras.Input((2,)), Spy()
    outputs = [keras.layers.Dense(1)(spy(rows)) for _ in range(1)]
    outputs += [keras.layers.Dense(1)(rows) for _ in range(num_outputs - 1)]
    model = keras.Model(rows, tuple(outputs) if num_outputs > 1 else outputs[0])
    loss = ["mse"] * num_outputs if num_outputs > 1 else "mse"
    model.compile(keras.optimizers.SGD(1e-9), loss, jit_compile=False, **options)
    return model, spy.seen
