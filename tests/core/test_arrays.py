"""Spans, starts and raw bytes are what plain NumPy says they are."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.core.arrays import copy_box, raw_rows, rows_are_contiguous, spans, starts_of, typed
from penstock.memory import ALIGNMENT

SIZES = st.lists(st.integers(0, 50), max_size=20).map(lambda sizes: np.array(sizes, np.int64))
DTYPES = ["u1", "<f8", ">i4", "c16", "M8[ns]", "S3", "U2", "?", "V5", "i2,f4", ml_dtypes.bfloat16]


def counted(shape: tuple[int, ...], dtype: object) -> np.ndarray:
    """An array of any dtype whose bytes are all different, as far as there are different bytes."""
    array = np.zeros(shape, dtype)
    raw = (np.arange(array.nbytes) % 251).astype(np.uint8)
    return np.ndarray(shape, dtype, raw)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 9)), max_size=12))
def test_spans_are_the_ranges_one_after_the_other(pairs: list[tuple[int, int]]):
    starts, lengths = np.array(pairs, np.int64).reshape(-1, 2).T
    found = spans(starts, lengths)
    assert found.tolist() == [n for start, size in pairs for n in range(start, start + size)]
    assert found.dtype == np.int64


@given(sizes=SIZES, itemsize=st.sampled_from([0, 1, 2, 3, 4, 8, 12, 16, 24, 64, 100, 128]))
def test_rows_start_one_after_the_other_or_each_on_64_bytes(sizes: np.ndarray, itemsize: int):
    packed = starts_of(sizes, itemsize, aligned=False)
    assert packed.tolist() == [int(sizes[:row].sum()) for row in range(len(sizes))]
    aligned = starts_of(sizes, itemsize, aligned=True)
    assert len(aligned) == len(sizes)
    assert not (aligned * itemsize % ALIGNMENT).any()
    gaps = np.diff(aligned) - sizes[:-1]
    assert (gaps >= 0).all()
    assert (gaps * itemsize < max(1, np.lcm(ALIGNMENT, itemsize))).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [0, 1, 2])
def test_raw_rows_are_the_bytes_of_every_dtype_and_share_its_memory(dtype: object, lead: int):
    array = counted((3, 2, 4), dtype)
    raw = raw_rows(array, lead)
    assert raw.shape == (*array.shape[:lead], array.nbytes // int(np.prod(array.shape[:lead])))
    assert raw.tobytes() == array.tobytes()
    assert np.shares_memory(raw, array)
    every_second = raw_rows(array[::2], 1)
    assert every_second.tobytes() == array[::2].tobytes()


def test_raw_rows_keep_the_memory_of_their_array_alive():
    raw = raw_rows(np.full((4, 8), 7, ">i8"), 1)
    others = [np.full((4, 8), -1, ">i8") for _ in range(100)]  # they would take freed memory
    assert raw.tobytes() == np.full((4, 8), 7, ">i8").tobytes()
    assert len(others) == 100


@pytest.mark.parametrize("dtype", DTYPES)
def test_typed_is_a_view_of_bytes_from_an_offset_on_and_of_none_if_empty(dtype: object):
    dtype = np.dtype(dtype)
    memory = (np.arange(64 + 6 * dtype.itemsize) % 251).astype(np.uint8)
    found = typed(memory, 64, (3, 2), dtype)
    assert found.dtype == dtype
    assert found.tobytes() == memory[64:].tobytes()
    assert np.shares_memory(found, memory)
    strided = typed(memory, 64, (3,), dtype, (2 * dtype.itemsize,))
    assert strided.tobytes() == found[:, 0].tobytes()
    assert typed(memory[:0], 64, (0, 2), dtype).shape == (0, 2)


@given(
    shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3),
    data=st.data(),
)
def test_rows_are_contiguous_when_numpy_says_so_of_each(
    shape: tuple[int, ...], data: st.DataObject
):
    axes = data.draw(st.permutations(range(len(shape))))
    steps = data.draw(st.tuples(*(st.sampled_from([1, 1, 2, -1]) for _ in shape)))
    array = np.zeros(shape, np.int16).transpose(axes)[tuple(slice(None, None, s) for s in steps)]
    # An axis of size 1 has no next element, so its stride says nothing.
    assert rows_are_contiguous(array) == all(row.flags.c_contiguous for row in np.asarray(array))


@pytest.mark.parametrize("dtype", DTYPES)
@given(st.data())
def test_a_box_is_copied_to_where_it_is_wanted_and_nowhere_else(dtype: object, data: st.DataObject):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    whole = counted(shape, dtype)
    places = tuple(
        slice(*sorted((data.draw(st.integers(0, size)), data.draw(st.integers(0, size)))))
        for size in shape
    )
    source = whole[places]
    order = data.draw(st.permutations(range(len(shape))))
    room = np.zeros([size + 2 for size in source.shape], dtype).transpose(order)
    target = room.transpose(np.argsort(order))[tuple(slice(1, -1) for _ in shape)]
    copy_box(source, target)
    assert target.tobytes() == source.tobytes()
    target[...] = np.zeros((), dtype)
    assert not np.any(raw_rows(np.ascontiguousarray(room), 0))
