"""Features that no record has, or that are of the other kind, are told; they were read as nothing."""

import warnings

import pytest
import tensorflow as tf
from tests.conformance import run
from tests.sources.tfrecord.files import write

import penstock as ps


def ints(values):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def record(context, lists):
    """Return a SequenceExample; without lists, it is an Example."""
    return tf.train.SequenceExample(
        context=tf.train.Features(feature={name: ints([1, 2]) for name in context}),
        feature_lists=tf.train.FeatureLists(
            feature_list={name: tf.train.FeatureList(feature=[ints([3])]) for name in lists}
        ),
    ).SerializeToString()


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "a.tfrecord"


@pytest.mark.parametrize(
    "feature",
    [
        ps.VarFeature("int64"),
        ps.FixedFeature((2,), "int64", default=0),
        ps.FixedFeature((), "int64"),
        ps.TensorFeature((2,), "int64"),
    ],
    ids=repr,
)
def test_a_list_that_is_declared_as_a_feature_is_refused(path, feature):
    write(path, [record(["id"], ["frames", "hits"])] * 3)
    features = {"frames": feature, "hits": ps.SequenceFeature((), "int64")}
    words = r"a\.tfrecord: 'frames' is a feature list of its records, and was declared as a feature. Write ps.Seq"
    for chosen in (features, {"frames": feature}):
        with pytest.raises(ps.DataError, match=words):
            ps.from_tfrecord(path, chosen)


@pytest.mark.parametrize("lists", [[], ["frames"]])
@pytest.mark.parametrize("allow_missing", [False, True])
def test_a_feature_that_is_declared_as_a_list_is_refused(path, lists, allow_missing):
    write(path, [record(["id"], lists)] * 3)
    feature = ps.SequenceFeature((), "int64", allow_missing=allow_missing)
    words = "'id' is a feature of its records, and was declared as a feature list. Write ps.Fixed"
    with pytest.raises(ps.DataError, match=words):
        ps.from_tfrecord(path, {"id": feature})


@pytest.mark.parametrize(
    ("feature", "words"),
    [
        (ps.VarFeature("int64"), "a feature 'idd', which is read as no values then.*: 'id', 'x'"),
        (
            ps.FixedFeature((), "int64", default=0),
            "a feature 'idd', which is read as its default then",
        ),
        (ps.SequenceFeature((), "int64", allow_missing=True), "a feature list 'idd'.*have: 'l'"),
    ],
)
def test_a_feature_that_none_of_many_records_has_is_warned_of(path, feature, words):
    write(path, [record(["id", "x"], ["l"])] * 10)
    with pytest.warns(
        ps.PenstockWarning, match=f"none of the first 10 records has {words}"
    ) as told:
        ds = ps.from_tfrecord(path, {"idd": feature})
    assert [each.filename for each in told] == [__file__]
    assert len(run(ds)) == 10


@pytest.mark.parametrize("has", ["a few records", "one of many has it", "another name"])
def test_nothing_is_told_of_features_that_some_records_may_have(path, has):
    records = [record(["id"], [])] * (9 if has == "a few records" else 50)
    if has == "one of many has it":
        records[-1] = record(["id", "rare"], [])
    feature = ps.VarFeature("int64", name="id" if has == "another name" else None)
    write(path, records)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = ps.from_tfrecord(path, {"rare": feature})
    assert len(run(ds)) == len(records)


def test_records_that_are_no_examples_are_told_when_they_are_read(path):
    write(path, [b"hello"] * 20)
    ds = ps.from_tfrecord(path, {"x": ps.VarFeature("int64")})
    with pytest.raises(ps.DataError, match=r"must be a tf\.train\.Example"):
        run(ds)
