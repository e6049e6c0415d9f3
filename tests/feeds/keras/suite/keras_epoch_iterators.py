"""Threads, streams and buffers of a call of Keras are gone when it returns, without a garbage collection."""

import gc
import signal
import threading
import warnings
from time import monotonic, sleep

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, spying_model
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


def numbered(num_rows):
    x = np.zeros((num_rows, 2), "float32")
    x[:, 0] = np.arange(num_rows)
    return x, np.zeros(num_rows, "float32")


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
    """Raises after a few batches, at one of Keras' calls of a callback."""

    def __init__(self, at, error=Enough):
        super().__init__()
        self.error = error
        setattr(self, at, self.fail)

    def fail(self, batch, logs=None):
        if batch >= 3:
            raise self.error


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


@pytest.mark.parametrize(("kind", "steps"), [("rows", 1), ("flow", SEVERAL[-1])])
def test_a_call_that_raises_leaves_no_thread_even_while_its_error_is_kept(kind, steps):
    feed, held_out = dataset(kind).to_keras(), dataset(kind).to_keras()

    def model():  # On JAX, one that was trained until an error has lost its weights.
        return make_model(steps_per_execution=steps)

    calls = {
        "on_train_batch_begin": lambda fails: model().fit(feed, **fails),
        "on_train_batch_end": lambda fails: model().fit(feed, steps_per_epoch=9, **fails),
        "on_test_batch_end": lambda fails: model().evaluate(feed, **fails),
        "on_predict_batch_end": lambda fails: model().predict(feed, **fails),
        "on_test_batch_begin": lambda fails: model().fit(
            dataset(num_rows=80).to_keras(), validation_data=held_out, **fails
        ),
    }
    kept = []
    for number, (at, call) in enumerate(calls.items()):
        error = (Enough, KeyboardInterrupt)[number % 2]
        with pytest.raises(error) as found:
            call({"verbose": 0, "callbacks": [Fails(at, error)]})
        kept.append(found.value)
        assert not our_threads(), at
    bad = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape((7,))])
    bad.compile("sgd", "mse")
    with pytest.raises((ValueError, RuntimeError), match="total size of the tensor") as found:
        bad.fit(feed, verbose=0)
    kept.append(found.value)
    assert not our_threads()
    assert all(each.__traceback__ is not None for each in kept)


@pytest.mark.skipif(BACKEND != "torch", reason="only there is a pass closed when its loop is left")
def test_epochs_go_on_where_a_callback_stops_one_and_takes_that_back():
    """With steps_per_epoch, one pass is read by all epochs."""
    model, seen = spying_model()
    ds = ps.from_arrays(numbered(80)).batch(8)

    class Changes(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = batch == 1

        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = False

    model.fit(ds.to_keras(), steps_per_epoch=4, epochs=3, verbose=0, callbacks=[Changes()])
    assert [rows[0] // 8 for rows in seen] == [0, 1, 2, 3, 4, 5]


def test_one_ctrl_c_gets_out_of_a_fit_whose_generator_does_not_return():
    is_armed, is_blocked, may_go_on = (threading.Event() for _ in range(3))

    def rows():
        for number in range(200):
            if number == 100 and is_armed.is_set():
                is_blocked.set()
                may_go_on.wait(60)
            yield np.zeros(2, "float32"), np.float32(0)

    def strike():
        is_blocked.wait(60)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    arms = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: is_armed.set())
    spec = (ps.ArraySpec((2,), "float32"), ps.ArraySpec((), "float32"))
    feed = ps.from_generator(rows, spec=spec).batch(8).to_keras()
    model = make_model()
    # Traced before: Keras 3.15 takes a Ctrl-C for a mistake in the inputs where it strikes while it looks at them then.
    model.fit(np.zeros((16, 2), "float32"), np.zeros(16, "float32"), batch_size=8, verbose=0)
    striker = threading.Thread(target=strike)
    striker.start()
    try:
        with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
            warnings.filterwarnings("ignore", "the stream was closed, but from_generator")
            model.fit(feed, verbose=0, callbacks=[arms])
    finally:
        may_go_on.set()
        striker.join()
    feed.close()
    # Not by join: one that Ctrl-C interrupts takes its thread for ended, in Python 3.11.
    until = monotonic() + 60
    while our_threads() and monotonic() < until:
        sleep(0.01)
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
