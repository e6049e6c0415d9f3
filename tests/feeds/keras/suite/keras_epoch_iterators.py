"""Threads, streams and buffers of a call of Keras are gone when it returns, without a garbage collection."""

import gc
import threading

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND
from penstock.engine.stream import Stream

SEVERAL = [1] if BACKEND == "torch" else [1, 4]


def our_threads():
    return [t.name for t in threading.enumerate() if t.name.lower().startswith("penstock")]


@pytest.fixture(autouse=True)
def _no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def dataset(kind="rows", num_rows=40_000):
    rows = ps.from_arrays((np.zeros((num_rows, 2), "float32"), np.zeros(num_rows, "float32")))
    return (rows if kind == "rows" else rows.filter(lambda x, y: True)).batch(8)


def make_model(**options):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", **options)
    return model


class Stops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch >= 3

    def on_test_batch_end(self, batch, logs=None):
        self.model.stop_evaluating = batch >= 3

    def on_predict_batch_end(self, batch, logs=None):
        self.model.stop_predicting = batch >= 3


class Enough(Exception):
    pass


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch >= 3:
            raise Enough


@pytest.mark.parametrize("steps", SEVERAL)
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_call_that_stops_half_way_leaves_no_thread(kind, steps):
    feed, held_out = dataset(kind).to_keras(), dataset(kind).to_keras()
    model, stops = make_model(steps_per_execution=steps), Stops()
    calls = {
        "stop_training": lambda: model.fit(feed, epochs=2, verbose=0, callbacks=[stops]),
        "steps_per_epoch": lambda: model.fit(feed, steps_per_epoch=5, epochs=2, verbose=0),
        "validation_steps": lambda: model.fit(
            feed, steps_per_epoch=5, validation_data=held_out, validation_steps=3, verbose=0
        ),
        "validation_freq": lambda: model.fit(
            feed, steps_per_epoch=3, epochs=2, validation_data=held_out, validation_steps=3,
            validation_freq=2, verbose=0,
        ),
        "initial_epoch": lambda: model.fit(
            feed, initial_epoch=1, epochs=2, verbose=0, callbacks=[stops]
        ),
        "evaluate": lambda: model.evaluate(feed, steps=4, verbose=0),
        "predict": lambda: model.predict(feed, steps=4, verbose=0),
        "stop_evaluating": lambda: model.evaluate(feed, verbose=0, callbacks=[stops]),
        "stop_predicting": lambda: model.predict(feed, verbose=0, callbacks=[stops]),
    }  # fmt: skip
    for name, call in calls.items():
        call()
        assert not our_threads(), name


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_call_that_raises_leaves_no_thread_once_its_error_is_dealt_with(kind):
    feed = dataset(kind).to_keras()
    with pytest.raises(Enough):
        make_model().fit(feed, verbose=0, callbacks=[Fails()])
    assert not our_threads()
    bad = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape((7,))])
    bad.compile("sgd", "mse")
    with pytest.raises((ValueError, RuntimeError), match="total size of the tensor"):
        bad.fit(feed, verbose=0)
    assert not our_threads()


@pytest.mark.parametrize("steps_per_epoch", [None, 30])
def test_the_stream_of_an_epoch_is_let_go_of_when_the_next_begins(steps_per_epoch):
    living = []

    class Counts(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            living.append(sum(isinstance(each, Stream) for each in gc.get_objects()))

    feed = dataset(num_rows=80).to_keras()
    options = {"steps_per_epoch": steps_per_epoch, "epochs": 5, "verbose": 0}
    make_model().fit(feed, callbacks=[Counts()], **options)
    assert max(living[1:]) <= living[1]
