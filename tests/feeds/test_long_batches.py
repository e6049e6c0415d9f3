"""Batches joined to a long one are what concatenation makes of them."""

import numpy as np
import pytest

import penstock as ps
from penstock.feeds.long_batches import can_join, join

NUM_ROWS = 300


def rows(width=16):
    x = np.random.default_rng(0).random((NUM_ROWS, width), np.float32)
    return ps.from_arrays((x, np.arange(NUM_ROWS)))


def joined(ds):
    with ds.stream() as stream:
        parts = [[np.array(leaf) for leaf in join(*each)] for each in stream.blocks()]
    return [np.concatenate(leaves) for leaves in zip(*parts, strict=True)]


def concatenated(ds):
    with ds.stream() as stream:
        batches = [tuple(map(np.array, batch)) for batch in stream]
    return [np.concatenate(leaves) for leaves in zip(*batches, strict=True)]


# 5 floats a row: batches of 7 are not a multiple of 64 bytes, so that there is a gap between them.
@pytest.mark.parametrize("width", [16, 5])
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("batch_size", [7, 32, 299, 300])
def test_joined_batches_are_the_batches_one_after_the_other(width, batch_size, drop_remainder):
    ds = rows(width).shuffle(seed=0).batch(batch_size, drop_remainder=drop_remainder)
    assert can_join(ds.node)
    found, expected = joined(ds), concatenated(ds)
    assert [leaf.dtype for leaf in found] == [leaf.dtype for leaf in expected]
    assert all(map(np.array_equal, found, expected))


def test_batches_without_a_gap_are_joined_without_a_copy():
    with rows(16).batch(32).stream() as stream:
        block, size = next(stream.blocks())
        for leaf, column in zip(join(block, size), block.columns, strict=True):
            assert np.shares_memory(leaf, column.grouped)


def test_only_the_first_batches_of_a_block_are_joined():
    with rows().batch(32).stream() as stream:
        block, size = next(stream.blocks())
        assert size > 2
        x, n = join(block, 2)
        assert x.shape == (64, 16)
        assert n.tolist() == list(range(64))


def test_what_can_not_be_cut_up_again_by_its_size_is_not_joined():
    assert not can_join(rows().filter(lambda x, n: True).batch(32).node)
    assert not can_join(ps.from_arrays(["a", "bc", "d"]).batch(2).node)
    # A short batch may be anywhere among those that are shuffled; without one it does not matter.
    assert not can_join(rows().batch(32).shuffle(seed=0).node)
    assert can_join(rows().batch(32, drop_remainder=True).shuffle(seed=0).node)
