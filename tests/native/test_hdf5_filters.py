"""The filters of HDF5 that move or add up bytes do what NumPy does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import twins
from penstock import _native


@given(st.binary(max_size=700), st.integers(1, 20))
def test_bytes_are_put_together_as_numpy_does(content, width):
    packed = np.frombuffer(content, np.uint8)
    out = np.full(packed.size, 99, np.uint8)
    _native.unshuffle(packed, width, out)
    assert out.tobytes() == twins.unshuffle(packed, width).tobytes()


@pytest.mark.parametrize("width", [2, 3, 4, 8, 12, 5000])
def test_many_values_are_put_together_as_numpy_does(width):
    packed = np.random.default_rng(0).integers(0, 256, 100_001).astype(np.uint8)
    out = np.empty_like(packed)
    _native.unshuffle(packed, width, out)
    np.testing.assert_array_equal(out, twins.unshuffle(packed, width))


def test_memory_that_does_not_fit_is_refused():
    memory = np.zeros(10, np.uint8)
    with pytest.raises(ValueError, match="out must have the length of packed, 10, got 9"):
        _native.unshuffle(memory, 2, np.zeros(9, np.uint8))
    with pytest.raises(ValueError, match="must not share memory"):
        _native.unshuffle(memory[:6], 2, memory[4:])
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        _native.unshuffle(memory, 0, np.zeros(10, np.uint8))


@given(st.binary(max_size=300))
def test_sums_are_those_of_plain_python(content):
    data = np.frombuffer(content, np.uint8)
    assert _native.fletcher32(data) == twins.fletcher32(content)


@pytest.mark.parametrize("value", [0, 1, 255])
def test_sums_of_many_words_stay_exact(value):
    content = bytes([value]) * ((1 << 18) + 3)
    assert _native.fletcher32(np.frombuffer(content, np.uint8)) == twins.fletcher32(content)
