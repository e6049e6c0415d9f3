"""Training on data that stays on the device is training on the same data, streamed."""

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, StepLosses, Stop, StopAt, light_model, same_weights
from feeds.keras.training import dataset
from penstock.core.nest import flatten

SEVERAL = 1 if BACKEND == "torch" else 3


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    x = np.random.default_rng(0).random((200, 9))
    x[:, 8] = np.random.default_rng(1).integers(0, 4, 200)
    path = tmp_path_factory.mktemp("data") / "x.npy"
    np.save(path, x)
    return str(path)


def chain(kind, data, path):
    x, y = data
    if kind == "arrays":
        return ps.from_arrays((x.astype("float64"), y)).shuffle(seed=0).batch(32)
    labels = ps.from_arrays(y)
    return ps.zip(ps.from_files(path), labels).shuffle(seed=0, window="4KB").batch(32)


def trained(feed, model=None, **options):
    model, log = model or light_model(), StepLosses()
    model.fit(feed, epochs=3, verbose=0, callbacks=[log], **options)
    return model, log.steps


@pytest.mark.parametrize(
    ("kind", "steps", "class_weight"),
    [("arrays", 1, None), ("file", SEVERAL, {0: 3.0, 2: 0.5})],
)
def test_resident_and_streamed_data_train_the_same_model(data, path, kind, steps, class_weight):
    width = 8 if kind == "arrays" else 9
    ds = chain(kind, data, path)
    results = []
    for device_memory in ("1MB", 100):
        feed, model = (
            ds.to_keras(device_memory=device_memory),
            light_model(width, steps_per_execution=steps),
        )
        options = {"validation_data": feed, "class_weight": class_weight}
        results.append((feed, *trained(feed, model, **options)))
    (resident, one, found), (streamed, other, expected) = results
    assert found == expected
    assert same_weights(one, other)
    nbytes = 200 * 4 * (width + 1)  # float32, cast before it was copied
    weights_nbytes = 0 if class_weight is None else 200 * 4
    assert resident.traffic.to_device_nbytes == nbytes + weights_nbytes
    assert resident.traffic.index_nbytes == 6 * 200 * 4  # 3 epochs, each with its validation
    assert streamed.traffic.to_device_nbytes == 6 * nbytes + 3 * weights_nbytes
    assert "note: resident on the device: its" in str(resident.explain())
    assert "streamed to the device: its" in str(streamed.explain())
    assert resident.report().num_elements == 7
    with pytest.warns(ps.PenstockWarning, match="in the order in which the dataset is shuffled"):
        assert np.array_equal(one.predict(resident, verbose=0), one.predict(streamed, verbose=0))
    assert resident.traffic.to_device_nbytes == nbytes + weights_nbytes


def test_on_a_cpu_nothing_stays_unless_memory_is_declared(data):
    feed = ps.from_arrays(data).batch(32).to_keras()
    assert "streamed to the device: the device has no memory of its own" in str(feed.explain())
    mapped = ps.from_arrays(data).batch(32).map(lambda x, y: (x, y)).to_keras(device_memory="1MB")
    assert "streamed to the device: map(<lambda>) calls a function" in str(mapped.explain())


def batches(feed):
    found = [flatten(batch) for _ in range(2) for batch in feed.open()]
    return [([keras.ops.convert_to_numpy(leaf) for leaf in leaves], nest) for leaves, nest in found]


@pytest.mark.parametrize("has_classes", [False, True])
def test_nests_casts_and_weights_are_those_of_streamed_batches(data, has_classes):
    x, y = data
    inputs = {"a": x, "b": x[:, :3].astype("float64"), "c": (x[:, 0] > 0.5)}
    nest = (inputs, y) if has_classes else (inputs, {"p": x, "q": x[:, 1]}, x[:, 0])
    options = {"class_weight": {1: 2.5}} if has_classes else {}
    ds = ps.from_arrays(nest).shuffle(seed=0).batch(32)
    found = batches(ds.to_keras(device_memory="1MB", **options))
    expected = batches(ds.to_keras(**options))
    assert len(found) == len(expected) == 14
    for (mine, one), (theirs, other) in zip(found, expected, strict=True):
        assert one == other
        assert all(a.tobytes() == b.tobytes() for a, b in zip(mine, theirs, strict=True))


def test_steps_per_epoch_goes_on_across_passes_of_what_is_resident(data):
    rows = ps.from_arrays(data).shuffle(seed=0)
    endless = [rows.repeat().batch(32)] if BACKEND == "torch" else []  # Where models are cheap.
    for ds in (rows.batch(32), *endless):
        resident = ds.to_keras(device_memory="1MB")
        one, found = trained(resident, steps_per_epoch=5)
        other, expected = trained(ds.to_keras(), steps_per_epoch=5)
        assert found == expected
        assert same_weights(one, other)
        assert resident.traffic.to_device_nbytes == 200 * (8 * 4 + 4)


def small_model(kind):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(3), keras.layers.Dropout(0.3), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((5,)), *layers])
    model.compile("adam", "mse", steps_per_execution=3 if kind == "several" else 1)
    return model


def run(kind, folder, device_memory, stop_at=None):
    model, feed = small_model(kind), dataset("rows").to_keras(device_memory=device_memory)
    callbacks = [feed.checkpoint(str(folder), every_batches=1)]
    callbacks += [] if stop_at is None else [StopAt(stop_at)]
    steps = 7 if kind == "steps" else None
    model.fit(feed, epochs=2, verbose=0, callbacks=callbacks, steps_per_epoch=steps)
    return model


STOPS = {
    "tensorflow": {"rows": [5, 8], "several": [2]},
    "jax": {"rows": [5, 8]},
    "torch": {"rows": [1] * 23, "steps": [4, 3, 4]},  # After every batch, where models are cheap.
}[BACKEND]


@pytest.mark.parametrize("kind", STOPS)
def test_a_checkpoint_goes_on_from_any_batch_of_what_is_resident(tmp_path, kind):
    expected = run(kind, tmp_path / "whole", None)
    for stop in STOPS[kind]:
        with pytest.raises(Stop):
            run(kind, tmp_path / "cut", "1MB", stop)
    assert same_weights(run(kind, tmp_path / "cut", "1MB"), expected)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_under_a_strategy_batches_are_streamed_and_it_says_so(data):
    import tensorflow as tf

    feed = ps.from_arrays(data).batch(32).to_keras(device_memory="1MB")
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        model = light_model()
    model.fit(feed, epochs=2, verbose=0)
    assert "streamed to the device: a strategy of tf.distribute" in str(feed.explain())
    assert feed.traffic.to_device_nbytes == 2 * 200 * 36


@pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution is for JAX")
def test_under_a_distribution_batches_are_streamed_and_it_says_so(data):
    feed = ps.from_arrays(data).batch(40).to_keras(device_memory="1MB")
    keras.distribution.set_distribution(keras.distribution.DataParallel())
    try:
        light_model().fit(feed, verbose=0)
    finally:
        keras.distribution.set_distribution(None)
    assert "streamed to the device: keras.distribution" in str(feed.explain())
