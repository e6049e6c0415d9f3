"""The mistakes of the first minute on the side of training: each is told at once, with what to write instead."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import light_model, make_model

X = np.random.default_rng(0).random((40, 8), np.float32)
Y = np.arange(40, dtype="int32") % 4
FEED = r"right: model\.fit\(ds\.to_keras\(\)\)"


def ds():
    return ps.from_arrays((X, Y)).batch(8)


def named(**fields):
    return ps.from_arrays(fields).batch(8).to_keras()


# What a user writes, the error, and what it must say.
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "fit on a dataset": (lambda: light_model().fit(ds()), TypeError, FEED),
    "fit on a dataset, and labels": (lambda: light_model().fit(ds(), Y), TypeError, FEED),
    "evaluate on a dataset": (lambda: light_model().evaluate(ds()), TypeError, FEED),
    "predict on a dataset": (lambda: light_model().predict(ds()), TypeError, FEED),
    "validation on a dataset": (
        lambda: light_model().fit(ds().to_keras(), validation_data=ds(), verbose=0),
        TypeError,
        FEED,
    ),
    "fit on rows": (
        lambda: light_model().fit(ps.from_arrays((X, Y))),
        TypeError,
        r"right: model\.fit\(ds\.batch\(32\)\.to_keras\(\)\)",
    ),
    "a feed for PyTorch": (
        lambda: light_model().fit(ds().to_torch()),
        TypeError,
        r"can't read a TorchFeed.*\n.*ds\.to_keras\(\)",
    ),
    "a feed for JAX": (
        lambda: light_model().fit(ds().to_jax()),
        TypeError,
        r"can't read a JaxFeed.*\n.*ds\.to_keras\(\)",
    ),
    "rows that are dicts": (
        lambda: light_model().fit(named(x=X, y=Y), verbose=0),
        ValueError,
        r"a row of this dataset is a dict.*'x', 'y'.*\n.*\n.*fields=\('x', 'y'\)",
    ),
    "rows that are dicts, labels first": (
        lambda: light_model().fit(named(label=Y, picture=X), verbose=0),
        ValueError,
        r"fields=\('picture', 'label'\)\), or ds\.map\(lambda row: \(row\['picture'\], row\['label'\]",
    ),
    "rows that are dicts of several inputs": (
        lambda: light_model().fit(named(a=X, b=X, label=Y), verbose=0),
        ValueError,
        r"fields=\(\('a', 'b'\), 'label'\)\), or ds\.map\(lambda row: \(\(row\['a'\], row\['b'\]\), row\['label'\]\)",
    ),
    "files side by side": (
        lambda: light_model().fit(
            ps.zip({"x": ps.from_arrays(X), "y": ps.from_arrays(Y)}).batch(8).to_keras(), verbose=0
        ),
        ValueError,
        r"right: ds\.map\(lambda row: \(row\['x'\], row\['y'\]\)\) before batch",
    ),
    "evaluate on rows that are dicts": (
        lambda: light_model().evaluate(named(x=X, y=Y), verbose=0),
        ValueError,
        r"a row of this dataset is a dict.*\n.*\n.*fields=\('x', 'y'\)",
    ),
    "validation on rows that are dicts": (
        lambda: light_model().fit(ds().to_keras(), validation_data=named(x=X, y=Y), verbose=0),
        ValueError,
        r"a row of this dataset is a dict.*\n.*\n.*fields=\('x', 'y'\)",
    ),
    "evaluate without labels": (
        lambda: light_model().evaluate(ps.from_arrays(X).batch(8).to_keras(), verbose=0),
        ValueError,
        r"needs labels, and batches have none.*\n.*\n.*from_arrays\(\(x, y\)\)",
    ),
    "no labels": (
        lambda: light_model().fit(ps.from_arrays(X).batch(8).to_keras(), verbose=0),
        ValueError,
        r"needs labels, and batches have none.*\n.*\n.*from_arrays\(\(x, y\)\)",
    ),
    "labels that are text": (
        lambda: light_model().fit(ps.from_arrays((X, ["a"] * len(X))).batch(8).to_keras()),
        TypeError,
        r"(needs labels that are numbers, and those(.|\n)*map|has numbers only.*map)",
    ),
    "labels that are an array of text": (
        lambda: ps.fit_arrays(light_model(), X, np.array(["a"] * len(X))),
        TypeError,
        r"(needs labels that are numbers, and those(.|\n)*map|has numbers only.*map)",
    ),
    "arrays before the model": (
        lambda: ps.fit_arrays(X, Y, light_model()),
        TypeError,
        r"takes a compiled Keras model first, got ndarray: ps\.fit_arrays\(model, x, y\)",
    ),
    "a list of inputs": (
        lambda: ps.from_arrays(([X, X], Y)),
        ps.LengthError,
        r"'0' is a list of 2 arrays.*40 rows.*\n.*\n.*right: from_arrays\(\(\(a, b\), y\)\)",
    ),
    "a list of inputs and labels": (
        lambda: ps.from_arrays([X, Y]),
        ValueError,
        r"several fields are a tuple: from_arrays\(\(x, y\)\)",
    ),
    "four parts": (
        lambda: ps.from_arrays((X, X, X, Y)).batch(8).to_keras(),
        ValueError,
        r"got a tuple of 4.*\n.*\n.*right: ps\.from_arrays\(\(\(a, b, c\), y\)\)",
    ),
    "CUDA that is not there": (
        lambda: ds().to_torch(device="cuda"),
        ValueError,
        r"to_torch\(device='cuda'\) needs a CUDA device.*finds no CUDA device\. Leave device out",
    ),
    "a device that is none": (
        lambda: ds().to_torch(device="gpu"),
        ValueError,
        "such as 'cpu', 'cuda' or 'cuda:1', got 'gpu'",
    ),
    "a GPU that TensorFlow has not": (
        lambda: ds().to_tf(device="/GPU:0"),
        ValueError,
        "has no device '/GPU:0'; it has .*CPU:0.*Leave device out",
    ),
    "a device that TensorFlow can't read": (
        lambda: ds().to_tf(device="the fast one"),
        ValueError,
        "such as '/GPU:0' or '/CPU:0', got 'the fast one'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_with_its_cure(name):
    make, error, words = MISTAKES[name]
    with pytest.raises(error, match=words):
        make()


def test_models_that_know_where_their_labels_are_may_have_dicts():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(4)

        def call(self, row):
            return self.dense(row["x"])

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return super().compute_loss(x, x["y"], y_pred, sample_weight)

    model = Own()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert len(model.fit(named(x=X, y=Y), epochs=2, verbose=0).history["loss"]) == 2
    # A model without a loss, but for what its layers add.
    inputs = keras.Input((8,))
    added = keras.layers.ActivityRegularization(l2=0.1)(keras.layers.Dense(2)(inputs))
    plain = keras.Model(inputs, added)
    plain.compile("sgd")
    plain.fit(ps.from_arrays(X).batch(8).to_keras(), verbose=0)


def test_datasets_and_feeds_are_what_they_are_to_everybody_else():
    assert isinstance(ds(), ps.Dataset)
    assert ds().__class__ is ps.Dataset
    assert type(ds().to_torch()) is ds().to_torch().__class__
    assert not isinstance(ds(), keras.utils.PyDataset)


# -- a checkpoint of another model ----------------------------------------------------------------


def dense_model(*units, optimizer="sgd"):
    layers = [keras.layers.Dense(each, name=f"layer{i}") for i, each in enumerate(units)]
    model = keras.Sequential([keras.Input((8,)), *layers])
    model.compile(optimizer, "mse")
    return model


def fit(folder, model, epochs=1):
    feed = ps.from_arrays((X, X)).batch(8).to_keras()
    return model.fit(feed, epochs=epochs, verbose=0, callbacks=[feed.checkpoint(str(folder))])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            lambda: dense_model(4, 8),
            r"layer0/kernel of shape \(8, 6\) is \S*layer0/kernel of shape \(8, 4\)",
        ),
        (
            lambda: dense_model(6, 7, 8),
            r"it has \d+ variables .*, and this model \d+; \S*layer1/kernel",
        ),
        (
            lambda: dense_model(6, 8, optimizer="adam"),
            r"it has \d+ variables \(weights, optimizer and metrics\), and this model \d+",
        ),
    ],
    ids=["a width", "a layer", "an optimizer"],
)
def test_a_checkpoint_of_another_model_says_what_differs(tmp_path, other, words):
    fit(tmp_path, dense_model(6, 8))
    with pytest.raises(ps.StateError, match=rf"belongs to another model: .*{words}.*Remove"):
        fit(tmp_path, other(), epochs=2)


def test_a_finished_run_says_that_nothing_is_left_to_train(tmp_path):
    fit(tmp_path, dense_model(6, 8), epochs=2)
    with pytest.warns(
        ps.PenstockWarning,
        match=r"nothing is left to train: 2 epochs are done, of 2, as .*npz says",
    ):
        assert fit(tmp_path, dense_model(6, 8), epochs=2).epoch == []
    with pytest.warns(ps.PenstockWarning, match=r"2 epochs are done, of 1.*give fit more epochs"):
        fit(tmp_path, dense_model(6, 8), epochs=1)
    assert fit(tmp_path, dense_model(6, 8), epochs=3).epoch == [2]


# -- outputs in another order ---------------------------------------------------------------------


def test_outputs_of_a_shuffled_dataset_are_said_to_be_in_that_order(tmp_path):
    model = make_model()
    shuffled = ps.from_arrays((X, Y)).shuffle(seed=0).batch(8).to_keras()
    words = r"in the order in which the dataset is shuffled.*leave shuffle\(\) out"
    with pytest.warns(ps.PenstockWarning, match=f"^predict gives its outputs {words}") as caught:
        found = model.predict(shuffled, verbose=0)
    assert (
        caught[0].filename == __file__
    )  # The line of the user's, and not one in the middle of Keras.
    with pytest.warns(ps.PenstockWarning, match=f"^predict_to gives its outputs {words}"):
        shuffled.predict_to(str(tmp_path / "out.npy"), model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        model.evaluate(shuffled, verbose=0)
        plain = model.predict(ds().to_keras(), verbose=0)
        ds().to_keras().predict_to(str(tmp_path / "plain.npy"), model)
    assert not np.array_equal(found, plain)
    assert np.allclose(np.sort(found, axis=0), np.sort(plain, axis=0), atol=1e-6)


@pytest.mark.parametrize("name", ["resample", "bucket_by_sequence_length"])
def test_outputs_behind_stages_that_move_rows_are_said_to_be_in_that_order(name, tmp_path):
    model = make_model()
    rows = ps.from_arrays((X, Y))
    moved = {
        "resample": lambda: rows.resample(by=1, seed=0).batch(8),
        "bucket_by_sequence_length": lambda: rows.bucket_by_sequence_length(
            lambda x, y: int(y), [2], [8, 8]
        ),
    }[name]().to_keras()
    words = f"in the order in which {name} puts rows.*leave {name} out"
    with pytest.warns(ps.PenstockWarning, match=f"^predict gives its outputs {words}"):
        model.predict(moved, verbose=0)
    with pytest.warns(ps.PenstockWarning, match=f"^predict_to gives its outputs {words}"):
        moved.predict_to(str(tmp_path / "out.npy"), model)


@pytest.mark.parametrize("other", ["a feed", "arrays", "tf.data", "validation data"])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_checkpoint_of_another_feed_says_so(tmp_path, other, is_wrapped):
    """Also where a callback of the user's calls it, so that who is fitted can't be seen before the first batch."""
    ds = ps.from_arrays((X, X)).batch(8)
    feed = ds.to_keras()
    data, labels, more = ds.to_keras(), None, {}
    if other == "arrays":
        data, labels = X, X
    elif other == "tf.data":
        data, more = ds.to_tf(), {"shuffle": False}
    elif other == "validation data":
        more = {"validation_data": feed}

    class Wrapped(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            saving.set_model(self.model)
            saving.set_params(self.params)
            saving.on_train_begin()

        def on_train_batch_end(self, batch, logs=None):
            saving.on_train_batch_end(batch)

    saving = feed.checkpoint(str(tmp_path / "run"))
    callbacks = [Wrapped() if is_wrapped else saving]
    with pytest.raises(
        ValueError, match=r"belongs to another feed(.|\n)*fit\(feed, callbacks=\[feed"
    ):
        dense_model(6, 8).fit(data, labels, callbacks=callbacks, verbose=0, **more)
    assert is_wrapped or not (tmp_path / "run").exists()
