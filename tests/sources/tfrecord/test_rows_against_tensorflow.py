"""TensorFlow as the oracle for whole files: what it writes is read as it reads it, and the reverse."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.tfrecord.files import framed, payloads, starts

import penstock as ps
from penstock.errors import DataError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what importing it warns of is not ours
    tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.slow,
    # The first records lack it, so that its default is read.
    pytest.mark.filterwarnings("ignore:.*'half', which is read as its default"),
]

NUM_ROWS = 1300
OURS = {
    "x": ps.FixedFeature((5,), "float32"),
    "label": ps.FixedFeature((), "int64"),
    "t": ps.TensorFeature((2, 3), "float64"),
    "name": ps.FixedFeature((), bytes),
    "ids": ps.VarFeature("int64"),
    "half": ps.FixedFeature((2,), "float32", default=(0.5, 1.5)),
}
THEIRS = {
    "x": tf.io.FixedLenFeature((5,), tf.float32),
    "label": tf.io.FixedLenFeature((), tf.int64),
    "t": tf.io.FixedLenFeature((), tf.string),
    "name": tf.io.FixedLenFeature((), tf.string),
    "ids": tf.io.RaggedFeature(tf.int64),
    "half": tf.io.FixedLenFeature((2,), tf.float32, default_value=(0.5, 1.5)),
}


def serialized(number, random):
    def feature(kind, value):
        lists = {
            "float": tf.train.FloatList,
            "int64": tf.train.Int64List,
            "bytes": tf.train.BytesList,
        }
        return tf.train.Feature(**{f"{kind}_list": lists[kind](value=value)})

    tensor = tf.io.serialize_tensor(random.random((2, 3))).numpy()
    features = {
        "x": feature("float", random.random(5)),
        "label": feature("int64", [number]),
        "t": feature("bytes", [tensor]),
        "name": feature("bytes", [b"n" * (number % 9)]),
        "ids": feature("int64", random.integers(-(2**62), 2**62, number % 5)),
        "unknown": feature("bytes", [b"?"]),
    }
    if number % 3:
        features["half"] = feature("float", [number, -number])
    made = tf.train.Example(features=tf.train.Features(feature=features))
    return made.SerializeToString()


@pytest.fixture(scope="module", params=["", "GZIP", "ZLIB"])
def files(request, tmp_path_factory):
    """Three files written by TensorFlow."""
    folder = tmp_path_factory.mktemp("written")
    random = np.random.default_rng(0)
    for part in range(3):
        path = str(folder / f"{part}.tfrecord")
        with tf.io.TFRecordWriter(path, request.param) as writer:
            for number in range(part, NUM_ROWS, 3):
                writer.write(serialized(number, random))
    return sorted(map(str, folder.iterdir())), request.param


def their_batches(paths, compression, batch_size):
    """What TensorFlow makes of the files."""
    parsed = (
        tf.data.TFRecordDataset(paths, compression_type=compression)
        .batch(batch_size)
        .map(lambda records: tf.io.parse_example(records, THEIRS))
    )
    for batch in parsed:
        tensors = [tf.io.parse_tensor(one, tf.float64) for one in batch["t"]]
        yield {**batch, "t": tf.stack(tensors), "ids": batch["ids"].to_tensor()}


def assert_equal(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        want = value.numpy()
        assert (ours[name].dtype, ours[name].shape) == (want.dtype, want.shape)
        if want.dtype == object:
            assert ours[name].tolist() == want.tolist()
        else:
            assert ours[name].tobytes() == np.ascontiguousarray(want).tobytes()


@pytest.mark.parametrize("batch_size", [32, 1024])
@pytest.mark.parametrize("index", [True, False])
def test_batches_are_those_of_tensorflow(files, batch_size, index):
    paths, compression = files
    ours = list(ps.from_tfrecord(paths, OURS, index=index).padded_batch(batch_size))
    theirs = list(their_batches(paths, compression, batch_size))
    assert len(ours) == len(theirs)
    for mine, want in zip(ours, theirs, strict=True):
        assert_equal(mine, want)


def test_a_shuffled_epoch_has_the_same_rows(files):
    paths, compression = files
    (theirs,) = their_batches(paths, compression, NUM_ROWS)
    places = np.argsort(theirs["label"].numpy())
    ds = ps.from_tfrecord(paths, OURS).shuffle(seed=3, window="64KB")
    labels = []
    for row in ds:
        at = places[int(row["label"])]
        labels.append(int(row["label"]))
        for name in ("x", "half", "t"):
            assert row[name].tobytes() == theirs[name][at].numpy().tobytes()
    assert labels != sorted(labels)
    assert sorted(labels) == list(range(NUM_ROWS))


def test_every_state_resumes_with_the_rows_that_follow(files):
    paths, compression = files
    theirs = list(their_batches(paths, compression, 32))
    ds = ps.from_tfrecord(paths, OURS).padded_batch(32)
    with ds.stream() as stream:
        states = [stream.state() for _ in stream]
    for done in range(1, len(theirs), 7):
        with ds.stream(state=states[done - 1]) as stream:
            for want, mine in zip(theirs[done : done + 3], stream, strict=False):
                assert_equal(mine, want)


DTYPES = ["float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
          "uint32", "uint64", "bool", "complex64", "complex128"]  # fmt: skip


@settings(max_examples=10)
@given(
    dtype=st.sampled_from(DTYPES),
    shape=st.lists(st.integers(0, 3), max_size=3),
    count=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_what_is_written_is_read_back_by_tensorflow(tmp_path_factory, dtype, shape, count, seed):
    from penstock.writers.tfrecord import feature_of

    random = np.random.default_rng(seed)
    values = (random.random((count, *shape)) * 250).astype(dtype)
    texts = [random.bytes(int(size)) for size in random.integers(0, 20, count)]
    folder = tmp_path_factory.mktemp("out") / "shards"
    ps.from_arrays({"v": values, "s": texts}).write(folder, format="tfrecord", shards=3)
    feature = feature_of(ps.ArraySpec(shape, dtype))
    is_tensor = isinstance(feature, ps.TensorFeature)
    listed = tf.float32 if dtype == "float32" else tf.int64
    theirs = {
        "v": tf.io.FixedLenFeature((), tf.string)
        if is_tensor
        else tf.io.FixedLenFeature(shape, listed),
        "s": tf.io.FixedLenFeature((), tf.string),
    }
    found = [
        tf.io.parse_single_example(record, theirs)
        for record in tf.data.TFRecordDataset(sorted(map(str, folder.iterdir())))
    ]
    assert len(found) == count
    for row, value, text in zip(found, values, texts, strict=True):
        got = tf.io.parse_tensor(row["v"], tf.as_dtype(dtype)) if is_tensor else row["v"]
        assert got.numpy().tolist() == value.tolist()
        assert tuple(got.shape) == value.shape
        assert row["s"].numpy() == text
    back = ps.from_tfrecord(folder, {"v": feature, "s": ps.FixedFeature((), bytes)})
    assert [(r["v"].tolist(), r["s"]) for r in back] == [
        (v.tolist(), t) for v, t in zip(values, texts, strict=True)
    ]


def refused_by_tensorflow(path):
    try:
        records = tf.data.TFRecordDataset([str(path)])
        for record in records:
            tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature((), tf.int64)})
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError):
        return True
    return False


@pytest.mark.parametrize(
    "damage",
    ["length", "length checksum", "data", "data checksum", "cut", "cut header", "extra", "none"],
)
def test_what_tensorflow_refuses_is_refused(tmp_path, damage):
    records = payloads(6)
    data = bytearray(framed(records))
    begin, end = starts(records)[3:5]
    if damage.startswith("cut"):
        data = data[: end - 3 if damage == "cut" else begin + 5]
    elif damage == "extra":
        data += b"xyz"
    elif damage != "none":
        at = {"length": begin, "length checksum": begin + 8, "data": begin + 30}
        data[at.get(damage, end - 4)] ^= 0x10
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    label = {"label": ps.FixedFeature((), "int64")}
    for options in ({}, {"index": False}):
        ds = ps.from_tfrecord(path, label, **options)
        if damage == "none":
            assert not refused_by_tensorflow(path)
            assert len(list(ds)) == 6
        else:
            # TensorFlow takes less than a header at the end for the end of the file.
            assert refused_by_tensorflow(path) == (damage not in ("cut header", "extra"))
            with pytest.raises(DataError):
                list(ds)
