"""Packing by first fit: as plain Python does it, and nothing that it could not do is begun."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.native import twins

from penstock import _native


def first_fit(lengths, capacity, most_bins, fills, **changes):
    lengths, fills = np.array(lengths, np.int64), np.array(fills, np.int64)
    arrays = {
        "bins": np.empty(len(lengths), np.int64),
        "offsets": np.empty(len(lengths), np.int64),
        "closed": np.empty(2 * len(lengths), np.int64),
        "came": np.empty(2 * len(lengths), np.int64),
    }
    arrays |= changes
    count, num_bins = _native.first_fit(lengths, capacity, most_bins, fills, **arrays)
    placed = list(zip(arrays["bins"].tolist(), arrays["offsets"].tolist(), strict=True))
    closed = list(zip(arrays["closed"].tolist(), arrays["came"].tolist(), strict=True))[:count]
    return placed, closed, num_bins


@given(st.integers(1, 20), st.integers(1, 6), st.data())
def test_it_packs_as_plain_python_does(capacity, most_bins, data):
    lengths = data.draw(st.lists(st.integers(1, capacity), max_size=40))
    fills = data.draw(st.lists(st.integers(0, capacity - 1), max_size=most_bins))
    expected = twins.first_fit(lengths, capacity, most_bins, fills)
    assert first_fit(lengths, capacity, most_bins, fills) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 9], 8, 2, []), r"lengths\[1\] must be from 1 to 8, got 9"),
        (([0], 8, 2, []), r"lengths\[0\] must be from 1 to 8, got 0"),
        (([1], 0, 2, []), "capacity must be at least 1, got 0"),
        (([1], 8, 0, []), "most_bins must be at least 1, got 0"),
        (([1], 8, 1, [1, 2]), "at most 1 bins, got 2"),
        (([1], 8, 1, [8]), r"fills\[0\] must be from 0 to 7, got 8"),
        (([1], 8, 1, [-1]), r"fills\[0\] must be from 0 to 7, got -1"),
    ],
)
def test_what_can_not_be_packed_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        first_fit(*arguments)


def test_arrays_of_other_lengths_or_in_the_same_memory_are_refused():
    with pytest.raises(ValueError, match="bins must have the length of lengths, 1, got 2"):
        first_fit([1], 8, 1, [], bins=np.empty(2, np.int64))
    with pytest.raises(ValueError, match="closed must have the length of lengths, twice, 2, got 1"):
        first_fit([1], 8, 1, [], closed=np.empty(1, np.int64))
    memory = np.empty(2, np.int64)
    with pytest.raises(ValueError, match="came must share no memory with closed"):
        first_fit([1], 8, 1, [], closed=memory, came=memory)
    with pytest.raises(ValueError, match="bins must hold int64"):
        first_fit([1], 8, 1, [], bins=np.empty(1, np.int32))
