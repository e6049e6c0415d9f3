"""Predictions written as they come are those of predict; a layer set from statistics is an adapted one."""

import keras
import numpy as np
import pytest

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


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize(
    "given", [{"uneven": "pad"}, {"uneven": "pad", "static": True}, {"uneven": "drop"}]
)
def test_a_rank_of_a_distributed_dataset_predicts_and_measures_all_rows(
    data, tmp_path, given, is_mapped
):
    x, y = data
    model = make_model()
    ds = ps.from_arrays((x, y)).batch(32).distribute(rank=1, world=2, **given)
    if is_mapped:
        is_weighed = given["uneven"] == "pad"
        ds = ds.map((lambda batch, w: (*batch, w)) if is_weighed else (lambda x, y: (x, y)))
    written = ds.to_keras().predict_to(str(tmp_path / "out.npy"), model)
    # What is left out of each pass is left out here, too.
    rows = x if given["uneven"] == "pad" else x[:192]
    assert written.num_rows == len(rows)
    found = np.load(tmp_path / "out.npy")
    assert np.allclose(found, model.predict(rows, batch_size=32, verbose=0), atol=1e-6)
    assert np.allclose(ds.to_keras().normalization().input_mean, rows.mean(axis=0), atol=1e-5)
