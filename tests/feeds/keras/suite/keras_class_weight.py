"""What is wrong with class_weight is told: Keras ignores, class by class, what it can't use."""

import warnings

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import light_model

LABELS = np.repeat([0, 1, 3], [50, 30, 120])


def data_with(labels):
    x = np.random.default_rng(0).random((200, 8), np.float32)
    return ps.from_arrays((x, labels))


def model_of(width, loss):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(width)])
    model.compile("sgd", loss)
    return model


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (
            {"0": 1.0, "1": 50.0},
            TypeError,
            r"got '0', which no label is; write {int\(key\): weight",
        ),
        ({0.5: 1.0}, TypeError, "got 0.5, which no label is"),
        ({True: 1.0}, TypeError, "got True, which no label is"),
        ([1.0, 5.0], TypeError, r"must be a dict .* got \[1.0, 5.0\]; write dict\(enumerate"),
        (3.0, TypeError, "must be a dict of a weight for each class, got 3.0"),
        ({0: "heavy"}, ValueError, "must be finite numbers, got 'heavy' for class 0"),
        ({0: np.nan}, ValueError, "must be finite numbers, got nan for class 0"),
        ({0: [1.0]}, ValueError, "must be finite numbers"),
    ],
)
def test_weights_that_keras_would_ignore_are_told(given, kind, words):
    with pytest.raises(kind, match=words):
        data_with(LABELS).batch(32).to_keras(class_weight=given)


@pytest.mark.parametrize("given", [{0: 1, 1: 2.5}, {np.int64(0): np.float32(1)}, {}])
def test_weights_by_the_numbers_of_classes_are_taken(given):
    feed = data_with(LABELS).batch(32).to_keras(class_weight=given)
    light_model().fit(feed, verbose=0)


@pytest.mark.parametrize("of_fit", [{0: 3.0}, {0: 1.0, 1: 2.0, 3: 1.0}, "balanced"])
def test_weights_of_fit_that_differ_from_those_of_the_feed_are_refused(of_fit):
    feed = data_with(LABELS).batch(32).to_keras(class_weight={0: 1.0, 1: 2.0})
    with pytest.raises(
        ValueError, match=r"contradicts that of the feed, {0: 1.0, 1: 2.0}: leave one of them out"
    ):
        light_model().fit(feed, class_weight=of_fit, verbose=0)


@pytest.mark.parametrize(
    ("of_feed", "of_fit"),
    [
        ({0: 1, 1: 2}, {0: 1.0, 1: np.float32(2)}),
        ("balanced", "balanced"),
        ({0: 2.0}, None),
        (None, {0: 2.0}),
    ],
)
def test_the_same_weights_may_be_given_twice(of_feed, of_fit):
    feed = data_with(LABELS).batch(32).to_keras(class_weight=of_feed)
    light_model().fit(feed, class_weight=of_fit, verbose=0)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.eye(4, dtype="float32")[LABELS], r"class 7, .* no label can be 7: .* are 0 to 3"),
        (np.eye(7, dtype="bool")[LABELS], r"class 7, .* are 0 to 6\. Leave it out"),
        (LABELS > 1, "field '1' of a batch is .*bool.*whose classes are 0 to 1"),
    ],
)
def test_classes_that_no_label_can_be_are_refused(labels, words):
    ds = data_with(labels).batch(32)
    with pytest.raises(ValueError, match=words):
        ds.to_keras(class_weight={0: 1.0, 7: 5.0})
    with pytest.raises(ValueError, match=words):
        light_model().fit(ds.to_keras(), class_weight={0: 1.0, 7: 5.0}, verbose=0)


def test_negative_classes_are_refused_where_labels_have_no_sign():
    with pytest.raises(ValueError, match=r"no label can be -1: .*classes are 0 to 255"):
        data_with(LABELS.astype("uint8")).batch(32).to_keras(class_weight={-1: 2.0})
    signs = np.where(LABELS > 1, 1.0, -1.0).astype("float32")
    feed = data_with(signs).batch(32).to_keras(class_weight={-1: 2.0, 1: 1.0})
    model_of(1, "hinge").fit(feed, verbose=0)


def test_weights_of_labels_that_are_text_are_refused():
    with pytest.raises(TypeError, match=r"numbers.*\.map\("):
        data_with(["cat", "dog"] * 100).batch(32).to_keras(class_weight={0: 2.0})


@pytest.mark.parametrize(
    "loss",
    ["sparse_categorical_crossentropy", keras.losses.SparseCategoricalCrossentropy()],
    ids=["by name", "an object"],
)
def test_classes_that_the_model_has_no_output_for_are_refused_before_training(loss):
    feed = data_with(LABELS).batch(32).to_keras(class_weight={0: 1.0, 4: 5.0})
    with pytest.raises(
        ValueError, match="weight for class 4, and the model has 4 outputs, for the classes 0 to 3"
    ):
        model_of(4, loss).fit(feed, verbose=0)


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds.batch(32),
        lambda ds: ds.shuffle(seed=0).batch(32),
        lambda ds: ds.filter(lambda x, y: True).batch(32),
    ],
    ids=["batches", "shuffled", "of unknown length"],
)
@pytest.mark.parametrize("where", ["streamed", "on device"])
@pytest.mark.parametrize("steps", [None, 4])
def test_weights_of_classes_that_no_label_has_are_warned_of_once_after_a_pass(chain, where, steps):
    ds = chain(data_with(LABELS))
    is_resident = where == "on device" and ds.node.num_rows is not None
    feed = ds.to_keras(
        class_weight={0: 1.0, 2: 4.0, 7: 5.0}, device_memory="1GB" if is_resident else None
    )
    words = r"no label of the epoch has: 2, 7\. The labels are 0, 1, 3; check"
    with pytest.warns(ps.PenstockWarning, match=words) as told:
        model_of(1, "mse").fit(feed, epochs=4, steps_per_epoch=steps, verbose=0)
    ours = [each for each in told if issubclass(each.category, ps.PenstockWarning)]
    assert [each.filename for each in ours] == [__file__]


@pytest.mark.parametrize("how", ["a few steps", "resumed", "a rank"])
def test_nothing_is_told_of_classes_before_all_labels_were_seen(how):
    ds, steps = data_with(LABELS).batch(32), None
    if how == "a rank":
        ds = ds.distribute(rank=0, world=1, uneven="drop")
    feed = ds.to_keras(class_weight={0: 1.0, 7: 5.0})
    if how == "a few steps":
        steps = 2
    elif how == "resumed":
        with ds.stream() as stream:
            next(stream)
            feed.resume(stream.state())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ps.PenstockWarning)
        model_of(1, "mse").fit(feed, steps_per_epoch=steps, verbose=0)
