"""The Dataset itself: what it does besides putting stages together."""

import numpy as np
import pytest
from tests.stages.conformance import NUM_ROWS, keep, numbered

import penstock as ps


def test_reduce_folds_the_rows_in_order():
    assert numbered().reduce([], lambda seen, row: [*seen, int(row[1])]) == list(range(NUM_ROWS))
    assert numbered().filter(keep).reduce(0, lambda count, row: count + 1) == NUM_ROWS
    assert ps.from_arrays(np.arange(0)).reduce("initial", lambda *_: 1) == "initial"
    with pytest.raises(ZeroDivisionError):
        numbered().reduce(0, lambda *_: 1 / 0)


def test_huge_numbers_of_rows_cost_nothing():
    ds = ps.from_arrays(np.broadcast_to(np.int8(1), (1 << 45,)))
    assert len(ds.shuffle().skip(1 << 44).shard(1 << 20, 3).batch(8)) == 1 << 21
    assert next(iter(ds.skip((1 << 45) - 3).batch(8))).tolist() == [1, 1, 1]
    assert len(ds.repeat(1 << 10)) == 1 << 55
    with pytest.raises(ValueError, match=r"more than 2\*\*62"):
        ds.repeat(1 << 20)
