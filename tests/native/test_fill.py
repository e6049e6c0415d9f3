"""Rows of Python objects into columns, against `column[i] = value`."""

import gc
import itertools
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock._native import RowFiller

NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
DTYPES = [*NUMBERS, ">i4", ">f8", "M8[s]", "S3", "U2"]


def value_of(dtype):
    return hnp.arrays(dtype, ()).map(lambda array: array[()])


@st.composite
def fields(draw):
    """A column, and a value that may or may not be one for it."""
    dtype, shape = (
        np.dtype(draw(st.sampled_from(DTYPES))),
        draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)),
    )
    column = np.zeros((3, *shape), dtype)
    other = np.dtype(draw(st.sampled_from(DTYPES)))
    value = draw(
        st.one_of(
            hnp.arrays(dtype, shape),
            hnp.arrays(dtype, shape).map(np.asfortranarray),
            hnp.arrays(other, shape),
            hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0)),
            value_of(dtype),
            value_of(other),
            st.integers(),
            st.floats(),
            st.complex_numbers(),
            st.booleans(),
            st.text(),
            st.none(),
        )
    )
    return column, value


def is_as_declared(column, value):
    """What the rest of the library relies on: nothing else is put into a column natively."""
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype == column.dtype and value.shape == column.shape[1:]
    kinds = {int: "iu", float: "f"}
    return column.ndim == 1 and column.dtype.kind in kinds.get(type(value), "")


@given(st.lists(fields(), min_size=1, max_size=3), st.sampled_from([None, int, dict]))
def test_a_row_is_put_as_numpy_does_it_or_left_to_the_caller(drawn, form):
    drawn = drawn[:1] if form is None else drawn
    columns = tuple(column for column, _ in drawn)
    values = tuple(value for _, value in drawn)
    names = tuple("abc"[: len(drawn)])
    keys = {None: None, int: len(drawn), dict: names}[form]
    row = {None: values[0], int: values, dict: dict(zip(names, values, strict=True))}[form]
    filler = RowFiller(columns, keys)
    odd = filler.fill(iter([row]), 1, 3)
    if odd is not None:
        assert odd[0] is row
        assert filler.count == 1
        return
    assert filler.count == 2
    for column, value in drawn:
        assert is_as_declared(column, value)
        expected = np.zeros_like(column)
        expected[1] = value
        assert column.tobytes() == expected.tobytes()


@given(
    st.lists(fields(), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 4), st.booleans()
)
def test_a_single_row_goes_to_its_place_in_batches(drawn, num_groups, group_rows, is_padded):
    """Batches lie apart, each on 64 bytes: what is between them stays as it is."""
    columns, wholes = [], []
    for column, _ in drawn:
        shape = column.shape[1:]
        whole = np.zeros((num_groups, group_rows + is_padded, *shape), column.dtype)
        wholes.append(whole)
        columns.append(whole[:, :group_rows])
    values = tuple(value for _, value in drawn)
    filler = RowFiller(tuple(columns), len(values), is_grouped=True)
    num_rows = num_groups * group_rows
    for number in (-1, num_rows):
        with pytest.raises(IndexError, match="no such row"):
            filler.put(number, values)
    for number in range(num_rows):
        expected = [whole.copy() for whole in wholes]
        if not filler.put(number, values):
            return
        for whole, column, value in zip(wholes, expected, values, strict=True):
            assert is_as_declared(column[0], value)
            column[divmod(number, group_rows)] = value
            assert whole.tobytes() == column.tobytes()


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_what_is_just_as_declared_is_never_left_to_the_caller(dtype, shape):
    column = np.zeros((5, *shape), dtype)
    rows = np.arange(np.prod((5, *shape))).astype(dtype).reshape(5, *shape)
    filler = RowFiller((column,), None)
    assert filler.fill(iter(list(rows)), 0, 5) is None
    assert filler.count == 5
    np.testing.assert_array_equal(column, rows)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_whole_numbers_are_put_up_to_the_ends_of_the_range(dtype):
    info = np.iinfo(dtype)
    column = np.zeros(1, dtype)
    for number in (info.min, info.max if dtype != "u8" else np.iinfo("i8").max):
        assert RowFiller((column,), None).fill(iter([int(number)]), 0, 1) is None
        assert column[0] == number
    for number in (info.min - 1, info.max + 1, 10**30, -(10**30)):
        assert RowFiller((column,), None).fill(iter([int(number)]), 0, 1) == (number,)


def test_a_number_that_would_become_infinite_is_left_to_the_caller():
    filler = RowFiller((np.zeros(9, np.float32),), None)
    assert filler.fill(iter([1e300]), 0, 9) == (1e300,)
    assert filler.fill(iter([float("inf"), 3.4e38]), 0, 9) is None
    assert filler.count == 2


def test_it_stops_where_it_is_told_to_and_where_the_rows_end():
    column = np.zeros(10, np.int64)
    filler = RowFiller((column,), None)
    rows = iter(range(100, 106))
    assert filler.fill(rows, 2, 4) is None
    assert (filler.count, next(rows)) == (4, 102)
    assert filler.fill(rows, 4, 10) is None
    assert filler.count == 7
    np.testing.assert_array_equal(column, [0, 0, 100, 101, 103, 104, 105, 0, 0, 0])


def test_what_the_rows_raise_comes_through_with_their_number():
    def rows():
        yield 1
        raise KeyError("no more")

    filler = RowFiller((np.zeros(4, np.int64),), None)
    with pytest.raises(KeyError, match="no more"):
        filler.fill(rows(), 0, 4)
    assert filler.count == 1


def test_rows_of_another_form_are_left_to_the_caller():
    columns = np.zeros(4, np.int64), np.zeros(4, np.int64)
    for row in ((1,), (1, 2, 3), [1, 2], {"a": 1, "b": 2}, None, 5):
        assert RowFiller(columns, 2).fill(iter([row]), 0, 4) == (row,)
    for row in ({"a": 1}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}, (1, 2)):
        assert RowFiller(columns, ("a", "b")).fill(iter([row]), 0, 4) == (row,)


@pytest.mark.parametrize("value", [None, object(), "text"])
def test_whatever_a_function_returns_is_left_to_the_caller(value):
    assert not RowFiller((np.zeros(3),), None).put(1, value)


def test_keys_that_fail_to_compare_raise():
    class Odd:
        def __hash__(self):
            return hash("a")

        def __eq__(self, other):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        RowFiller((np.zeros(4, np.int64),), ("a",)).fill(iter([{Odd(): 1}]), 0, 4)


def test_wrong_arguments_are_refused():
    column = np.zeros((4, 3))
    read_only = np.zeros(4)
    read_only.flags.writeable = False
    for columns, keys, error in [
        ((column,), 2, ValueError),
        ((column,), ("a", "b"), ValueError),
        ((column,), "a", TypeError),
        (("a",), None, TypeError),
        ((np.zeros(()),), None, ValueError),
        ((read_only,), None, ValueError),
        ((np.zeros(4, object),), None, ValueError),
        ((column[:, ::2],), None, ValueError),
        ((column.T,), None, ValueError),
    ]:
        with pytest.raises(error):
            RowFiller(columns, keys)
    with pytest.raises(ValueError, match="axis of rows"):
        RowFiller((np.zeros(4),), None, is_grouped=True)
    filler = RowFiller((column[::2],), None)
    for start, stop in [(-1, 1), (0, 3)]:
        with pytest.raises(IndexError, match="no room"):
            filler.fill(iter([]), start, stop)
    with pytest.raises(TypeError, match="iterator"):
        filler.fill([], 0, 1)


def test_it_keeps_its_columns_alive_and_no_rows():
    class Row(np.ndarray):
        pass

    column = np.zeros((4, 2))
    alive = weakref.ref(column)
    filler = RowFiller((column,), None)
    del column
    assert alive() is not None
    row = np.ones(2).view(Row)
    seen = weakref.ref(row)
    assert filler.fill(itertools.repeat(np.ones(2), 2), 0, 4) is None
    assert filler.fill(iter([row]), 0, 4) is not None  # A subclass may have a meaning of its own.
    del row, filler
    gc.collect()
    assert seen() is None
    assert alive() is None
