"""sequence_lists: feature lists as Examples, against a plain twin; and what it refuses."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import _native

VALUES = {
    "int64_list": (tf.train.Int64List, st.integers(-(2**63), 2**63 - 1)),
    "float_list": (tf.train.FloatList, st.floats(width=32, allow_nan=False)),
    "bytes_list": (tf.train.BytesList, st.binary(max_size=5)),
}
NAMES = ["a", "b", "é"]


@st.composite
def lists(draw):
    """Return the lists of a record by name: the kind, and the values of each step."""
    names = draw(st.lists(st.sampled_from([*NAMES, "other"]), unique=True))
    found = {}
    for name in names:
        kind = draw(st.sampled_from(sorted(VALUES)))
        values = st.lists(VALUES[kind][1], max_size=4)
        found[name] = (kind, draw(st.lists(values, max_size=4)))
    return found


def message(record):
    def step(kind, values):
        return tf.train.Feature(**{kind: VALUES[kind][0](value=values)})

    made = {
        name: tf.train.FeatureList(feature=[step(kind, values) for values in steps])
        for name, (kind, steps) in record.items()
    }
    context = tf.train.Features(feature={"a": step("int64_list", [7])})
    found = tf.train.FeatureLists(feature_list=made)
    return tf.train.SequenceExample(context=context, feature_lists=found).SerializeToString()


def flatten(records, names, framed=False):
    head, tail = (b"\0" * 12, b"\0" * 4) if framed else (b"", b"")
    framed_records = [head + one + tail for one in records]
    data = b"".join(framed_records)
    lengths = np.array([len(one) for one in records], np.int64)
    ends = np.cumsum([len(one) for one in framed_records])
    starts = np.concatenate([[0], ends])[: len(records)].astype(np.int64)
    return _native.sequence_lists(data, starts, lengths, names, framed=framed)


@settings(max_examples=150)
@given(st.lists(lists(), max_size=4), st.booleans())
def test_it_is_what_the_lists_hold(records, framed):
    data, starts, lengths, steps, counts, bad = flatten(list(map(message, records)), NAMES, framed)
    assert len(bad) == 0
    assert steps.shape == (len(records), len(NAMES))
    for number, name in enumerate(NAMES):
        sizes = [list(map(len, one[name][1])) if name in one else [] for one in records]
        assert counts[number].tolist() == [size for row in sizes for size in row]
        expected = [len(one[name][1]) if name in one else -1 for one in records]
        assert steps[:, number].tolist() == expected
    for record, start, length in zip(records, starts, lengths, strict=True):
        example = tf.train.Example.FromString(data[start : start + length].tobytes())
        wanted = {name for name in NAMES if name in record}
        assert set(example.features.feature) == wanted
        for name in wanted:
            kind, values = record[name]
            feature = example.features.feature[name]
            assert list(getattr(feature, kind).value) == [one for step in values for one in step]


@settings(max_examples=150)
@given(lists(), st.data())
def test_what_is_cut_off_or_changed_does_no_harm(record, data):
    good = bytearray(message(record))
    cut = data.draw(st.integers(0, len(good)))
    for place in data.draw(st.lists(st.integers(0, max(0, len(good) - 1)), max_size=3)):
        good[place] ^= 1 << data.draw(st.integers(0, 7))
    for one in (bytes(good[:cut]), bytes(good)):
        _, _, lengths, steps, counts, bad = flatten([one], NAMES)
        if len(bad):
            assert (lengths.tolist(), steps.tolist()) == ([0], [[0] * len(NAMES)])
            assert all(len(count) == 0 for count in counts)


def test_steps_of_several_kinds_are_bad():
    step = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    other = tf.train.Feature(float_list=tf.train.FloatList(value=[1]))
    made = tf.train.FeatureLists(feature_list={"a": tf.train.FeatureList(feature=[step, other])})
    record = tf.train.SequenceExample(feature_lists=made).SerializeToString()
    assert flatten([b"", record, b""], ["a"])[-1].tolist() == [1]
    assert flatten([record], ["b"])[-1].tolist() == []


def test_wrong_arguments_are_refused():
    one = np.zeros(1, np.int64)
    with pytest.raises(IndexError, match="record 0 reaches outside"):
        _native.sequence_lists(b"1234", one, one + 5, ["a"], framed=False)
    for start, length in ((-1, 1), (0, -1), (5, 0), (2**62, 2**62)):
        with pytest.raises(IndexError, match="reaches outside"):
            _native.sequence_lists(b"1234", one + start, one + length, ["a"], framed=False)
    with pytest.raises(IndexError, match="reaches outside"):
        _native.sequence_lists(b"1234", one, one, ["a"])  # No room for a header.
    with pytest.raises(ValueError, match="names must differ, got 'a' twice"):
        _native.sequence_lists(b"1234", one, one, ["a", "a"], framed=False)
    with pytest.raises(ValueError, match="lengths"):
        _native.sequence_lists(b"1234", one, np.zeros(2, np.int64), ["a"], framed=False)
    with pytest.raises(ValueError, match="starts"):
        _native.sequence_lists(b"1234", one.astype("i4"), one, ["a"], framed=False)
