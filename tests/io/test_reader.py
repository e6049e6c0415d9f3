"""Near neighbours are joined into one read, and nothing is lost by it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.io.reader import Range, coalesce


@given(
    spans=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 300)), max_size=30),
    gap=st.integers(0, 500),
    limit=st.integers(1, 2000),
)
def test_groups_serve_every_range_once(spans, gap, limit):
    content = np.random.default_rng(0).integers(0, 256, 6000, dtype=np.uint8)
    ranges = [Range(offset, np.zeros(nbytes, np.uint8)) for offset, nbytes in spans]
    groups = coalesce(ranges, gap=gap, limit=limit)
    assert sum(len(group.parts) for group in groups) == sum(nbytes > 0 for _, nbytes in spans)
    for group in groups:
        # One range larger than the limit is a group of its own.
        assert group.stop - group.start <= limit or len(group.parts) == 1
        group.scatter(content[group.start : group.stop])
    for one in ranges:
        expected = content[one.offset : one.offset + one.buffer.size]
        np.testing.assert_array_equal(one.buffer, expected)


def test_far_neighbours_stay_apart():
    ranges = [Range(0, bytearray(10)), Range(111, bytearray(10))]
    assert len(coalesce(ranges, gap=100, limit=1000)) == 2
    assert len(coalesce(ranges, gap=101, limit=1000)) == 1
