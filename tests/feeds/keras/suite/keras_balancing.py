"""class_weight="balanced" is scikit-learn's formula, from the labels alone, in fit, to_keras and fit_arrays."""

import os

import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import light_model
from penstock.feeds.keras.balancing import balanced_weights

LABELS = np.repeat([0, 1, 3], [50, 30, 120])
WANTED = {0: 200 / (3 * 50), 1: 200 / (3 * 30), 3: 200 / (3 * 120)}


def data_with(labels):
    x = np.random.default_rng(0).random((200, 8), np.float32)
    return ps.from_arrays((x, labels))


@pytest.mark.parametrize(
    "labels",
    [
        LABELS,
        LABELS.astype("int8"),
        LABELS.astype(">i4"),
        LABELS.astype("float32"),
        LABELS[:, None],
        np.eye(4, dtype="float32")[LABELS],
        np.eye(4, dtype="bool")[LABELS],
        np.eye(4, dtype="int64")[LABELS],
    ],
    ids=[
        "int64",
        "int8",
        "big-endian",
        "float",
        "column",
        "one-hot",
        "one-hot bool",
        "one-hot int",
    ],
)
def test_weights_are_those_of_the_formula_for_every_kind_of_label(labels):
    feed = data_with(labels).shuffle(seed=0).batch(32).to_keras(class_weight="balanced")
    assert feed.class_weight == pytest.approx(WANTED)


@pytest.mark.parametrize(
    "chain",
    [
        lambda ds: ds.batch(32),
        lambda ds: ds.shuffle(seed=0).batch(7),
        lambda ds: ds.map(lambda x, y: (x, y)).batch(32),
        lambda ds: ds.filter(lambda x, y: True).batch(32),
        lambda ds: ds.batch(32).shuffle(seed=1),
        lambda ds: ds.padded_batch(32),
        lambda ds: ps.concatenate(ds, ds).batch(32),
        lambda ds: ds.cache().batch(32),
        lambda ds: ds.shuffle(seed=0).batch(64).distribute(rank=1, world=2, uneven="pad"),
        lambda ds: ds.repeat(2).batch(32),
        lambda ds: ds.batch(32).with_options(memory="64MB", on_error="skip"),
    ],
)
def test_weights_are_the_same_behind_every_chain(chain):
    assert balanced_weights(chain(data_with(LABELS))) == pytest.approx(WANTED)


def test_rows_that_are_left_out_are_not_counted():
    ds = data_with(LABELS)
    assert balanced_weights(ds.take(80).shuffle(seed=0).batch(8)) == pytest.approx(
        {0: 80 / (2 * 50), 1: 80 / (2 * 30)}
    )
    assert balanced_weights(ds.skip(80).batch(8)) == {3: 1.0}
    assert balanced_weights(ds.shard(2, 0).batch(8)) == pytest.approx(
        {0: 100 / (3 * 25), 1: 100 / (3 * 15), 3: 100 / (3 * 60)}
    )


class Unreadable:
    """An array no row of which may be read."""

    shape, dtype, ndim = (200, 8), np.dtype("float32"), 2

    def __len__(self):
        return 200

    def __getitem__(self, rows):
        assert rows == slice(0, 0), "x was read"
        return np.empty((0, 8), "float32")


@pytest.mark.parametrize("first", [None, 100])
def test_only_labels_are_read_of_arrays(first):
    ds = ps.from_arrays((Unreadable(), LABELS))
    ds = ds if first is None else ds.take(200)
    assert balanced_weights(ds.shuffle(seed=0).batch(32)) == pytest.approx(WANTED)


def test_only_labels_are_read_of_files(tmp_path):
    x = np.zeros((100, 8), "float32")
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", x=x, y=LABELS[number * 100 : number * 100 + 100])
    ds = ps.from_files(str(tmp_path / "*.npz"), fields=({"a": "x"}, "y"))
    for path in tmp_path.glob("*.npz"):
        # Whatever x is now, its checksum is wrong.
        content = bytearray(path.read_bytes())
        at = content.find(b"x.npy") + 5
        content[at + 200 : at + 300] = b"\xff" * 100
        stamp = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(ps.DataError, match="x"):
        list(ds)
    assert balanced_weights(ds.shuffle(seed=0).batch(32)) == pytest.approx(WANTED)


def test_fit_weighs_with_them_wherever_they_are_asked_for():
    x = np.random.default_rng(0).random((200, 8), np.float32)
    expected = light_model().fit(
        x, LABELS, class_weight=WANTED, batch_size=32, shuffle=False, epochs=2, verbose=0
    )
    ds = ps.from_arrays((x, LABELS)).batch(32)
    one = light_model().fit(ds.to_keras(class_weight="balanced"), epochs=2, verbose=0)
    two = light_model().fit(ds.to_keras(), class_weight="balanced", epochs=2, verbose=0)
    three = ps.fit_arrays(
        light_model(), x, LABELS, class_weight="balanced", shuffle=False, epochs=2, verbose=0
    )
    four = light_model().fit(
        ds.to_keras(class_weight="balanced", device_memory="1GB"), epochs=2, verbose=0
    )
    for found in (one, two, three, four):
        assert found.history["loss"] == pytest.approx(expected.history["loss"], rel=1e-5)


def test_the_labels_are_read_once(monkeypatch):
    from penstock.feeds.keras import feed as module

    calls = []

    def counted(source):
        calls.append(source)
        return balanced_weights(source)

    monkeypatch.setattr(module, "balanced_weights", counted)
    feed = data_with(LABELS).batch(32).to_keras(class_weight="balanced")
    model = light_model()
    for _ in range(2):
        model.fit(feed, class_weight="balanced", epochs=2, verbose=0)
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            np.full(200, 0.5),
            r"field '1' is not a whole number in row 0.*0\.5.*Give class_weight=\{",
        ),
        (np.full((200, 4), 0.25), "is not one-hot in row 0"),
        (np.ones((200, 4), "int32"), "is not one-hot in row 0"),
        (np.full(200, np.nan), "is not a whole number in row 0"),
        (np.zeros((200, 4, 4), "int32"), "one number a row, or one-hot; field '1' of a batch is"),
        (np.zeros(200, "complex64"), "one number a row, or one-hot"),
    ],
)
def test_labels_without_classes_are_refused(labels, words):
    with pytest.raises((ValueError, TypeError), match=words):
        data_with(labels).batch(32).to_keras(class_weight="balanced")


def test_what_else_can_not_be_balanced_is_refused_with_the_cure():
    x = np.zeros((8, 8), "float32")
    labels = np.zeros(8, "int32")
    with pytest.raises(ValueError, match="class_weight needs labels"):
        ps.from_arrays(x).batch(4).to_keras(class_weight="balanced")
    with pytest.raises(ValueError, match="can't be used at the same time"):
        ps.from_arrays((x, labels, x[:, 0])).batch(4).to_keras(class_weight="balanced")
    with pytest.raises(ValueError, match="single output"):
        ps.from_arrays((x, (labels, labels))).batch(4).to_keras(class_weight="balanced")
    with pytest.raises(ValueError, match=r"never ends: leave repeat\(\) out"):
        ps.from_arrays((x, labels)).repeat().batch(4).to_keras(class_weight="balanced")
    ds = ps.from_arrays((x, labels)).batch(4)
    for give in (
        lambda: ds.to_keras(class_weight="even"),
        lambda: light_model().fit(ds.to_keras(), class_weight="even", verbose=0),
    ):
        with pytest.raises(ValueError, match="or \"balanced\", got 'even'"):
            give()
