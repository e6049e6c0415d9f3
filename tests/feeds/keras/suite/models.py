"""Models that the Keras suite trains, and what it looks at."""

import keras
import numpy as np

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
