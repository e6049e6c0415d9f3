"""Keras builds its model with a batch of zeros: nothing is read for that, and training is the same."""

import contextlib
from pathlib import Path

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, StepLosses, same_weights
from penstock import workers
from penstock.engine.stream import stream as streams
from penstock.feeds.keras.blank import blank_batch, blank_batches
from penstock.workers import service


@pytest.fixture
def opened(monkeypatch):
    """The streams that are opened, by their epochs."""
    epochs = []
    begin = streams.Stream.__init__

    def noted(self, *args, **options):
        begin(self, *args, **options)
        epochs.append(self.position.epoch)

    monkeypatch.setattr(streams.Stream, "__init__", noted)
    return epochs


@pytest.fixture
def pools(monkeypatch):
    """The pools of worker processes that are started."""
    started = []
    begin = workers.WorkerPool.__init__

    def noted(self, *args, **options):
        started.append(self)
        begin(self, *args, **options)

    monkeypatch.setattr(workers.WorkerPool, "__init__", noted)
    # TensorFlow may compile for longer than that, while all rows of the first epoch are read already.
    monkeypatch.setattr(service, "IDLE_SECONDS", 600)
    return started


def unbuilt_model():
    """A model that knows no shape before it sees a batch."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.layers.Dense(6), keras.layers.Dropout(0.2), keras.layers.Dense(4)]
    )
    model.compile(
        optimizer="adam",
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def strategies():
    # Keras 3.7 can't make its counters under a strategy of this TensorFlow.
    if BACKEND != "tensorflow" or keras.__version__.startswith("3.7."):
        return {"": contextlib.nullcontext}
    import tensorflow as tf

    def mirrored():
        return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope()

    return {"": contextlib.nullcontext, "MirroredStrategy": mirrored}


@pytest.mark.parametrize("name", strategies())
@pytest.mark.parametrize("outlet", ["to_keras", *(["to_tf"] if BACKEND == "tensorflow" else [])])
def test_a_model_is_built_without_reading_and_trains_as_on_arrays(data, opened, name, outlet):
    x, y = data
    results = []
    for is_feed in (False, True):
        with strategies()[name]():
            model, log = unbuilt_model(), StepLosses()
        ds = ps.from_arrays((x, y)).batch(40)
        given = {"x": getattr(ds, outlet)()} if is_feed else {"x": x, "y": y, "batch_size": 40}
        model.fit(**given, shuffle=False, epochs=2, verbose=0, callbacks=[log])
        results.append((model, log.steps))
    (theirs, expected), (ours, found) = results
    assert found == expected
    assert same_weights(ours, theirs)
    assert opened == [0, 1]


def halved(x, y):
    return x / np.float32(2), y


@pytest.mark.parametrize("name", strategies())
@pytest.mark.parametrize("outlet", ["to_keras", *(["to_tf"] if BACKEND == "tensorflow" else [])])
def test_two_epochs_of_fit_start_one_pool_of_processes(data, opened, pools, name, outlet):
    ds = ps.from_arrays(data).map(halved).batch(40).with_options(processes=2)
    with strategies()[name]():
        model = unbuilt_model()
    feed = getattr(ds, outlet)()
    model.fit(feed, epochs=2, shuffle=False, verbose=0)
    assert opened == [0, 1]
    assert len(pools) == 1
    feed.close()


@pytest.mark.parametrize("call", ["evaluate", "predict"])
def test_other_calls_build_without_reading_too(data, opened, call):
    x, y = data
    found = getattr(unbuilt_model(), call)(ps.from_arrays((x, y)).batch(40).to_keras(), verbose=0)
    arrays = (x, y) if call == "evaluate" else (x,)
    expected = getattr(unbuilt_model(), call)(*arrays, batch_size=40, verbose=0)
    assert np.array_equal(found, expected)
    # On JAX `predict` builds no model: it calls it with the first batch, and then reads all of them.
    assert opened == ([0, 0] if (BACKEND, call) == ("jax", "predict") else [0])


def test_rows_of_several_lengths_are_read_to_build(opened):
    rows = [np.arange(length, dtype=np.float32)[:, None] for length in (3, 5, 4, 6, 3, 5)]
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Conv1D(2, 3), keras.layers.GlobalMaxPooling1D(), keras.layers.Dense(1)]
    model = keras.Sequential(layers)  # Of sequences of one it could not be built.
    model.compile(optimizer="sgd", loss="mse")
    ds = ps.zip(ps.from_arrays(rows), ps.from_arrays(np.zeros(6, np.float32)))
    model.fit(ds.padded_batch(2).to_keras(), verbose=0)
    assert opened[-1] == 0


DTYPES = ["float32", "float64", "float16", ">f4", "uint8", "int64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("weights", ["", "classes", "rows", "distributed"])
def test_the_batch_of_zeros_has_the_shapes_and_dtypes_of_one_that_is_read(dtype, weights):
    fields = [np.ones((12, 3, 2), dtype), np.zeros(12, "int32")]
    fields += [np.ones(12)] if weights == "rows" else []
    ds = ps.from_arrays(tuple(fields)).batch(4)
    if weights == "distributed":
        ds = ds.distribute(rank=0, world=1, uneven="pad")
    feed = ds.to_keras(class_weight={0: 2.0} if weights == "classes" else None)
    expected = keras.tree.map_structure(_looks, next(feed.get_numpy_iterator()))
    assert keras.tree.map_structure(_looks, feed.example()) == expected
    feed.close()


def _looks(leaf):
    return f"{leaf.shape} {leaf.dtype}"


def test_a_batch_of_zeros_takes_no_memory():
    rows = ps.from_arrays(np.zeros((1000, 1), np.uint8))
    ds = rows.map(lambda x: x, spec=ps.ArraySpec((1 << 21,), "uint8")).batch(1000)
    before = resident_nbytes()
    batch = blank_batch(ds.node, None)
    assert batch.nbytes > 2_000_000_000
    assert resident_nbytes() - before < 100_000_000


def resident_nbytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_there_are_as_many_as_there_are_batches_unless_their_shapes_are_unknown():
    rows = ps.from_arrays(np.arange(10))
    assert [len(batch) for batch in blank_batches(rows.batch(4).node, None)] == [4, 4, 4]
    assert [
        len(batch) for batch in blank_batches(rows.batch(10, drop_remainder=True).node, None)
    ] == [10]
    unknown = blank_batches(rows.filter(lambda x: True).batch(4).node, None)
    assert [len(next(unknown)) for _ in range(20)] == [4] * 20
    assert blank_batches(rows.batch(16).node, None) is None  # The only batch is shorter.
    assert blank_batches(ps.from_arrays(["a", "b", "c"]).batch(2).node, None) is None
