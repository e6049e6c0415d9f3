"""The checkpoint goes on exactly where it saved, whatever feeds the model. ../test_checkpoint.py kills for real."""

import warnings

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, same_weights
from feeds.keras.training import NUM_ROWS, RowsSeen, dataset

KINDS = ["rows", "filter", "steps"] + ([] if BACKEND == "torch" else ["several"])


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


def make(kind):
    keras.utils.set_random_seed(0)
    layers = [RowsSeen(), keras.layers.Dense(3), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    steps = 3 if kind == "several" else 1
    model.compile(keras.optimizers.Adam(1e-3), "mse", metrics=["mae"], steps_per_execution=steps)
    return model, layers[0]


def run(kind, folder, stop_at=None, epochs=2):
    model, counter = make(kind)
    feed = dataset(kind).to_keras()
    saving = [feed.checkpoint(str(folder), every_batches=2)]
    history = model.fit(
        feed,
        epochs=epochs,
        verbose=0,
        steps_per_epoch=7 if kind == "steps" else None,
        callbacks=saving if stop_at is None else [*saving, StopAt(stop_at)],
    )
    return model, keras.ops.convert_to_numpy(counter.seen.value), history.history


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_cut_short_anywhere_ends_with_the_same_weights(tmp_path, kind):
    expected, seen, history = run(kind, tmp_path / "whole")
    for stops in ([1], [5, 3], [7], [11, 2]):
        if kind == "several":
            stops = [1 + stop // 3 for stop in stops]
        folder = tmp_path / f"cut{stops}"
        for stop in stops:
            with pytest.raises(Stop):
                run(kind, folder, stop)
        found, found_seen, found_history = run(kind, folder)
        assert same_weights(found, expected), (kind, stops)
        assert np.array_equal(found_seen, seen)
        assert found_history["mae"][-1] == history["mae"][-1], (kind, stops)
        assert found_history["loss"][-1] == history["loss"][-1], (kind, stops)
    if kind == "rows":
        assert (seen == 2).all()
        assert len(seen) == NUM_ROWS


def test_a_finished_run_is_not_trained_again(tmp_path):
    first, seen, _ = run("rows", tmp_path)
    again, seen_again, _ = run("rows", tmp_path)
    assert same_weights(first, again)
    _, seen_more, _ = run("rows", tmp_path, epochs=3)
    assert np.array_equal(seen, seen_again)
    assert (seen_more == 3).all()


def test_a_checkpoint_of_another_model_or_pipeline_is_refused(tmp_path):
    run("rows", tmp_path)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    feed = dataset("rows").to_keras()
    with pytest.raises(ps.StateError, match=r"another model or backend.*Remove"):
        model.fit(feed, verbose=0, callbacks=[feed.checkpoint(str(tmp_path))])
    model, _ = make("rows")
    feed = dataset("filter").to_keras()
    with pytest.raises(ps.StateError, match="another pipeline"):
        model.fit(feed, epochs=3, verbose=0, callbacks=[feed.checkpoint(str(tmp_path))])


@pytest.mark.parametrize("kind", ["rows", "filter", "several"])
@pytest.mark.parametrize("done", [0, 3, 6])
def test_a_state_lets_fit_go_on_with_the_rest_of_its_epoch_and_then_with_whole_ones(kind, done):
    if BACKEND == "torch" and kind == "several":
        pytest.skip("torch has no steps_per_execution")
    ds = dataset(kind)
    with ds.stream(epoch=1) as stream:
        for _ in range(done):
            next(stream)
        state = stream.state()
        rest = [int(row) for x, _ in stream for row in x[:, 0]]
    with ds.stream(epoch=2) as stream:
        following = [int(row) for x, _ in stream for row in x[:, 0]]
    model, counter = make(kind)
    feed = ds.to_keras()
    feed.resume(state)
    model.fit(feed, epochs=1, verbose=0)
    seen = keras.ops.convert_to_numpy(counter.seen.value)
    assert sorted(np.flatnonzero(seen).tolist()) == sorted(rest)
    model.fit(feed, epochs=1, verbose=0)
    both = keras.ops.convert_to_numpy(counter.seen.value) - seen
    assert sorted(np.flatnonzero(both).tolist()) == sorted(following)


def test_a_state_with_steps_per_epoch_starts_there_and_takes_all_steps():
    ds = dataset("rows")
    with ds.stream() as stream:
        for _ in range(4):
            next(stream)
        state = stream.state()
        rest = [int(row) for x, _ in stream for row in x[:, 0]]
    model, counter = make("steps")
    feed = ds.to_keras()
    feed.resume(state)
    model.fit(feed, epochs=1, steps_per_epoch=5, verbose=0)
    seen = np.flatnonzero(keras.ops.convert_to_numpy(counter.seen.value)).tolist()
    assert sorted(seen) == sorted(rest[: 5 * 8])


def test_a_feed_tells_what_it_is_how_long_and_where_it_stands():
    ds = dataset("rows")
    feed = ds.to_keras()
    assert len(feed) == len(ds) == feed.num_batches == 12
    assert repr(feed) == "<KerasFeed of batch(8): epoch 0, after batch 0 of 12>"
    model, _ = make("rows")
    model.fit(feed, epochs=2, verbose=0)
    assert repr(feed) == "<KerasFeed of batch(8): epoch 2, after batch 0 of 12>"
    with ds.stream(epoch=4) as stream:
        next(stream)
        feed.resume(stream.state())
    assert repr(feed) == "<KerasFeed of batch(8): epoch 4, after batch 1 of 12>"
    unknown = dataset("filter").to_keras()
    assert unknown
    assert unknown.num_batches is None
    with pytest.raises(TypeError, match="number of batches is unknown"):
        len(unknown)


def test_a_state_of_another_dataset_is_refused_when_it_is_given():
    with dataset("filter").stream() as stream:
        state = stream.state()
    with pytest.raises(ps.StateError, match="another pipeline"):
        dataset("rows").to_keras().resume(state)


def test_the_public_fall_back_goes_on_between_epochs_only():
    from penstock.feeds.keras.pydataset import PyDatasetFeed

    ds = dataset("rows")
    feed = PyDatasetFeed(ds)
    assert len(feed) == 12
    assert repr(feed) == "<PyDatasetFeed of batch(8): epoch 0>"
    with ds.stream(epoch=3) as stream:
        start = stream.state()
        next(stream)
        with pytest.raises(ps.StateError, match="can only go on between two epochs"):
            feed.resume(stream.state())
    feed.resume(start)
    expected, found = [], []
    for target, data in ((expected, ds.to_keras()), (found, feed)):
        data.resume(start)
        model, _ = make("rows")
        noted = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, target=target: target.append(logs["loss"])
        )
        model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[noted])
    assert found == expected


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.data is for TensorFlow")
def test_a_tf_dataset_that_goes_on_has_whole_epochs_after_the_first():
    ds = dataset("rows")
    with ds.stream() as stream:
        for _ in range(5):
            next(stream)
        state = stream.state()
    feed = ds.to_tf()
    feed.resume(state)
    model, counter = make("rows")
    steps = []
    noted = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: steps.append(0),
        on_train_batch_end=lambda batch, logs: steps.append(steps.pop() + 1),
    )
    with warnings.catch_warnings():
        # Keras warns of an epoch that is shorter than the others, and of a shuffle that tf.data does.
        warnings.simplefilter("ignore", UserWarning)
        model.fit(feed, epochs=3, verbose=0, callbacks=[noted])
    assert steps == [7, 12, 12]
    seen = keras.ops.convert_to_numpy(counter.seen.value)
    assert seen.sum() == NUM_ROWS * 3 - 5 * 8
