"""A dataset for the tests of feeds, and the batches that it must give."""

import numpy as np

import penstock as ps
from penstock.core.nest import flatten

NUM_ROWS = 500


def arrays():
    rng = np.random.default_rng(0)
    return {"x": rng.random((NUM_ROWS, 7), np.float32), "n": np.arange(NUM_ROWS, dtype="int32")}


def dataset(batch_size=32):
    return ps.from_arrays(arrays()).shuffle(seed=0).batch(batch_size)


def expected(ds, epoch):
    with ds.stream(epoch=epoch) as stream:
        return [[np.array(leaf) for leaf in flatten(batch)[0]] for batch in stream]


def same(batches, wanted):
    found = [[np.asarray(leaf) for leaf in flatten(batch)[0]] for batch in batches]
    return len(found) == len(wanted) and all(
        np.array_equal(a, b) and a.dtype == b.dtype
        for mine, theirs in zip(found, wanted, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    )
