"""A spec says what a row is made of, refuses what cannot be, and survives JSON."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.core.spec import (
    ArraySpec,
    dtype_from_json,
    dtype_name,
    dtype_to_json,
    spec_of,
    spec_of_value,
)
from penstock.errors import SpecMismatchError

SHAPES = st.lists(st.none() | st.integers(0, 2), max_size=3).map(tuple)


def through_json(dtype: Any) -> Any:
    return dtype_from_json(json.loads(json.dumps(dtype_to_json(dtype))))


@given(
    hnp.scalar_dtypes() | hnp.array_dtypes(allow_subarrays=True) | hnp.nested_dtypes(max_leaves=6)
)
def test_every_dtype_of_numpy_survives_json(dtype: np.dtype):
    found = through_json(dtype)
    assert found == dtype
    assert found.itemsize == dtype.itemsize


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"]}, align=True),
        np.dtype({"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [5, 9], "itemsize": 32}),
        np.dtype([(("a title", "a"), "<i4"), ("b", "S3")]),
        np.dtype([("a", "<i4"), ("b", ml_dtypes.bfloat16)]),
        np.dtype({"names": ["a", "b"], "formats": ["<f4", "u1"], "offsets": [4, 0]}),
        np.dtype({"names": ["a", "b"], "formats": ["<i4", "<f4"], "offsets": [0, 0]}),
        np.dtype({"names": ["a", "b"], "formats": [("<i4", (2,)), "S3"], "offsets": [3, 0]}),
        np.dtype([(("a title", "a"), ml_dtypes.float8_e5m2, (2, 3)), ("b", "S3")]),
        np.dtype([("a", [("b", ml_dtypes.bfloat16), ("c", "u1")], (2,)), ("d", "<f8")]),
        np.dtype({"names": ["a"], "formats": [ml_dtypes.bfloat16], "offsets": [3], "itemsize": 8}),
        *(
            np.dtype(getattr(ml_dtypes, name))
            for name in (
                "bfloat16",
                "float8_e4m3fn",
                "float8_e5m2",
                "float8_e4m3b11fnuz",
                "int4",
                "uint4",
            )
        ),
    ],
    ids=str,
)
def test_padding_titles_and_the_dtypes_of_extensions_survive_json(dtype: np.dtype):
    found = through_json(dtype)
    assert found == dtype
    assert found.fields == dtype.fields
    assert found.type is dtype.type


def test_text_survives_json_and_metadata_is_left_out_without_a_warning():
    assert ArraySpec((), through_json(str)).dtype is str
    assert ArraySpec((), through_json(bytes)).dtype is bytes
    noted = np.dtype("<i4", metadata={"from": "h5py"})
    inside = np.dtype([("a", noted, (2,)), ("b", "u1")])
    assert dtype_to_json(noted) == "<i4"
    assert through_json(inside) == np.dtype([("a", "<i4", (2,)), ("b", "u1")])
    with pytest.raises(TypeError, match=r"^no dtype: 3$"):
        dtype_from_json(3)


@given(
    one=SHAPES, other=SHAPES, shape=hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=2)
)
def test_the_merged_spec_admits_all_that_either_admits(one: Any, other: Any, shape: Any):
    mine, theirs = ArraySpec(one, "f4"), ArraySpec(other, "f4")
    merged = mine.merged(theirs)
    assert merged == theirs.merged(mine)
    clash = len(one) != len(other) or any(
        a != b and None not in (a, b) for a, b in zip(one, other, strict=False)
    )
    assert (merged is None) == clash
    if merged is not None and (mine.admits(shape) or theirs.admits(shape)):
        assert merged.admits(shape)
    assert mine.merged(mine) == mine
    assert mine.merged(ArraySpec(one, "f8")) is None


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "message"),
    [
        (3, "f4", TypeError, r"^shape must be a tuple of sizes, got 3; write \(3,\)\.$"),
        (None, "f4", TypeError, r"^shape must be a tuple of sizes, got None; write \(None,\)\.$"),
        ((-1,), "f4", ValueError, "^a dimension must be None or a whole number >= 0, got -1\\.$"),
        ((1.5,), "f4", ValueError, "^a dimension must be None or a whole number >= 0, got 1.5\\.$"),
        ((float("inf"),), "f4", ValueError, "^a dimension must be None or .* got inf\\.$"),
        ((float("nan"),), "f4", ValueError, "^a dimension must be None or .* got nan\\.$"),
        ((), object, TypeError, "^dtype must be a plain NumPy dtype, bytes or str, got object; "),
        ((), [("a", "O")], TypeError, "objects cannot be kept in blocks"),
        ((), ("f4", (2,)), TypeError, "^put the sub-array of .* into the shape instead"),
    ],
)
def test_what_is_no_spec_is_refused(shape: Any, dtype: Any, error: type, message: str):
    with pytest.raises(error, match=message):
        ArraySpec(shape, dtype)


def test_the_spec_of_an_example_has_its_nest_and_its_text():
    found = spec_of({"a": (np.zeros((2, 3), ">f4"), 7), "b": [1.5, 2], "c": np.str_("abc")})
    assert found == {
        "a": (ArraySpec((2, 3), ">f4"), ArraySpec((), "i8")),
        "b": ArraySpec((2,), "f8"),
        "c": ArraySpec((), str),
    }
    assert spec_of_value(np.array([[b"a"], [b"bc"]], object)) == ArraySpec((2, 1), bytes)
    for value in [np.array([b"a", "b"], object), None, np.array([], object)]:
        message = f"^a field must be .*, got {type(value).__name__} of dtype object; split it"
        with pytest.raises(TypeError, match=message):
            spec_of_value(value)


def test_only_a_fixed_spec_has_bytes_and_each_names_its_dtype():
    assert ArraySpec((2, 3), "f4").nbytes == 24
    assert ArraySpec((np.int64(2), 0), "f4").nbytes == 0
    for spec, name in [
        (ArraySpec((None,), "f4"), r"ArraySpec\(\(None,\), float32\)"),
        (ArraySpec((), "bytes"), r"ArraySpec\(\(\), bytes\)"),
    ]:
        assert not spec.is_fixed
        with pytest.raises(SpecMismatchError, match=f"^{name} has no fixed size"):
            spec.nbytes  # noqa: B018
    assert ArraySpec((), str).numpy_dtype.hasobject
    assert dtype_name(np.dtype([("a", "<i4")])) == "[('a', '<i4')]"
    assert ArraySpec((None, 2), str).to_json() == [[None, 2], "str"]


@pytest.mark.parametrize("change", [{"offsets": [10**20]}, {"itemsize": 10**20}])
def test_json_of_a_dtype_with_numbers_that_are_too_large_is_refused(change: dict[str, Any]):
    with pytest.raises(ValueError, match="too large"):
        dtype_from_json({"names": ["a"], "formats": ["<f4"], **change})
