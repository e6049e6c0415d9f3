"""The table of a list of arrays copies what a plain loop copies, and refuses what would reach elsewhere."""

import gc
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native

from . import twins

DTYPES = ("u1", "?", "<i4", "f8", "M8[s]", "V3", "U2", "c16")


@st.composite
def jobs(draw):
    shapes = draw(st.lists(st.lists(st.integers(0, 5), max_size=2), max_size=8))
    dtype = draw(st.sampled_from(DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = []
    for shape in shapes:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        raw = rng.integers(0, 2 if dtype == "?" else 100, count, np.uint8)
        arrays.append(np.ndarray(shape, dtype, raw.tobytes() if count else bytes(1)))
    rows = draw(st.lists(st.integers(0, len(arrays) - 1), max_size=30)) if arrays else []
    lengths = np.array([arrays[row].nbytes for row in rows], np.int64)
    gaps = np.array([draw(st.integers(0, 3)) for _ in rows], np.int64)
    ends = np.cumsum(lengths + gaps)
    out = np.full(int(ends[-1]) if rows else 0, 0xEE, np.uint8)
    return arrays, np.array(rows, np.int64), lengths, ends - lengths, out


@given(jobs())
def test_a_table_agrees_with_its_twin(job):
    arrays, rows, lengths, out_starts, out = job
    expected = out.copy()
    twins.gather_arrays(arrays, rows, lengths, expected, out_starts)
    table = _native.ArrayTable(arrays)
    assert len(table) == len(arrays)
    assert all(one is other for one, other in zip(table.arrays, arrays, strict=True))
    table.gather(rows, lengths, out, out_starts)
    np.testing.assert_array_equal(out, expected)


def test_a_table_sees_what_is_written_to_its_arrays_but_not_to_its_list():
    arrays = [np.zeros(2, "u1"), np.zeros(3, "u1")]
    table = _native.ArrayTable(arrays)
    arrays[0][:] = 7
    arrays[1] = np.full(3, 9, "u1")
    assert one(table, 0, 2, 0)[:2].tolist() == [7, 7]
    assert one(table, 1, 3, 0)[:3].tolist() == [0, 0, 0]


def test_a_table_refers_to_its_arrays_and_lets_go_of_them():
    class Array(np.ndarray):
        pass

    array = np.zeros(4, "u1").view(Array)
    alive = weakref.ref(array)
    table = _native.ArrayTable([array])
    del array
    gc.collect()
    assert alive() is not None
    assert table.nbytes == 32
    del table
    gc.collect()
    assert alive() is None


def one(table, row, length, out_start, size=8):
    out = np.zeros(size, np.uint8)
    table.gather(*(np.array([v]) for v in (row, length)), out, np.array([out_start]))
    return out


TABLE = _native.ArrayTable([np.arange(3, dtype="u1"), np.empty(0, "u1")])


@pytest.mark.parametrize("row", [-1, 2, 2**62, -(2**63)])
def test_a_row_that_is_not_there_is_refused(row):
    with pytest.raises(IndexError, match=rf"rows\[0\] must be in \[0, 2\), got {row}\."):
        one(TABLE, row, 3, 0)


@pytest.mark.parametrize(
    ("row", "length", "expected"), [(0, 2, 3), (0, 4, 3), (1, 1, 0), (0, -1, 3)]
)
def test_a_length_that_is_not_the_arrays_is_refused(row, length, expected):
    message = rf"lengths\[0\] must be the bytes of its array, {expected}, got {length}\."
    with pytest.raises(ValueError, match=message):
        one(TABLE, row, length, 0)


@pytest.mark.parametrize("start", [-1, 6, 8, 2**63 - 1])
def test_a_place_outside_of_out_is_refused(start):
    message = rf"out_starts\[0\] must leave room for 3 bytes in the 8 of out, got {start}\."
    with pytest.raises(IndexError, match=message):
        one(TABLE, 0, 3, start)


@pytest.mark.parametrize("which", [1, 3])
def test_arguments_of_unequal_length_are_refused(which):
    arguments = [np.zeros(1, np.int64), np.full(1, 3), np.zeros(8, np.uint8), np.zeros(1, np.int64)]
    arguments[which] = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="must have the length of rows, 1, got 2"):
        TABLE.gather(*arguments)


def test_what_is_no_contiguous_array_is_refused():
    with pytest.raises(TypeError, match=r"arrays\[1\] must be a NumPy array, got bytes"):
        _native.ArrayTable([np.zeros(2), b"12"])
    with pytest.raises(ValueError, match=r"arrays\[0\] must be contiguous"):
        _native.ArrayTable([np.zeros((4, 4))[:, 0]])
    with pytest.raises(TypeError):
        _native.ArrayTable((np.zeros(2),))


def test_memory_that_can_not_be_written_is_refused():
    out = np.zeros(8, np.uint8)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writable"):
        TABLE.gather(np.zeros(1, np.int64), np.full(1, 3), out, np.zeros(1, np.int64))


def test_numpy_refuses_to_resize_an_array_of_a_table():
    table = _native.ArrayTable([np.full(1 << 16, 65, np.uint8)])
    with pytest.raises(ValueError, match="resize"):
        table.arrays[0].resize(10)
