import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from native import tfrecord_twins as twins
from penstock import _native
from penstock.sources.tfrecord import codec as example_codec
from penstock.sources.tfrecord import features as example_features
from penstock.sources.tfrecord.codec import (
    ExampleCodec,
    FixedFeature,
    TensorFeature,
    VarFeature,
    decode_example,
    describe_fault,
    encode_example,
    infer_features,
    named_features,
)

DTYPES = sorted(set(example_features.TYPES) - {"bytes", "str"})
NUMBERS = st.one_of(
    st.lists(st.floats(width=32, allow_nan=False), max_size=5),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
)


@given(st.dictionaries(st.text(max_size=5), st.one_of(NUMBERS, st.lists(st.binary(), max_size=3))))
def test_what_was_encoded_decodes_to_the_same(row):
    decoded = decode_example(encode_example(row))
    assert decoded.keys() == row.keys()
    for name, values in row.items():
        assert list(decoded[name]) == values


@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1)))
def test_encoding_agrees_with_the_twin(row):
    assert encode_example(row) == twins.encode_example({k: ("ints", v) for k, v in row.items()})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_tensors_of_every_dtype_come_back(dtype, shape):
    features = {"t": TensorFeature(shape, dtype)}
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(features["t"].dtype)
    record = encode_example({"t": value}, features)
    for found in (features, {"t": TensorFeature((None,) * len(shape), dtype)}):
        decoded = decode_example(record, found)["t"]
        assert decoded.dtype == value.dtype
        assert decoded.shape == value.shape
        assert decoded.tobytes() == value.tobytes()
    assert infer_features([record]) == features


@pytest.mark.parametrize("dtype", sorted(example_features.FLOATS | example_features.INTS))
def test_lists_become_the_dtype_declared(dtype):
    value = np.array([0, 1, 1])
    record = encode_example({"x": value}, {"x": FixedFeature((3,), dtype)})
    for feature in (FixedFeature((3,), dtype), VarFeature(dtype)):
        decoded = decode_example(record, {"x": feature})["x"]
        assert decoded.dtype == feature.dtype
        assert decoded.tolist() == [0, 1, 1]


def test_strings_come_as_bytes_or_str_in_their_shape():
    features = {
        "name": FixedFeature((), str),
        "words": FixedFeature((2, 1), bytes),
        "tags": VarFeature(str),
        "grid": TensorFeature((None, 2), str),
    }
    row = {"name": "é", "words": [[b"a"], [b"b"]], "tags": ["x", ""], "grid": [["p", "q"]]}
    decoded = decode_example(encode_example(row, features), features)
    assert decoded["name"] == "é"
    assert decoded["words"].tolist() == [[b"a"], [b"b"]]
    assert decoded["tags"].tolist() == ["x", ""]
    assert decoded["grid"].tolist() == [["p", "q"]]


def test_a_nest_of_features_gives_that_nest():
    record = encode_example({"b": 1, "a": 2.5, "c": b"x"})
    nest = (
        {"b": FixedFeature((), "int64"), "a": FixedFeature((), "float32")},
        VarFeature(bytes, name="c"),
    )
    (numbers, text) = decode_example(record, nest)
    assert list(numbers) == ["b", "a"]
    assert (numbers["b"], numbers["a"]) == (1, 2.5)
    assert text.tolist() == [b"x"]
    # As nests have it: dicts in the order of their keys.
    assert [name for name, _ in named_features(nest)] == ["a", "b", "c"]


def test_defaults_stand_in_for_what_is_missing():
    features = {
        "x": FixedFeature((2,), "float32", 1.5),
        "y": FixedFeature((2,), "int8", [3, 4]),
        "s": FixedFeature((2,), str, "none"),
        "v": VarFeature("int64"),
    }
    decoded = decode_example(b"", features)
    assert decoded["x"].tolist() == [1.5, 1.5]
    assert decoded["y"].tolist() == [3, 4]
    assert decoded["s"].tolist() == ["none", "none"]
    assert decoded["v"].tolist() == []


def test_features_are_inferred_from_what_all_records_have():
    tensor = {"t": TensorFeature((None, 2), "int16")}
    records = [
        encode_example(
            {
                "x": [1.0, 2.0],
                "id": k,
                "tags": ["a"] * k,
                "text": "t",
                "t": np.zeros((k, 2), "int16"),
            },
            tensor,
        )
        for k in (1, 2)
    ]
    records.append(
        encode_example({"extra": 1, "x": [0.0, 0.0], "id": 1, "tags": ["b"], "text": ""})
    )
    assert infer_features(records[:2]) == {
        "x": FixedFeature((2,), "float32"),
        "id": FixedFeature((), "int64"),
        "tags": VarFeature(bytes),
        "text": FixedFeature((), bytes),
        "t": TensorFeature((None, 2), "int16"),
    }
    found = infer_features(records)
    assert found["extra"] == VarFeature("int64")
    assert found["t"] == VarFeature(bytes)


def test_inference_needs_records_that_agree():
    with pytest.raises(ValueError, match="at least one record"):
        infer_features([])
    with pytest.raises(
        ValueError, match="'x' must be of one kind in all records, got floats and ints"
    ):
        infer_features([encode_example({"x": 1}), encode_example({"x": 1.0})])


def test_a_codec_survives_pickling():
    codec = pickle.loads(pickle.dumps(ExampleCodec.of({"x": FixedFeature((2,), "float32", 0)})))
    assert codec.names == ("x",)
    assert len(codec.plan) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedFeature(3, "int64"), r"must be a tuple of sizes, got 3; write \(3,\)"),
        (lambda: FixedFeature((None,), "int64"), r"no None in it, got \(None,\); write VarFeature"),
        (lambda: TensorFeature((-1,), "int64"), "sizes of at least 0"),
        (lambda: VarFeature("complex64"), "dtype of a VarFeature must be one of .*, got complex64"),
        (lambda: TensorFeature((), "S3"), "dtype of a TensorFeature must be one of"),
        (lambda: FixedFeature((2,), "int8", 300), "'default' must fit into int8"),
        (lambda: FixedFeature((2,), "int8", 0.5), "'default' must fit into int8, got float64"),
        (lambda: FixedFeature((2,), "int8", [1, 2, 3]), r"have the shape \(2,\), got \(3,\)"),
        (lambda: FixedFeature((), "int8", "a"), "must be numbers, got 'a'"),
        (lambda: FixedFeature((), bytes, "a"), "default of a bytes feature must be bytes"),
        (lambda: ExampleCodec.of((VarFeature("int8"),)), "outside a dict must have a name"),
        (
            lambda: ExampleCodec.of({"x": VarFeature("int8"), "y": VarFeature("int8", name="x")}),
            "read once",
        ),
        (lambda: ExampleCodec.of({"x": [VarFeature("int8")]}), "in dicts and tuples, got list"),
        (lambda: encode_example({"x": object()}), "must be floats, ints, bytes or str, got object"),
        (lambda: encode_example({"x": 1}, {"y": VarFeature("int8")}), "got none of the name 'y'"),
        (lambda: encode_example({"x": 300}, {"x": VarFeature("int8")}), "'x' must fit into int8"),
        (
            lambda: encode_example({"x": [1]}, {"x": FixedFeature((), "int8")}),
            r"shape \(\), got \(1,\)",
        ),
        (lambda: encode_example({"x": 2**63}), "must fit into int64, got 9223372036854775808"),
        (
            lambda: encode_example({"x": 5}, {"x": VarFeature(bytes)}),
            "'x' must be bytes or str, got 5",
        ),
    ],
)
def test_mistakes_are_told_when_they_are_made(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (
            FixedFeature((), "float32", name="y"),
            "'y': must be in every record, and is missing; give it a default",
        ),
        (FixedFeature((), "float32"), "'x': must be a list of floats, got ints; declare"),
        (
            FixedFeature((3,), "int64"),
            r"'x': must have the values of \(3,\) int64, got 2 of them; write VarFeature",
        ),
        (
            FixedFeature((2,), "int8"),
            r"'x': must fit into \(2,\) int8, got 300; declare a wider dtype",
        ),
        (
            TensorFeature((), "int8", name="s"),
            "'s': must be a tensor serialised by TensorFlow, and is not",
        ),
        (
            TensorFeature((2,), "int8", name="t"),
            r"'t': must be a tensor of \(2,\) int8, got float32; declare",
        ),
        (
            TensorFeature((2,), "float32", name="t"),
            "'t': must be a tensor .* got one of 3 values in another shape",
        ),
        (TensorFeature((2,), "float32", name="y"), "'y': must be in every record.*on_error='skip'"),
        (
            TensorFeature((2,), "float32", name="two"),
            "'two': must be one tensor as bytes, got 2 values",
        ),
        (VarFeature(str, name="b"), "'b': must be UTF-8, and is not; declare it as bytes"),
        (
            FixedFeature((2,), "float16", name="f"),
            r"'f': must fit into \(2,\) float16, got -9.99.*e\+37; declare a wider dtype",
        ),
        (VarFeature("float16", name="f"), "'f': must fit into .* float16, got -9.99"),
        (FixedFeature((1,), "bfloat16", name="largest"), "'largest': must fit into .* bfloat16"),
    ],
)
def test_an_error_says_what_came_and_what_to_do(feature, message):
    row = {
        "x": [1, 300],
        "t": np.zeros(3, "float32"),
        "s": b"\xff\xff",
        "b": b"\xff",
        "two": [b"1", b"2"],
        "f": np.float32([1, -1e38]),
        "largest": np.float32([np.finfo("f4").max]),
    }
    record = encode_example(row, {"t": TensorFeature((3,), "float32")})
    with pytest.raises(ps.RecordError, match=message) as raised:
        decode_example(record, {"x": feature})
    assert raised.value.kind in _native.RECORD_FAULTS
    assert "of the record)" in str(raised.value)


def test_every_fault_has_its_words():
    for kind in _native.RECORD_FAULTS[1:]:
        assert describe_fault(kind, 1).endswith(".")


def test_garbage_is_not_an_example():
    with pytest.raises(ps.RecordError, match=r"must be a tf\.train\.Example, and is not"):
        decode_example(b"garbage")


def test_a_feature_without_a_list_is_none():
    entry = twins.delimited(1, twins.delimited(1, b"x") + twins.delimited(2, b""))
    assert example_codec.decode_example(twins.delimited(1, entry)) == {"x": None}
