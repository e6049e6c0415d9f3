"""Bytes are counted leaf by leaf, and batches pass as they are."""

import numpy as np
import pytest

from penstock.core.nest import flatten
from penstock.feeds.on_device.traffic import Traffic, counting

X, N = np.zeros((4, 3), "float32"), np.arange(4, dtype="int64")
NESTS = {
    "leaf": (X, 48),
    "tuple": ((X, N), 80),
    "tuple of one": ((N,), 32),
    "dict": ({"x": X, "n": N}, 80),
    "nest": (({"x": X, "n": N}, (N, X)), 160),
}


@pytest.mark.parametrize("kind", NESTS)
def test_the_bytes_of_all_leaves_are_counted_and_the_batch_is_the_same(kind):
    batch, nbytes = NESTS[kind]
    traffic = Traffic()
    count = counting(traffic, flatten(batch)[1])
    for times in (1, 2, 3):
        assert count(batch) is batch
        assert traffic.to_device_nbytes == times * nbytes
    assert traffic.index_nbytes == 0


def test_several_may_count_into_one():
    traffic = Traffic(to_device_nbytes=5)
    counting(traffic, flatten(X)[1])(X)
    counting(traffic, flatten((X, N))[1])((X, N))
    assert traffic == Traffic(to_device_nbytes=5 + 48 + 80, index_nbytes=0)


def test_only_the_bytes_of_a_view_are_counted():
    traffic = Traffic()
    counting(traffic, flatten(X)[1])(X[:2, :1])
    assert traffic.to_device_nbytes == 2 * 4


def test_an_epoch_counts_for_itself_and_the_largest_is_known():
    traffic = Traffic()
    count = counting(traffic, flatten(X)[1])
    for batches in (3, 2):
        traffic.begin_epoch()
        for _ in range(batches):
            count(X)
        assert traffic.epoch_nbytes == batches * 48
    assert (traffic.to_device_nbytes, traffic.most_nbytes) == (5 * 48, 3 * 48)
