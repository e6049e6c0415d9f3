"""Columns of each kind hold and copy rows as a Python list would."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.arrays import raw_rows
from penstock.core.columns import Fixed, Ragged, Text, collect, column_of, merge
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


@pytest.mark.parametrize("aligned", [False, True])
@given(kind=st.sampled_from([bytes, str, "f4", "M8[D]", "nested text"]), data=st.data())
def test_rows_collected_from_several_columns_are_those_of_lists(
    kind: Any, aligned: bool, data: st.DataObject
):
    lists: list[list[Any]] = []
    for _ in range(data.draw(st.integers(1, 4))):
        if kind in (bytes, str):
            lists.append(data.draw(st.lists(BYTES if kind is bytes else TEXTS, max_size=4)))
        elif kind == "nested text":
            nested = data.draw(st.lists(st.lists(BYTES, max_size=3), max_size=4))
            lists.append([np.array(one, object) for one in nested])
        else:
            lists.append(ragged_rows(data, kind))
    dtype = bytes if kind == "nested text" else kind
    shape = {"nested text": (None,), bytes: (), str: ()}.get(kind, (None, None))
    spec = ArraySpec(shape, dtype)
    columns = [column_of(one, spec, allocate_plain, aligned=False) for one in lists]
    wanted = [(number, row) for number, one in enumerate(lists) for row in range(len(one))]
    chosen = data.draw(st.lists(st.sampled_from(wanted), max_size=9)) if wanted else []
    owners, rows = (index([pair[axis] for pair in chosen]) for axis in (0, 1))
    found = collect(columns, owners, rows, allocate_plain, aligned=aligned)
    expected = [lists[owner][row] for owner, row in chosen]
    if shape == ():
        assert list(found.values(len(chosen))) == expected
    elif kind == "nested text":
        assert [one.tolist() for one in found.values(len(chosen))] == [e.tolist() for e in expected]
    else:
        assert same(found.values(len(chosen)), expected)
        assert isinstance(found, Ragged)
        assert not aligned or all(
            start * np.dtype(kind).itemsize % ALIGNMENT == 0 for start in found.starts
        )


@given(
    groups=st.integers(1, 4),
    group_rows=st.integers(1, 5),
    kind=st.sampled_from(["all", "scattered", "a run", "a run and more"]),
    data=st.data(),
)
def test_rows_put_from_any_place_on_go_there_and_nowhere_else(
    groups: int, group_rows: int, kind: str, data: st.DataObject
):
    total = groups * group_rows
    memory = np.full((groups, group_rows + 1, 2), -1)
    where = np.arange(total)
    if kind == "scattered":
        where = index(data.draw(st.permutations(range(total))))
    elif kind == "a run":
        where = where[data.draw(st.integers(0, total - 1)) :]
    elif kind == "a run and more":
        where = np.roll(where, data.draw(st.integers(0, total)))
    column = Fixed(memory[:, :group_rows], None if kind == "all" else where)
    place = data.draw(st.integers(0, len(where)))
    values = np.arange(2 * data.draw(st.integers(0, len(where) - place))).reshape(-1, 2)
    column.put(values, place)
    expected = np.full((total, 2), -1)
    expected[where[place : place + len(values)]] = values
    assert (memory[:, :group_rows].reshape(total, 2) == expected).all()
    assert (memory[:, group_rows] == -1).all()


@given(order=st.permutations(range(9)), dtype=st.sampled_from(["i8", "f2", "V3", "V0"]))
def test_a_column_is_put_in_order_by_way_of_one_beside_it(order: list[int], dtype: str):
    raw = np.arange(9 * 2 * 8, dtype=np.uint8)
    values = np.ndarray((9, 2), dtype, raw.tobytes())
    memory = np.zeros((1, 11, 2), dtype)
    before = memory.copy()
    column = Fixed(memory[:, 1:10], None, index([0] * 9))
    beside = column.beside(9, allocate_plain)
    assert not np.shares_memory(beside.grouped, memory)
    beside.put(values)
    beside.put_lengths(index(range(9)))
    column.copy_from(beside, index(order))
    assert column.lengths is not None
    assert column.lengths.tolist() == order
    assert memory[0, 1:10].tolist() == values[index(order)].tolist()
    assert (memory[0, [0, 10]] == before[0, [0, 10]]).all()


@given(lengths=st.booleans(), start=st.integers(0, 6), data=st.data())
def test_a_slice_of_rows_is_copied_as_their_numbers_are(
    lengths: bool, start: int, data: st.DataObject
):
    stop = data.draw(st.integers(start, 6))
    kept = index([1, 3, 2, 3, 0, 3]) if lengths else None
    source = Fixed(np.arange(18).reshape(1, 6, 3), None, kept)
    found = []
    for rows in (slice(start, stop), np.arange(start, stop)):
        valid = np.zeros(stop - start, np.int64) if lengths else None
        column = Fixed(np.full((1, stop - start, 3), -1), None, valid)
        column.copy_from(source, rows)
        found.append((column.grouped.tolist(), None if valid is None else valid.tolist()))
    assert found[0] == found[1]


@given(st.data())
def test_rows_that_follow_each_other_in_memory_are_one_place_to_write_to(data: st.DataObject):
    groups, group_rows = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 5))
    gap = data.draw(st.integers(0, 1))
    grouped = np.zeros((groups, group_rows + gap, 2), np.int32)[:, :group_rows]
    room = groups * group_rows
    slots = data.draw(st.none() | st.permutations(range(room)).map(index))
    start = data.draw(st.integers(0, room - 1))
    stop = data.draw(st.integers(start + 1, room))
    rows = np.arange(start, stop)
    column = Fixed(grouped, slots)
    place = column.place(start, stop)
    group, inner = column.places(room)
    if place is not None:
        place[...] = np.arange(2 * len(rows)).reshape(-1, 2)
        expected = np.zeros_like(grouped)
        expected[group[rows], inner[rows]] = np.arange(2 * len(rows)).reshape(-1, 2)
        np.testing.assert_array_equal(grouped, expected)
    elif slots is None:
        assert gap
        assert len(set(group[rows].tolist())) > 1
    assert column.place(start, start) is None
