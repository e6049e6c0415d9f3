"""state_past: where a feed stands after batches that nobody trains on; `skip` of feeds that are iterated over."""

import numpy as np
import pytest
from tests.feeds.batches import dataset, expected, same

import penstock as ps
from penstock.core.fingerprint import fingerprint
from penstock.core.state import State
from penstock.feeds.skipping import state_past

FEEDS = {
    "jax": lambda ds, **options: ds.to_jax(**options),
    "torch": lambda ds, **options: ds.to_torch(**options),
}
KINDS = {
    "rows": dataset,
    "flow": lambda: dataset().filter(lambda row: True),
    "resident": dataset,
}


@pytest.fixture(params=["jax", "torch"])
def make(request):
    pytest.importorskip(request.param)
    return FEEDS[request.param]


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


def feed_of(make, kind):
    ds = KINDS[kind]()
    return ds, make(ds, device_memory="1GB" if kind == "resident" else None)


def all_states(ds, epochs):
    """The state after each batch of some epochs, as a stream tells it."""
    states = []
    for epoch in range(epochs):
        with ds.stream(epoch=epoch) as stream:
            states.append(stream.state())
            for _ in stream:
                states.append(stream.state())
        states.pop()  # The end of an epoch is the start of the next.
    return states


@pytest.mark.parametrize("name", ["rows", "flow"])
def test_the_state_past_so_many_batches_is_that_of_a_stream_that_read_them(name):
    ds = KINDS[name]()
    states = all_states(ds, 3)
    for begin in (0, 1, 15, 16, 20):
        for count in (0, 1, 5, 15, 16, 17, 25):
            found = state_past(ds, State.from_dict(states[begin]), count)
            assert found == State.from_dict(states[begin + count]), (begin, count)


def test_with_random_access_it_costs_nothing_to_skip_most_of_a_trillion_rows():
    ds = ps.from_arrays(np.broadcast_to(np.float32(0), (1 << 40, 2))).shuffle(seed=0).batch(32)
    there = state_past(ds, State(fingerprint(ds.node), 0), 10_000_000_000)
    assert (there.epoch, there.element) == (0, 10_000_000_000)


@pytest.mark.parametrize("count", [0, 1, 3, 11, 12, 13, 28, 29])
def test_an_iteration_goes_on_past_what_is_skipped(make, kind, count):
    ds, feed = feed_of(make, kind)
    wanted = [batch for epoch in range(3) for batch in expected(ds, epoch)]
    states = all_states(ds, 3)
    found, there = [], 4 + count
    for number, batch in enumerate(feed):
        found.append(batch)
        if number == 3:
            feed.skip(count)
            assert feed.state() == states[there]
    # The iteration under way ends with its epoch; the next one begins where the feed stands then.
    assert same(found, wanted[:4] + wanted[there:16])
    begins = max(16, there)
    assert feed.state() == states[begins]
    assert same(feed, wanted[begins : begins - begins % 16 + 16])


def test_every_state_after_a_skip_can_be_gone_on_from(make, kind):
    ds, feed = feed_of(make, kind)
    wanted = expected(ds, 0)
    feed.skip(2)
    states = [feed.state()]
    for number, _ in enumerate(feed):
        if number == 4:
            feed.skip(3)
        states.append(feed.state())
    ends = [2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16]
    for state, end in zip(states, ends, strict=True):
        again = make(ds)
        again.resume(state)
        assert same(again, wanted[end:] or expected(ds, 1)), end


def test_a_loop_that_was_left_goes_on_past_the_bad_stretch(make, kind):
    ds, feed = feed_of(make, kind)
    for number, _ in enumerate(feed):
        if number == 4:
            break
    feed.skip(6)
    assert same(feed, expected(ds, 0)[11:])
    assert same(feed, expected(ds, 1))


def test_counts_that_are_none_are_refused(make):
    feed = make(dataset())
    for wrong in (1.5, "2", None):
        with pytest.raises(TypeError, match="count must be a whole number"):
            feed.skip(wrong)
    with pytest.raises(ValueError, match="count must be at least 0, got -1"):
        feed.skip(-1)
    assert feed.state()["element"] == 0


def test_a_feed_without_batches_has_none_to_skip(make):
    feed = make(dataset().filter(lambda row: False))
    with pytest.raises(ValueError, match="there are no batches to skip"):
        feed.skip(1)
