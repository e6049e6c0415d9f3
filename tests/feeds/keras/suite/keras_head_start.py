"""What the first epoch reads first is read while Keras builds its model, and the batches are the same."""

import threading

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, same_weights
from penstock.engine.stream import stream as streams
from penstock.feeds.keras import head_start
from penstock.feeds.keras.head_start import HeadStart
from penstock.memory import process_ledger

# On TensorFlow a model with an input is built by nobody but itself.
IS_BUILT_FIRST = BACKEND != "tensorflow"


@pytest.fixture
def files(data, tmp_path):
    np.savez(tmp_path / "data.npz", x=data[0], y=data[1])
    return tmp_path / "data.npz"


def dataset(source):
    return (
        ps.from_arrays(source)
        if isinstance(source, tuple)
        else ps.from_files(source, fields=("x", "y"))
    )


@pytest.fixture
def events(monkeypatch):
    """What happens to streams, in order."""
    noted = []

    def note(name):
        called = getattr(streams.Stream, name)

        def wrapped(self, *args, **options):
            noted.append(name.strip("_"))
            return called(self, *args, **options)

        monkeypatch.setattr(streams.Stream, name, wrapped)

    for name in ("__init__", "begin"):
        note(name)
    return noted


def compiled(width=8):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((width,)), keras.layers.Dense(4)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    return model


def our_threads():
    return [one for one in threading.enumerate() if one.name.startswith("penstock")]


def trained(ds, callbacks=(), **options):
    model = compiled()
    feed = ds.to_keras()
    feed_callbacks = [make(feed) for make in callbacks]
    model.fit(feed, shuffle=False, verbose=0, callbacks=feed_callbacks, **options)
    return model


@pytest.mark.parametrize("steps", [None, 3])
def test_the_first_epoch_takes_the_stream_that_was_opened_for_it(data, files, events, steps):
    results = []
    for arrays in (data, files):
        ds = dataset(arrays).batch(40)
        results.append(trained(ds, epochs=2, steps_per_epoch=steps))
        assert events.count("init") == 2  # An epoch has 5 batches.
        is_early = IS_BUILT_FIRST and arrays is files
        assert events.count("begin") == (1 if is_early else 0)
        events.clear()
    assert same_weights(*results)


def test_a_state_that_a_callback_brings_is_where_the_epoch_begins(files):
    ds = dataset(files).shuffle(seed=1).batch(40)
    with ds.stream(epoch=2) as stream:
        for _ in range(3):
            next(stream)
        state = stream.state()

    class Resumes(keras.callbacks.Callback):
        def __init__(self, feed):
            super().__init__()
            self.feed = feed

        def on_train_begin(self, logs=None):
            self.feed.resume(state)

    expected = compiled()
    feed = ds.to_keras()
    feed.resume(state)
    expected.fit(feed, verbose=0)
    assert same_weights(trained(ds, [Resumes]), expected)
    assert not our_threads()


def test_a_model_that_can_not_be_built_leaves_nothing_open(files, monkeypatch):
    monkeypatch.setattr(head_start, "IDLE_SECONDS", 0.05)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Reshape((7,))])
    model.compile(optimizer="adam", loss="mse")
    feed = dataset(files).shuffle(seed=1).batch(40).to_keras()
    with pytest.raises(Exception, match=r"(?i)reshape|shape|size"):
        model.fit(feed, verbose=0)
    for thread in our_threads():  # While the error is still there, and keeps what Keras had.
        thread.join(60)
    assert process_ledger.granted == 0


def test_what_else_is_opened_meanwhile_has_the_memory(files):
    """A budget that has room for one stream only: whatever is read before the epoch closes what was begun for it."""
    ds = dataset(files).shuffle(seed=1).batch(40)
    model = compiled()
    feed = ds.to_keras()

    class Looks(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            self.model.evaluate(feed, verbose=0)

    model.fit(feed, verbose=0, callbacks=[Looks()])
    assert not our_threads()
    assert same_weights(model, trained(ds))


def test_functions_caches_and_rows_in_memory_are_not_read_before_their_time(data, files, tmp_path):
    rows = dataset(files)
    assert HeadStart.helps(rows.shuffle(seed=0).batch(8))
    assert not HeadStart.helps(ps.from_arrays(data).shuffle(seed=0).batch(8))
    assert not HeadStart.helps(rows.map(lambda x, y: (x, y)).batch(8))
    assert not HeadStart.helps(rows.filter(lambda x, y: True).batch(8))
    assert not HeadStart.helps(rows.cache(tmp_path / "cache").shuffle(seed=0).batch(8))
    assert not HeadStart.helps(rows.cache().batch(8))
    assert not HeadStart.helps(rows.batch(8).distribute(rank=0, world=2))
