"""SequenceExamples: context and feature lists, against tf.io.parse_single_sequence_example."""

import json

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance

import penstock as ps
from penstock.memory import allocate_plain
from penstock.sources.tfrecord.feature_lists import SequenceLists, lists_words

COUNT = 25


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def floats(values):
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def ints(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def texts(values):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def sequence(context, lists):
    made = {name: tf.train.FeatureList(feature=steps) for name, steps in lists.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context),
        feature_lists=tf.train.FeatureLists(feature_list=made),
    ).SerializeToString()


def record(number):
    random = np.random.default_rng(number)
    steps = number % 5
    return sequence(
        {"id": ints([number]), "x": floats([number / 2]), "tags": texts([b"a"] * (number % 3))},
        {
            "x": [floats(random.random(3)) for _ in range(steps)],
            "id": [ints([random.integers(-5, 5)]) for _ in range(steps + 1)],
            "words": [texts([b"w%d" % (number + step)]) for step in range(steps)],
            "ragged": [ints(random.integers(0, 9, step % 3)) for step in range(steps)],
            "phrases": [texts([b"p%d" % one for one in range(step % 4)]) for step in range(steps)],
        },
    )


FEATURES = {
    "id": ps.FixedFeature((), "int32"),
    "x": ps.FixedFeature((), "float32"),
    "tags": ps.VarFeature(bytes),
    "steps": {
        "x": ps.SequenceFeature((3,), "float32"),
        "id": ps.SequenceFeature((), "int64"),
        "words": ps.SequenceFeature((), str),
        "ragged": ps.SequenceFeature((None,), "int64"),
        "phrases": ps.SequenceFeature((None,), bytes),
    },
}


def expected(data):
    context, lists = tf.io.parse_single_sequence_example(
        data,
        {
            "id": tf.io.FixedLenFeature((), tf.int64),
            "x": tf.io.FixedLenFeature((), tf.float32),
            "tags": tf.io.VarLenFeature(tf.string),
        },
        {
            "x": tf.io.FixedLenSequenceFeature((3,), tf.float32),
            "id": tf.io.FixedLenSequenceFeature((), tf.int64),
            "words": tf.io.FixedLenSequenceFeature((), tf.string),
            "ragged": tf.io.VarLenFeature(tf.int64),
            "phrases": tf.io.VarLenFeature(tf.string),
        },
    )
    lists = {
        name: tf.sparse.to_dense(one).numpy() if isinstance(one, tf.SparseTensor) else one.numpy()
        for name, one in lists.items()
    }
    words = np.array([word.decode() for word in lists["words"]], object)
    return {
        "id": np.int32(context["id"].numpy()),
        "x": np.float32(context["x"].numpy()),
        "tags": tf.sparse.to_dense(context["tags"]).numpy().astype(object),
        "steps": {**lists, "words": words, "phrases": lists["phrases"].astype(object)},
    }


def write(path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for one in records:
            writer.write(one)


class TestSequences(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path):
        records = [record(number) for number in range(COUNT)]
        write(tmp_path / "a.tfrecord", records)
        return Case(
            lambda: ps.from_tfrecord(tmp_path / "a.tfrecord", FEATURES),
            [expected(one) for one in records],
        )


@pytest.mark.parametrize("index", [True, False])
def test_rows_are_those_of_tensorflow_in_every_order(tmp_path, index):
    records = [record(number) for number in range(COUNT)]
    for part in range(2):
        write(tmp_path / f"{part}.tfrecord", records[part::2])
    rows = [expected(one) for one in records[::2] + records[1::2]]
    ds = ps.from_tfrecord(tmp_path, FEATURES, index=index)
    assert ds.spec["steps"]["x"] == ps.ArraySpec((None, 3), "float32")
    assert ds.spec["steps"]["ragged"] == ps.ArraySpec((None, None), "int64")
    assert_same(run(ds), rows)
    assert_same(run(ds.with_options(threads=3, memory="8MB")), rows)
    if index:
        order = run(ps.from_arrays(np.arange(COUNT)).shuffle(seed=3))
        assert_same(run(ds.shuffle(seed=3)), [rows[int(one)] for one in order])
    lists = ps.from_tfrecord(
        tmp_path, (ps.SequenceFeature((3,), "float32", name="x"),), index=index
    )
    assert_same(run(lists), [(row["steps"]["x"],) for row in rows])
    (batch,) = next(iter(lists.padded_batch(4)))
    assert batch.shape[2] == 3


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "float16", "float64"])
def test_other_dtypes_are_checked_and_cast(tmp_path, dtype):
    kind = floats if "float" in dtype else ints
    write(tmp_path / "a.tfrecord", [sequence({}, {"x": [kind([1, 0]), kind([0, 1])]})])
    (row,) = run(ps.from_tfrecord(tmp_path / "a.tfrecord", {"x": ps.SequenceFeature((2,), dtype)}))
    assert_same([row], [{"x": np.array([[1, 0], [0, 1]], dtype)}])


BAD = {
    "no steps of this size": (
        sequence({}, {"x": [floats([1, 2, 3]), floats([1, 2])]}),
        r"feature list 'x' must have the values of \(3,\) float32 in each step, got 2 of them in step 1",
    ),
    "an empty step": (sequence({}, {"x": [tf.train.Feature()]}), "got 0 of them in step 0"),
    "another kind": (sequence({}, {"x": [ints([1, 2, 3])]}), "must be a list of floats, got ints"),
    "two kinds": (sequence({}, {"x": [floats([1, 2, 3]), ints([1, 2, 3])]}), "steps of one kind"),
    "no list": (
        sequence({}, {"y": [], "a": [ints([1])]}),
        r"is missing; allow_missing=True.*The record has 'a', 'y'\.",
    ),
    "no lists": (
        sequence({"x": floats([1, 2, 3])}, {}),
        "is missing; allow_missing=True.*The record has no feature lists: FixedFeature and VarFeature",
    ),
    "no message": (b"\x12\xff\xff\xff\x0f", r"must be a tf\.train\.(Sequence)?Example"),
    "cut off": (record(4)[:-3], r"must be a tf\.train\.(Sequence)?Example"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("index", [True, False])
def test_bad_records_are_named_or_skipped(tmp_path, name, index):
    data, message = BAD[name]
    good = sequence({}, {"x": [floats([1, 2, 3])]})
    write(tmp_path / "a.tfrecord", [good, good, data, good, data, good])
    ds = ps.from_tfrecord(
        tmp_path / "a.tfrecord", {"x": ps.SequenceFeature((3,), "float32")}, index=index
    )
    with pytest.raises(ps.DataError, match=rf"a\.tfrecord, byte \d+, row 2: .*{message}"):
        run(ds)
    skipping = ds.with_options(on_error="skip")
    for threads in (0, 2):
        with skipping.with_options(threads=threads).stream() as stream:
            assert len(list(stream)) == 4
            report = stream.report()
            assert report.num_skipped == 2
            assert "row 4" in report.skipped[1]
    with skipping.stream() as stream:
        next(stream)
        next(stream)
        state = json.loads(json.dumps(stream.state()))
    assert len(run(skipping, state=state)) == 2


def test_the_lists_of_a_record_are_named_as_far_as_they_can_be_read():
    many = sequence({"id": ints([1])}, {f"list {i:02d}": [] for i in range(12)})
    assert lists_words(many).endswith("'list 08', 'list 09' and more.")
    assert lists_words(np.frombuffer(many, np.uint8)) == lists_words(many)
    assert lists_words(b"").startswith(" The record has no feature lists")
    assert lists_words(b"\x08\x01") == ""  # A number, where a message should be.
    assert lists_words(b"\x12\x05\x0a\x03\x0a\x01\xff") == ""  # A name that is no text.
    for end in range(1, len(many)):
        lists_words(many[:end])  # Whatever was cut off.


def test_lists_may_be_missing_if_that_is_said(tmp_path):
    write(tmp_path / "a.tfrecord", [sequence({}, {}), sequence({}, {"x": [floats([2])]})])
    feature = {"x": ps.SequenceFeature((), "float32", allow_missing=True)}
    rows = run(ps.from_tfrecord(tmp_path / "a.tfrecord", feature))
    assert [row["x"].tolist() for row in rows] == [[], [2]]


def test_protobuf_merges_what_is_repeated(tmp_path):
    one = tf.train.SequenceExample.FromString(sequence({}, {"x": [floats([1])]}))
    two = tf.train.SequenceExample.FromString(sequence({}, {"y": [floats([2])], "x": []}))
    # The last of equal keys, in messages that are put one behind the other.
    data = one.SerializeToString() + two.SerializeToString()
    merged = tf.train.SequenceExample.FromString(data)
    feature = {"x": ps.SequenceFeature((), "float32"), "y": ps.SequenceFeature((), "float32")}
    write(tmp_path / "a.tfrecord", [data])
    (row,) = run(ps.from_tfrecord(tmp_path / "a.tfrecord", feature))
    for name in "xy":
        steps = merged.feature_lists.feature_list[name].feature
        assert row[name].tolist() == [step.float_list.value[0] for step in steps]


def test_a_step_that_would_make_all_others_huge_is_refused(tmp_path):
    steps = [ints(range(3000)), *([ints([1])] * 30_000)]  # 720 MB, padded.
    write(tmp_path / "a.tfrecord", [sequence({}, {"x": steps})])
    ds = ps.from_tfrecord(tmp_path / "a.tfrecord", {"x": ps.SequenceFeature((None,), "int64")})
    with pytest.raises(ps.BudgetError):
        run(ds.with_options(memory="64MB"))


def test_what_is_not_said_is_asked_for(tmp_path):
    write(tmp_path / "a.tfrecord", [record(3)])
    with pytest.raises(
        ps.DataError, match=r"SequenceExamples, whose lists are not inferred.*ps\.Seq"
    ):
        ps.from_tfrecord(tmp_path / "a.tfrecord")
    with pytest.raises(ValueError, match=r"no None in it or be \(None,\), got \(None, 2\)"):
        ps.SequenceFeature((None, 2), "float32")
    with pytest.raises(TypeError, match="must be a tuple of sizes, got 3"):
        ps.SequenceFeature(3, "float32")
    with pytest.raises(TypeError, match="dtype of a SequenceFeature must be one of"):
        ps.SequenceFeature((), "complex64")
    with pytest.raises(TypeError, match="SequenceExamples are read with from_tfrecord"):
        ps.tfrecord.decode_example(record(3), {"x": ps.SequenceFeature((3,), "float32")})
    # Features of the context alone need nothing.
    (row,) = run(ps.from_tfrecord(tmp_path / "a.tfrecord", {"id": ps.FixedFeature((), "int64")}))
    assert int(row["id"]) == 3


def by_protobuf(data):
    """Return what protobuf makes of the lists of a record, padded; None if it is none, or not as was declared."""
    try:
        lists = tf.train.SequenceExample.FromString(data).feature_lists.feature_list
    except DecodeError:
        return None
    found = {}
    for name, feature in FEATURES["steps"].items():
        if name not in lists:
            return None
        steps = [getattr(one, KINDS[name]).value for one in lists[name].feature]
        kinds = {one.WhichOneof("kind") for one in lists[name].feature} - {None}
        sizes = {len(step) for step in steps}
        wanted = {"x": 3, "id": 1, "words": 1}.get(name)
        if kinds - {KINDS[name]} or (wanted is not None and sizes - {wanted}):
            return None
        dtype = feature.dtype if isinstance(feature.dtype, np.dtype) else object
        values = np.full((len(steps), max(sizes, default=0)), b"" if dtype is object else 0, dtype)
        for step, row in zip(steps, values, strict=True):
            row[: len(step)] = list(step)
        if name in ("id", "words"):
            values = values.reshape(-1)
        try:
            texts = [one.decode() for one in values.flat] if name == "words" else None
        except UnicodeDecodeError:
            return None
        found[name] = values if texts is None else np.array(texts, object)
    found["x"] = found["x"].reshape(-1, 3)
    return found


KINDS = {
    "x": "float_list", "id": "int64_list", "words": "bytes_list", "ragged": "int64_list", "phrases": "bytes_list",
}  # fmt: skip


def test_damaged_records_are_what_protobuf_makes_of_them():
    lists = SequenceLists(list(FEATURES["steps"]), list(FEATURES["steps"].values()))
    data = record(4)
    random = np.random.default_rng(0)
    num_good = num_bad = 0
    for number in range(1500):
        one = bytearray(data)
        for place in random.integers(0, len(data), number % 4):
            one[place] ^= 1 << int(random.integers(0, 8))
        theirs = by_protobuf(bytes(one))
        start, length = np.zeros(1, np.int64), np.array([len(one)])
        found, faults = lists.decode(bytes(one), start, length, framed=False, most=1 << 20)
        num_bad += bool(faults)
        if theirs is None or (faults and "of one kind" in faults[0].problem):
            continue  # What nobody asked for is not looked at: not all that protobuf refuses is refused.
        num_good += 1
        assert not faults
        mine = {
            name: lists.column(place, steps, allocate_plain).value(0)
            for place, (name, steps) in enumerate(zip(lists.names, found, strict=True))
        }
        assert_same([mine], [theirs])
    assert min(num_good, num_bad) > 400
