"""Rows traced to where they come from are the rows that the stream gives."""

import re

import numpy as np
import pytest

import penstock as ps
from penstock.feeds.on_device.origin import Origin, origin_of

NUM_ROWS = 50


def rows():
    """Each row is its own number."""
    return ps.from_arrays(np.arange(NUM_ROWS))


CHAINS = {
    "batch": lambda: rows().batch(8),
    "shuffle": lambda: rows().shuffle(seed=1).batch(8),
    "whole": lambda: rows().shuffle(seed=1).batch(8, drop_remainder=True),
    "batches": lambda: rows().shuffle(seed=1).batch(8).shuffle(seed=2).skip(1),
    "passes": lambda: rows().shuffle(seed=1).repeat(2).batch(8).repeat(3),
    "part": lambda: rows().skip(3).shard(3, 1).shuffle(seed=1).batch(4),
    "window": lambda: rows().shuffle(seed=1, window="200B").take(30).batch(8),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_the_rows_of_batches_are_those_of_the_stream_in_every_epoch(kind):
    ds = CHAINS[kind]()
    origin = origin_of(ds.node)
    assert isinstance(origin, Origin)
    # What the rows that stay are called where they are counted from, in the order they have there.
    names = np.unique(np.concatenate(list(ds.stream()))) if kind == "part" else None
    for epoch in range(3):
        with ds.stream(epoch=epoch) as stream:
            wanted = [batch.tolist() for batch in stream]
        numbers, lengths = origin.batches(0, len(wanted), epoch)
        found = numbers if names is None else names[numbers]
        assert lengths.tolist() == [len(batch) for batch in wanted]
        assert found.tolist() == [row for batch in wanted for row in batch]


def test_batches_can_be_traced_from_anywhere_in_an_epoch():
    origin = origin_of(rows().shuffle(seed=1).batch(8).node)
    whole, _ = origin.batches(0, 7, 2)
    part, lengths = origin.batches(3, 7, 2)
    assert lengths.tolist() == [8, 8, 8, 2]
    assert part.tolist() == whole[3 * 8 :].tolist()
    assert origin.batches(3, 3, 2)[0].tolist() == []


def test_the_fewest_rows_that_are_the_same_in_every_epoch_stay():
    assert origin_of(rows().shuffle().batch(8).node).rows.num_rows == NUM_ROWS
    assert origin_of(rows().shard(5, 0).shuffle().batch(8).node).rows.num_rows == 10
    assert origin_of(rows().take(7).repeat().batch(8).node).rows.num_rows == 7
    # Other rows are taken in each epoch, so all of them stay.
    assert origin_of(rows().shuffle().take(7).batch(8).node).rows.num_rows == NUM_ROWS


REASONS = {
    r"^filter\(.*\).* gives rows that can only be read forward$": lambda: rows().filter(bool),
    r"^map\(.*\) calls a function, which may give something else each time$": lambda: (
        rows().map(np.negative).batch(8)
    ),
    r"^padded_batch\(.*\) does more than pick, order and batch rows$": lambda: rows().padded_batch(
        8
    ),
    r"^only rows of numbers, all of one shape, can be gathered there$": lambda: ps.from_arrays(
        ["a", "b"]
    ).batch(2),
}


@pytest.mark.parametrize("message", REASONS)
def test_what_can_not_be_gathered_by_row_number_says_why(message):
    found = origin_of(REASONS[message]().node)
    assert isinstance(found, str)
    assert re.search(message, found), found
