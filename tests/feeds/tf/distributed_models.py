"""Data, models and training loops that the scripts of several workers and their tests share."""

import contextlib

import keras
import numpy as np
import tensorflow as tf
from tests.feeds.tf.loop_of_one import EPOCHS


def model(strategy=None, **compiled):
    keras.utils.set_random_seed(1)
    with contextlib.nullcontext() if strategy is None else strategy.scope():
        layers = [keras.Input((4,)), keras.layers.Dense(3, activation="tanh")]
        made = keras.Sequential([*layers, keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.02)
        made.compile(optimizer, "mse", metrics=["mae"], weighted_metrics=["mse"], **compiled)
    return made


def weights(made):
    return [np.asarray(each).tolist() for each in made.get_weights()]


def trained(batches, strategy):
    """Return the weights after a loop over `batches(epoch)` that a user writes: ((x, y), weight) or (x, y)."""
    with strategy.scope():
        kernel = tf.Variable(tf.ones((4, 1)))

    def on_replica(batch):
        (x, y), weight = batch if isinstance(batch[0], tuple) else (batch, 1.0)
        with tf.GradientTape() as tape:
            losses = tf.reduce_sum((x @ kernel - y) ** 2, axis=-1)
            loss = tf.reduce_mean(weight * losses)
        gradient = tape.gradient(loss, kernel)
        mean = tf.distribute.get_replica_context().all_reduce("MEAN", gradient)
        kernel.assign_sub(0.02 * mean)
        return loss

    @tf.function(reduce_retracing=True)
    def step(batch):
        return strategy.reduce("MEAN", strategy.run(on_replica, args=(batch,)), axis=None)

    losses = [[float(step(batch)) for batch in batches] for _ in range(EPOCHS)]
    return {"losses": losses, "weights": kernel.numpy().ravel().tolist()}
