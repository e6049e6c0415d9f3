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


def last_batches(rows, world, **given):
    """Return the last batch of each rank, as `fit` gets it, of a dataset whose last global batch is padded."""
    ranks = [
        rows.batch(60).distribute(rank=rank, world=world, uneven="pad") for rank in range(world)
    ]
    return [list(ds.to_keras(**given).get_numpy_iterator())[-1] for ds in ranks]


def in_row_order(parts):
    """Return the rows of all ranks in the order of the global batch."""
    return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])


@pytest.mark.parametrize("given", [None, "float64", "int64"])
def test_rows_that_fill_up_a_batch_have_no_weight_and_the_others_more(data, given):
    x, y = data  # 200 rows: the last global batch has 20, filled up to 21.
    own = np.arange(200) % 3 + 1
    nest = (x, y) if given is None else (x, y, own.astype(given))
    batches = last_batches(ps.from_arrays(nest), 3)
    found = in_row_order([batch[2] for batch in batches])
    assert found.dtype == "float32"
    wanted = np.full(20, 21 / 20) if given is None else own[180:] * (21 / 20)
    assert np.allclose(found, [*wanted, 0])
    assert np.array_equal(in_row_order([batch[1] for batch in batches])[:20], y[180:])


def test_weights_of_rows_are_multiplied_with_those_of_classes_and_go_to_every_output(data):
    x, y = data
    weights = {0: 3.0, 2: 0.5}
    batches = last_batches(ps.from_arrays((x, y)), 3, class_weight=weights)
    of_classes = [weights.get(int(label), 1.0) for label in y[180:].ravel()]
    found = in_row_order([batch[2] for batch in batches])
    assert np.allclose(found, [*np.multiply(of_classes, 21 / 20), 0])
    outputs = {"p": x[:, :2], "q": x[:, :1]}
    batches = last_batches(ps.from_arrays((x, outputs)), 3)
    for name in outputs:
        found = in_row_order([batch[2][name] for batch in batches])
        assert np.allclose(found, [*[21 / 20] * 20, 0])
    steps = np.ones((200, 5), "float32")  # a weight for each step of a series
    found = in_row_order([batch[2] for batch in last_batches(ps.from_arrays((x, x, steps)), 3)])
    assert found.shape == (21, 5)
    assert np.allclose(found[-2:], [[21 / 20] * 5, [0] * 5])


@pytest.mark.parametrize("static", [False, True])
def test_a_padded_dataset_of_one_rank_trains_evaluates_and_predicts_as_arrays_do(data, static):
    x, y = data
    theirs, ours = light_model(), light_model()
    ds = ps.from_arrays((x, y)).batch(32).distribute(rank=0, world=1, uneven="pad", static=static)
    theirs.fit(x, y, batch_size=32, epochs=2, shuffle=False, verbose=0)
    ours.fit(ds.to_keras(), epochs=2, verbose=0)
    for mine, wanted in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        assert np.allclose(mine, wanted, atol=1e-6)
    figures = theirs.evaluate(x, y, batch_size=32, verbose=0)
    assert np.allclose(ours.evaluate(ds.to_keras(), verbose=0), figures, atol=1e-6)
    found = ours.predict(ds.to_keras(), verbose=0)
    assert np.allclose(found, theirs.predict(x, batch_size=32, verbose=0), atol=1e-6)


def test_weights_need_labels_in_fit_and_not_in_predict(data):
    x, _ = data
    feed = ps.from_arrays((x,)).batch(32).distribute(rank=0, world=1, uneven="pad").to_keras()
    model = light_model()
    assert len(model.predict(feed, verbose=0)) == 200
    with pytest.raises(ValueError, match="weighs rows, and Keras takes weights only beside labels"):
        model.fit(feed, verbose=0)
