"""Predictions written as they come are those of predict; a layer set from statistics is an adapted one."""

import keras
import numpy as np

import penstock as ps
from feeds.keras.suite.models import make_model, two_in_two_out


def test_predictions_are_streamed_to_a_file(data, tmp_path):
    x, y = data
    model = make_model()
    feed = ps.from_arrays((x, y)).batch(32).to_keras()
    written = feed.predict_to(str(tmp_path / "out.npy"), model)
    assert np.array_equal(np.load(tmp_path / "out.npy"), model.predict(x, batch_size=32, verbose=0))
    assert (written.num_rows, written.to_device_nbytes) == (200, x.nbytes)
    assert written.to_host_nbytes == 200 * 4 * 4
    outputs = two_in_two_out()
    feed = ps.from_arrays({"a": x, "b": x[:, :3]}).batch(32).to_keras()
    assert len(feed.predict_to(str(tmp_path / "folder"), outputs).paths) == 2
    assert np.load(tmp_path / "folder" / "p.npy").shape == (200, 2)


def test_normalization_is_that_of_adapt(data):
    x, y = data
    layer = keras.layers.Normalization()
    layer.adapt(x)
    found = ps.from_arrays((x, y)).batch(32).to_keras().normalization()
    assert np.allclose(np.asarray(found(x)), np.asarray(layer(x)), atol=1e-5)
    images = np.random.default_rng(0).random((50, 4, 5, 3), np.float32)
    layer = keras.layers.Normalization()
    layer.adapt(images)
    found = ps.from_arrays((images,)).batch(32).to_keras().normalization()
    assert np.allclose(np.asarray(found(images)), np.asarray(layer(images)), atol=1e-4)


def test_a_rank_of_a_distributed_dataset_predicts_and_measures_all_rows(data, tmp_path):
    x, y = data
    model = make_model()
    ds = ps.from_arrays((x, y)).batch(32).distribute(rank=1, world=2, uneven="pad")
    written = ds.to_keras().predict_to(str(tmp_path / "out.npy"), model)
    assert written.num_rows == 200
    found = np.load(tmp_path / "out.npy")
    assert np.allclose(found, model.predict(x, batch_size=32, verbose=0), atol=1e-6)
    assert np.allclose(ds.to_keras().normalization().input_mean, x.mean(axis=0), atol=1e-5)
