"""Memory that frameworks take over without a copy, and copies of memory that they can't."""

import numpy as np
import pytest

from penstock.feeds.alignment import aligned, aligned_cast, is_aligned
from penstock.memory import ALIGNMENT, allocate_plain


def on_64_bytes(shape, dtype="float32"):
    count = int(np.prod(shape))
    memory = allocate_plain(count * np.dtype(dtype).itemsize)
    array = memory.view(dtype).reshape(shape)
    array[...] = np.arange(count).reshape(shape)
    return array


def test_memory_is_aligned_if_it_starts_on_64_bytes_and_has_no_gaps():
    array = on_64_bytes((32, 16))
    assert array.__array_interface__["data"][0] % ALIGNMENT == 0
    assert is_aligned(array)
    assert is_aligned(array[1:])  # a row has 64 bytes
    assert not is_aligned(array.reshape(-1)[1:])
    assert not is_aligned(array[:, :8])
    assert not is_aligned(array.T)


def test_aligned_memory_is_handed_over_as_it_is():
    array = on_64_bytes((8, 4))
    assert aligned(array) is array


def test_other_memory_is_copied_to_where_it_is_aligned():
    array = on_64_bytes((32, 16))
    for other in (array.reshape(-1)[1:], array[:, 3:7], array[::2], array.T):
        found = aligned(other)
        assert is_aligned(found)
        assert not np.shares_memory(found, array)
        assert found.dtype == other.dtype
        assert np.array_equal(found, other)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
def test_a_cast_is_always_a_copy_even_to_the_same_dtype(dtype):
    array = on_64_bytes((5, 3)) + np.float32(0.5)
    found = aligned_cast(array, dtype)
    assert is_aligned(found)
    assert not np.shares_memory(found, array)
    assert found.dtype == dtype
    assert np.array_equal(found, array.astype(dtype))


def test_arrays_of_no_rows_and_of_one_number_keep_their_shape():
    assert aligned_cast(np.empty((0, 3), "float64"), "float32").shape == (0, 3)
    number = aligned_cast(np.array(7), "float32")
    assert number.shape == ()
    assert number == 7
