"""Batches of a feed are what Keras makes of arrays: its dtypes, its weights, its nests."""

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import (
    StepLosses,
    both,
    light_model,
    make_model,
    same_weights,
    two_in_two_out,
)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64"])
def test_losses_equal_those_of_arrays_bit_for_bit(data, dtype):
    x, y = data
    make = make_model if dtype == "float64" else light_model
    (theirs, expected), (ours, found) = both((x * 100).astype(dtype), y, make=make)
    assert found == expected
    assert same_weights(ours, theirs)


def test_class_weights_in_fit_and_in_the_feed_are_those_of_keras(data):
    x, y = data
    weights = {0: 3.0, 2: 0.5}
    (_, expected), (_, found) = both(x, y, make=light_model, class_weight=weights)
    assert found == expected
    model, log = light_model(), StepLosses()
    feed = ps.from_arrays((x, y)).batch(32).to_keras(class_weight=weights)
    model.fit(feed, epochs=2, verbose=0, callbacks=[log])
    assert log.steps == expected


def test_sample_weights_are_those_of_keras(data):
    x, y = data
    weights = np.linspace(0, 2, len(x))
    expected, found = StepLosses(), StepLosses()
    light_model().fit(
        x, y, sample_weight=weights, shuffle=False, verbose=0, batch_size=32, callbacks=[expected]
    )
    feed = ps.from_arrays((x, y, weights)).batch(32).to_keras()
    light_model().fit(feed, verbose=0, callbacks=[found])
    assert found.steps == expected.steps


@pytest.mark.parametrize("has_weight", [False, True])
def test_dict_inputs_and_several_outputs(data, has_weight):
    x, _ = data
    inputs = {"a": x, "b": x[:, :3].astype("float64")}
    outputs = {"p": x[:, :2], "q": x[:, :1]}
    weight = np.linspace(0, 1, len(x)).astype("float32")
    nest = (inputs, outputs, weight) if has_weight else (inputs, outputs)
    expected, found = StepLosses(), StepLosses()
    two_in_two_out().fit(
        inputs,
        outputs,
        sample_weight=weight if has_weight else None,
        batch_size=32,
        shuffle=False,
        verbose=0,
        callbacks=[expected],
    )
    two_in_two_out().fit(ps.from_arrays(nest).batch(32).to_keras(), verbose=0, callbacks=[found])
    assert found.steps == expected.steps


def test_leaves_of_a_batch_share_no_memory(data):
    """TensorFlow writes into memory that it takes to be one tensor's own."""
    x, _ = data
    nest = ({"a": x}, {"p": x, "q": x}, np.ones(len(x), "float32"))
    feed = ps.from_arrays(nest).batch(32).to_keras()
    for inputs, outputs, weights in feed.get_numpy_iterator():
        leaves = [*inputs.values(), *outputs.values(), *weights.values()]
        for number, leaf in enumerate(leaves):
            assert not any(np.shares_memory(leaf, other) for other in leaves[:number])


def test_a_tuple_of_inputs(data):
    x, y = data
    keras.utils.set_random_seed(0)
    a, b = keras.Input((8,)), keras.Input((8,))
    model = keras.Model([a, b], keras.layers.Dense(1)(keras.layers.Add()([a, b])))
    model.compile("sgd", "mse")
    history = model.fit(ps.from_arrays(((x, x), y)).batch(32).to_keras(), epochs=2, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]
