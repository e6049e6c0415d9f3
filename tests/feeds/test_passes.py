"""A pass reads what the stream reads, and knows the state after any of its batches."""

import numpy as np
import pytest
from tests.feeds.batches import dataset, expected, same

from penstock.core.fingerprint import fingerprint
from penstock.core.state import State
from penstock.feeds.passes import Pass


def begin(ds, epoch=0):
    return State(fingerprint(ds.node), epoch)


def kept(batch):
    return {name: np.array(leaf) for name, leaf in batch.items()}


def is_even(row):
    return row["n"] % 2 == 0


def read_forward():
    """Batches of 8 rows, of which there are 250: their number is unknown until they were read."""
    return dataset(1).unbatch().filter(is_even).batch(8)


@pytest.mark.parametrize("kind", ["random access", "read forward"])
def test_a_pass_is_one_epoch_and_tells_of_its_last_batch_before_handing_it_out(kind):
    ds = dataset(32) if kind == "random access" else read_forward()
    one = Pass(ds, kept, begin(ds, 2))
    counts, found = [], []
    one.on_last = counts.append
    wanted = expected(ds, 2)
    for batch in one:
        found.append(batch)
        is_last = len(found) == len(wanted)
        assert one.is_ended == is_last
        assert counts == ([len(wanted)] if is_last else [])
    assert same(found, wanted)
    assert one.is_closed


def test_a_continued_pass_goes_on_with_the_next_epochs():
    ds = dataset(100)
    one = Pass(ds, kept, begin(ds), is_continued=True)
    batches = iter(one)
    for epoch in range(3):
        assert same([next(batches) for _ in range(5)], expected(ds, epoch))
        assert one.epoch == epoch
    assert not one.is_ended
    assert one.num_batches is None
    one.close()
    assert one.is_closed


def test_the_state_after_any_number_of_batches_is_that_of_the_stream():
    ds = dataset(100)
    states = []
    for epoch in range(2):
        with ds.stream(epoch=epoch) as stream:
            states += [stream.state() for _ in stream]
    assert len(states) == 10
    single, continued = Pass(ds, None, begin(ds)), Pass(ds, None, begin(ds), is_continued=True)
    for count, state in enumerate(states, start=1):
        assert continued.state_after(count).to_dict() == state
        # A pass of one epoch ends with it, however many batches are asked for.
        assert single.state_after(count).to_dict() == states[min(count, 5) - 1]
    assert single.state_after(0) == begin(ds)
    middle = Pass(ds, None, State.from_dict(states[2]), is_continued=True)
    assert middle.num_batches is None
    assert middle.state_after(4).to_dict() == states[6]
    for each in (single, continued, middle):
        each.close()


def test_without_random_access_states_are_noted_until_they_are_forgotten():
    ds = read_forward()
    wanted = expected(ds, 0)
    one = Pass(ds, kept, begin(ds), is_recorded=True)
    assert one.num_batches is None
    assert same(one, wanted)
    for count in (1, 7, len(wanted) - 1):
        with ds.stream(state=one.state_after(count).to_dict()) as stream:
            assert same([kept(batch) for batch in stream], wanted[count:])
    one.forget(7)
    assert one.state_after(7).element == 7
    with pytest.raises(LookupError, match="the state after 6 batches was not noted"):
        one.state_after(6)


@pytest.mark.parametrize("batch_size", [32, 100])
def test_blocks_are_the_batches_of_an_epoch_one_after_the_other(batch_size):
    ds = dataset(batch_size)
    long = list(Pass(ds, kept, begin(ds, 1)).blocks())
    wanted = expected(ds, 1)
    for place, name in enumerate(("n", "x")):
        found = np.concatenate([each[name] for each in long])
        assert np.array_equal(found, np.concatenate([leaves[place] for leaves in wanted]))
