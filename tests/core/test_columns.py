"""Columns of each kind hold and copy rows as a Python list would."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.arrays import raw_rows
from penstock.core.columns import Fixed, Ragged, Text, column_of, merge
from penstock.core.spec import ArraySpec
from penstock.memory import ALIGNMENT, allocate_plain

# All of Unicode, lone surrogates as well: file names have them.
TEXTS = st.text(st.characters(), max_size=5)
BYTES = st.binary(max_size=5)
KINDS = st.sampled_from([bytes, str])


def index(rows: list[int]) -> np.ndarray:
    return np.array(rows, np.int64)


def some_rows(data: st.DataObject, count: int) -> list[int]:
    """Rows in any order, as often as wanted."""
    return data.draw(st.lists(st.integers(0, count - 1), max_size=8)) if count else []


def ragged_rows(data: st.DataObject, dtype: Any) -> list[np.ndarray]:
    """Arrays of two axes, each of its own shape."""
    shapes = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=6))
    return [(np.arange(a * b).reshape(a, b) + i).astype(dtype) for i, (a, b) in enumerate(shapes)]


def same(found: Any, wanted: list[np.ndarray]) -> bool:
    found = list(found)
    return len(found) == len(wanted) and all(
        one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()
        for one, other in zip(found, wanted, strict=True)
    )


@given(kind=KINDS, data=st.data())
def test_text_gives_takes_and_merges_what_a_list_would(kind: type, data: st.DataObject):
    one, other = (data.draw(st.lists(BYTES if kind is bytes else TEXTS)) for _ in range(2))
    column = Text.of(one, kind, allocate_plain)
    assert len(column) == len(one)
    assert list(column.values(len(one))) == one
    rows = some_rows(data, len(one))
    taken = column.take(index(rows), allocate_plain)
    assert list(taken.values(len(rows))) == [one[row] for row in rows]
    merged = merge([taken, column, Text.of(other, kind, allocate_plain)], allocate_plain)
    expected = [one[row] for row in rows] + one + other
    assert list(merged.values(len(merged))) == expected
    assert merged.objects(0, len(merged)).tolist() == expected
    sizes = [
        len(v if isinstance(v, bytes) else v.encode("utf-8", "surrogatepass")) for v in expected
    ]
    assert merged.nbytes == sum(sizes) + 8 * (len(expected) + 1)


@given(
    dtype=st.sampled_from(["u1", "<f4", ">i8", "c16", ml_dtypes.bfloat16]),
    is_aligned=st.booleans(),
    data=st.data(),
)
def test_ragged_rows_are_given_taken_and_merged_as_in_a_list(
    dtype: Any, is_aligned: bool, data: st.DataObject
):
    one, other = ragged_rows(data, dtype), ragged_rows(data, dtype)
    spec = ArraySpec((None, None), dtype)
    column = Ragged.of(one, spec, allocate_plain, aligned=is_aligned)
    assert len(column) == len(one)
    assert same(column.values(len(one)), one)
    rows = some_rows(data, len(one))
    taken = column.take(index(rows), allocate_plain, aligned=is_aligned)
    assert same(taken.values(len(rows)), [one[row] for row in rows])
    if is_aligned:
        for value in [*column.values(len(one)), *taken.values(len(rows))]:
            assert not value.size or value.ctypes.data % ALIGNMENT == 0
    others = Ragged.of(other, spec, allocate_plain, aligned=False)
    merged = merge([taken, others, column], allocate_plain)
    assert same(merged.values(len(merged)), [*(one[row] for row in rows), *other, *one])


@given(values=st.lists(st.lists(BYTES, max_size=4), min_size=1, max_size=6), data=st.data())
def test_ragged_text_is_arrays_of_objects(values: list[list[bytes]], data: st.DataObject):
    column = column_of(values, ArraySpec((None,), bytes), allocate_plain, aligned=True)
    assert [one.tolist() for one in column.values(len(values))] == values
    rows = some_rows(data, len(values))
    taken = column.take(index(rows), allocate_plain, aligned=True)
    assert [one.tolist() for one in taken.values(len(rows))] == [values[row] for row in rows]
    merged = merge([taken, column], allocate_plain)
    expected = [values[row] for row in rows] + values
    assert [one.tolist() for one in merged.values(len(merged))] == expected


def test_inner_rows_are_elements_of_rows_over_the_same_memory():
    rows = [np.arange(6).reshape(3, 2), np.arange(4).reshape(1, 4) + 10]
    column = Ragged.of(rows, ArraySpec((None, None), "i8"), allocate_plain, aligned=True)
    inner = column.inner(index([1, 0, 0]), index([0, 2, 0]))
    assert [one.tolist() for one in inner.values(3)] == [[10, 11, 12, 13], [4, 5], [0, 1]]
    assert np.shares_memory(inner.value(1), column.value(0))


@given(
    groups=st.integers(1, 4),
    group_rows=st.integers(1, 4),
    how=st.sampled_from(["put", "put_row", "gather", "copy_from"]),
    has_slots=st.booleans(),
    data=st.data(),
)
def test_fixed_rows_go_to_their_slots_in_whichever_way_and_nowhere_else(
    groups: int, group_rows: int, how: str, has_slots: bool, data: st.DataObject
):
    room = groups * group_rows
    slots = data.draw(st.lists(st.integers(0, room - 1), unique=True)) if has_slots else None
    count = data.draw(st.integers(0, room)) if slots is None else len(slots)
    grouped = np.full((groups, group_rows + 1, 2), -1, np.int32)[:, :group_rows]  # gaps between
    column = Fixed(grouped) if slots is None else Fixed(grouped).at(index(slots))
    values = np.arange(2 * count, dtype=np.int32).reshape(count, 2)
    backwards = values[::-1].copy()
    last_first = np.arange(count)[::-1].copy()
    if how == "put":
        column.put(values)
    elif how == "put_row":
        for row, value in enumerate(values):
            column.put_row(row, value)
    elif how == "gather":
        column.gather(raw_rows(backwards, 1), last_first)
    else:
        column.copy_from(Fixed(backwards[None]), last_first)
    expected = np.full((room, 2), -1, np.int32)
    expected[np.arange(count) if slots is None else index(slots)] = values
    assert grouped.reshape(room, 2).tolist() == expected.tolist()
    assert (grouped.base[:, group_rows] == -1).all()
    group, place = column.places(count)
    assert grouped[group, place].tolist() == values.tolist()


@pytest.mark.parametrize("lengths", [[3, 3], [3, 1], [0, 2]])
def test_rows_that_are_short_batches_are_given_as_long_as_they_are(lengths: list[int]):
    column = Fixed(np.zeros((1, 4, 3), np.int16), None, np.full(4, 3))
    part = column.span(1, 3)
    part.put(np.arange(6).reshape(2, 3))
    part.put_lengths(index(lengths))
    expected = [[0, 1, 2][: lengths[0]], [3, 4, 5][: lengths[1]]]
    assert [one.tolist() for one in column.values(4)] == [[0] * 3, *expected, [0] * 3]
    copy = Fixed(np.zeros((1, 2, 3), np.int16), None, np.full(2, 3))
    copy.copy_from(column, index([2, 1]))
    assert [one.tolist() for one in copy.values(2)] == expected[::-1]
    copy.copy_from(Fixed(np.ones((1, 2, 3), np.int16)), index([0, 1]))
    assert [one.tolist() for one in copy.values(2)] == [[1] * 3] * 2
