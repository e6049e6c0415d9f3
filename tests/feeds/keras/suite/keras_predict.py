"""Predictions written as they come are those of predict; a layer set from statistics is an adapted one."""

from pathlib import Path

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


@pytest.mark.parametrize(
    "name", ["p.csv", "p.parquet", "p.h5", "p.npz", "p.ZARR", "p.npy.gz", "my.preds"]
)
def test_predictions_under_the_name_of_another_format_are_refused(data, tmp_path, name):
    feed = ps.from_arrays(data).batch(32).to_keras()
    with pytest.raises(
        ValueError, match=r"predict_to writes \.npy files, .* ends in '\.\w+': write "
    ):
        feed.predict_to(tmp_path / name, make_model())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["p.npy", "P.NPY", "p", "run-1.5", Path("new") / "p.npy"])
def test_predictions_under_other_names_are_npy(data, tmp_path, name):
    feed = ps.from_arrays(data).batch(32).to_keras()
    written = feed.predict_to(tmp_path / name, make_model())
    assert written.paths == (tmp_path / name,)
    assert np.load(tmp_path / name).shape == (200, 4)
    assert feed.predict_to(f"file://{tmp_path / name}", make_model()).paths == written.paths


def test_predictions_go_to_no_url_and_several_outputs_to_no_file(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = data
    feed = ps.from_arrays((x, y)).batch(32).to_keras()
    with pytest.raises(ValueError, match=r"on this machine, got a URL, s3://\.\.\."):
        feed.predict_to("s3://bucket/p.npy", make_model())
    feed = ps.from_arrays({"a": x, "b": x[:, :3]}).batch(32).to_keras()
    with pytest.raises(ValueError, match=r"2 outputs, .* write 'out' instead of 'out\.npy'"):
        feed.predict_to("out.npy", two_in_two_out())
    assert list(tmp_path.iterdir()) == []


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


def adapted(values, axis=-1):
    layer = keras.layers.Normalization(axis=axis)
    layer.adapt(values)
    return layer


@pytest.mark.parametrize("kind", ["x", "x, y", "ranks"])
def test_several_fields_have_a_layer_each_from_one_pass(data, kind):
    x, y = data
    rng = np.random.default_rng(0)
    counts, pictures = rng.integers(0, 99, (200, 3)), rng.random((200, 4, 4, 2))
    fields = {"wide": x, "counts": counts, "pictures": pictures, "alone": x[:, :1]}
    ds = ps.from_arrays(fields if kind == "x" else (fields, y)).shuffle(seed=0).batch(32)
    if kind == "ranks":
        ds = ds.distribute(rank=0, world=2, uneven="pad")
    feed = ds.to_keras()
    layers = feed.normalization()
    assert set(layers) == set(fields)
    for name, values in fields.items():
        wanted = np.asarray(adapted(values)(values))
        assert np.allclose(np.asarray(layers[name](values)), wanted, atol=1e-4), name
        assert np.allclose(np.asarray(feed.normalization(field=name)(values)), wanted, atol=1e-4)
    whole = feed.normalization(axis=None)["wide"]
    assert np.allclose(np.asarray(whole(x)), np.asarray(adapted(x, None)(x)), atol=1e-4)
    pair = ps.from_arrays(((x, counts), y)).batch(32).to_keras().normalization()
    assert isinstance(pair, tuple)
    assert np.allclose(np.asarray(pair[1](counts)), np.asarray(adapted(counts)(counts)), atol=1e-4)


def test_a_field_of_a_tuple_may_be_named_by_its_number(data):
    x, y = data
    counts = np.arange(600).reshape(200, 3)
    feed = ps.from_arrays(((x, counts), y)).batch(32).to_keras()
    for field, values in ((0, x), (1, counts), ("1", counts)):
        layer = feed.normalization(field=field)
        assert np.allclose(
            np.asarray(layer(values)), np.asarray(adapted(values)(values)), atol=1e-4
        )
    with pytest.raises(ValueError, match="no field '2' in x; its fields are 0, 1"):
        feed.normalization(field=2)


def test_what_needs_all_rows_is_refused_where_they_never_end(data, tmp_path):
    feed = ps.from_arrays(data).batch(32).repeat().to_keras()
    with pytest.raises(ValueError, match="normalization takes a pass over all rows, and the data"):
        feed.normalization()
    with pytest.raises(ValueError, match=r"predict_to takes .* never ends: leave repeat\(\) out"):
        feed.predict_to(str(tmp_path / "out.npy"), make_model())


def test_fields_that_can_not_be_normalised_are_named(data):
    x, y = data
    feed = ps.from_arrays(({"a": x, "b": x}, y)).batch(32).to_keras()
    with pytest.raises(ValueError, match="no field 'c' in x; its fields are"):
        feed.normalization(field="c")
    with pytest.raises(ValueError, match="no field '1' in x"):
        feed.normalization(field="1")
    if keras.backend.backend() == "tensorflow":
        words = ps.from_arrays(({"a": x, "w": ["word"] * 200}, y)).batch(32).to_keras()
        with pytest.raises(TypeError, match="field 'w' of x has no mean"):
            words.normalization()
        assert words.normalization(field="a").input_mean is not None


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_normalization_of_missing_numbers_is_refused_and_the_cure_works(data, bad):
    x, y = data
    x = x.copy()
    x[3, 0] = bad
    ds = ps.from_arrays((x, y))
    with pytest.raises(ValueError, match=r"missing \(nan\) or infinite.*nan_to_num"):
        ds.batch(32).to_keras().normalization()
    filled = ds.map(lambda x, y: (np.nan_to_num(x, posinf=0), y)).batch(32).to_keras()
    assert np.isfinite(np.asarray(filled.normalization()(x[:3]))).all()


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
