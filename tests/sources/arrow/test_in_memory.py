"""Arrow columns in memory: every type in any chunks, as pyarrow tells its values, and without a copy if that can be."""

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance import assert_same, run

import penstock as ps
from penstock.sources.arrays import Arrays
from penstock.sources.arrow.in_memory import ArrowInMemory
from penstock.sources.reading.leaves import InMemory

TEXTS = st.text(max_size=20)
TYPES: dict[str, tuple[Any, Any, Any]] = {
    "int16": (pa.int16(), st.integers(-(2**15), 2**15 - 1), np.int16),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1), np.uint64),
    "float32": (pa.float32(), st.none() | st.floats(width=32), np.float32),
    "float16": (pa.float16(), st.floats(width=16).map(np.float16), np.float16),
    "bool": (pa.bool_(), st.booleans(), np.bool_),
    "date32": (pa.date32(), st.none() | st.integers(-9999, 9999), "M8[D]"),
    "timestamp": (pa.timestamp("us", "UTC"), st.none() | st.integers(-9999, 9999), "M8[us]"),
    "duration": (pa.duration("ms"), st.integers(-9999, 9999), "m8[ms]"),
    "string": (pa.string(), TEXTS, str),
    "large_string": (pa.large_string(), TEXTS, str),
    "string_view": (pa.string_view(), TEXTS, str),
    "binary": (pa.binary(), st.binary(max_size=20), bytes),
    "binary_view": (pa.binary_view(), st.binary(max_size=20), bytes),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bb", ""]), str),
    "dictionary of numbers": (pa.dictionary(pa.int8(), pa.int32()), st.sampled_from([7, 9]), "i4"),
    "list": (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=4), "i4"),
    "large_list": (pa.large_list(pa.float64()), st.lists(st.floats(), max_size=4), "f8"),
    "fixed_size_list": (
        pa.list_(pa.int8(), 2),
        st.lists(st.integers(0, 9), min_size=2, max_size=2),
        "i1",
    ),
    "fixed_size_binary": (pa.binary(3), st.binary(min_size=3, max_size=3), "u1"),
}


def value_of(value: Any, dtype: Any) -> Any:
    if dtype in (str, bytes):
        return value
    if isinstance(value, bytes):
        return np.frombuffer(value, dtype)
    kind = np.dtype(dtype).kind
    if value is None:
        value = "NaT" if kind in "mM" else np.nan
    return np.array(value, dtype) if isinstance(value, list) else np.array([value], dtype)[0]


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=12)
@given(data=st.data())
def test_every_type_in_any_chunks_gives_its_values(name: str, data: st.DataObject) -> None:
    kind, values, dtype = TYPES[name]
    parts = data.draw(st.lists(st.lists(values, max_size=6), min_size=1, max_size=4))
    chunks = []
    for part in parts:
        padded = [*part[:1], *part]  # Cut off again, so that there are offsets.
        chunks.append(pa.array(padded, kind)[len(part[:1]) :])
    column = pa.chunked_array(chunks, kind)
    expected = [value_of(value, dtype) for part in parts for value in part]
    ds = ps.from_arrays(column)
    assert len(ds) == len(expected)
    assert_same(run(ds), expected)
    assert_same(run(pickle.loads(pickle.dumps(ds))), expected)
    order = [int(row) for row in run(ps.from_arrays(np.arange(len(expected))).shuffle(seed=5))]
    assert_same(
        run(ds.shuffle(seed=5).repeat(2).take(len(order))), [expected[row] for row in order]
    )
    assert_same(run(ds.skip(1).take(3)), expected[1:4])


def test_numbers_in_one_chunk_are_not_copied() -> None:
    numbers = pa.array(np.arange(10_000, dtype="f4"))
    lists = pa.FixedSizeListArray.from_arrays(numbers, 10)
    times = pa.array(np.arange(1000), pa.timestamp("s"))
    for column in (numbers, numbers[100:1100], lists, times):
        node = ps.from_arrays(column).node
        assert isinstance(node, Arrays)
        (leaf,) = node.leaves
        assert isinstance(leaf, InMemory)
        buffer = next(one for one in reversed(column.buffers()) if one is not None)
        start = leaf.array.__array_interface__["data"][0]
        assert buffer.address <= start < buffer.address + buffer.size


def test_text_is_read_where_it_lies_and_what_is_made_of_it_is_counted() -> None:
    text = pa.array([f"text number {n}" for n in range(1000)], pa.large_string())
    node = ps.from_arrays(text).node
    assert isinstance(node, Arrays)
    (leaf,) = node.leaves
    assert isinstance(leaf, ArrowInMemory)
    data = text.buffers()[2]
    assert data is not None
    assert leaf.parts[0].data.__array_interface__["data"][0] == data.address
    assert leaf.retained_nbytes() == 0
    for other in (text.cast(pa.string()), text.dictionary_encode()):
        (leaf,) = ps.from_arrays(other).node.leaves  # type: ignore[attr-defined]
        assert leaf.retained_nbytes() >= 8000


def test_a_changed_column_is_proven_to_be_another_and_chunks_do_not_matter() -> None:
    def proof(values: list[Any], kind: Any, cut: int) -> Any:
        whole = pa.array(values, kind)
        return ArrowInMemory(pa.chunked_array([whole[:cut], whole[cut:]]), specs[kind]).proof()

    specs = {
        pa.string(): ps.ArraySpec((), str),
        pa.list_(pa.int8()): ps.ArraySpec((None,), "i1"),
        pa.bool_(): ps.ArraySpec((), bool),
        pa.dictionary(pa.int32(), pa.string()): ps.ArraySpec((), str),
    }
    for kind, (one, other) in zip(
        specs,
        [
            (["ab", "c"], ["a", "bc"]),
            ([[1, 2], [3]], [[1], [2, 3]]),
            ([True, False], [True, True]),
            (["x", "y"], ["y", "x"]),
        ],
        strict=True,
    ):
        assert proof(one, kind, 1) == proof(one, kind, 2) != proof(other, kind, 1)


@pytest.mark.parametrize(
    ("column", "row", "cure"),
    [
        (pa.array([1, 2, None]), 2, r"make them floats, or fill it \(fill_null\(0\)\)"),
        (pa.array(["a", None]), 1, r'fill it \(fill_null\(""\)\)'),
        (pa.array([True, None]), 1, r"make them floats, or fill it \(fill_null\(False\)\)"),
        (pa.array([[1], [2, None]]), 1, "make them floats, or drop"),
        (pa.array([[1], None]), 1, "You can drop its row"),
        (pa.array([[0.5], None]), 1, "You can drop its row"),
        (pa.array([[0.5], None], pa.list_(pa.float64(), 1)), 1, "You can drop its row"),
        (pa.array([b"ab", None], pa.binary(2)), 1, "You can drop its row"),
        (pa.array(["a", None, "a"]).dictionary_encode(), 1, "drop its row"),
        (pa.chunked_array([pa.array([1, 2]), pa.array([3, None])]), 3, "make them floats"),
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2)), 1, "drop its row"),
        (pa.DictionaryArray.from_arrays([1, 0], pa.array([None, "a"])), 1, "drop its row"),
    ],
)
def test_what_can_not_be_missing_is_an_error_with_row_and_cure(
    column: Any, row: int, cure: str
) -> None:
    with pytest.raises(ValueError, match=rf"field 'value': row {row} is missing.*{cure}"):
        ps.from_arrays(column)


def times(unit: str) -> Any:
    kind = pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    return pa.array([1, 2], kind)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (times("s"), r"no number, truth, date.*whole seconds since midnight.*cast\(pa\.int32\(\)"),
        (times("us"), r"whole microseconds since midnight \(pyarrow: cast\(pa\.int64\(\)\)"),
        (
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int8(), [1, 2]),
                pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
            ),
            r"cast it to what it is stored as, fixed_size_list.*int8",
        ),
        (
            pa.array([[[1], [2]]], pa.list_(pa.list_(pa.int8()), 2)),
            r"fixed_size_list<item: list<item: int8>>\[2\], which is no number, .* or leave it out",
        ),
    ],
)
def test_types_that_can_not_be_read_name_the_cast(column: Any, message: str) -> None:
    with pytest.raises(TypeError, match=rf"field 'value' has Arrow type .*{message}"):
        ps.from_arrays(column)


def test_the_casts_that_messages_name_are_read() -> None:
    assert run(ps.from_arrays(times("s").cast(pa.int32()))) == [1, 2]
    assert run(ps.from_arrays(times("us").cast(pa.int64()))) == [1, 2]
    assert run(ps.from_arrays(pa.array([True, None]).fill_null(False))) == [True, False]


BROKEN = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], np.int32)), pa.py_buffer(b"\xff\xfe")]
)


@pytest.mark.parametrize(
    "column",
    [
        BROKEN,
        pa.DictionaryArray.from_arrays(pa.array([0]), BROKEN),
        BROKEN.cast(pa.binary()).cast(pa.binary_view()).view(pa.string_view()),
    ],
)
def test_text_that_is_not_utf_8_is_named_by_column_and_read_as_bytes(column: Any) -> None:
    with pytest.raises(ValueError, match=r"field 'c' .*not valid: .*UTF8.*cast\(pa\.binary\(\)\)"):
        ps.from_arrays(pa.table({"c": column}))
    assert run(ps.from_arrays(column.cast(pa.binary()))) == [b"\xff\xfe"]
