"""Batches as JAX and PyTorch take them: the same rows, our memory, and never another's."""

import gc
import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from tests.feeds.batches import NUM_ROWS, arrays, dataset, expected, same

import penstock as ps
from penstock.core.nest import flatten
from penstock.reports.figures import DeviceTraffic

pytest.importorskip("jax")
pytest.importorskip("torch")


FEEDS = {
    "jax": lambda ds, **options: ds.to_jax(**options),
    "torch": lambda ds, **options: ds.to_torch(**options),
}


@pytest.fixture(params=FEEDS)
def make(request):
    return FEEDS[request.param]


@pytest.mark.parametrize("device_memory", [None, "1GB", 10])
def test_each_iteration_is_the_next_epoch_wherever_the_data_is(make, device_memory):
    ds = dataset()
    feed = make(ds, device_memory=device_memory)
    assert len(feed) == len(ds)
    for epoch in range(3):
        assert same(feed, expected(ds, epoch))


@pytest.mark.parametrize("device_memory", [None, "1GB"])
def test_a_feed_goes_on_from_every_state(make, device_memory):
    ds = dataset(100)
    for done in range(1, len(ds) + 1):
        feed = make(ds, device_memory=device_memory)
        batches = iter(feed)
        for _ in range(done):
            next(batches)
        state = json.loads(json.dumps(feed.state()))
        feed.close()
        batches.close()
        other = make(ds, device_memory=device_memory)
        other.resume(state)
        rest = expected(ds, 0)[done:] or expected(ds, 1)
        assert same(other, rest)
        with ds.stream(state=state) as stream:
            assert same(stream, rest)


def test_bytes_are_copied_once_if_resident_and_once_an_epoch_if_streamed(make):
    ds = dataset()
    data = sum(array.nbytes for array in arrays().values())
    resident, streamed = make(ds, device_memory="1GB"), make(ds, device_memory=data - 1)
    for epoch in (1, 2, 3):
        assert len(list(resident)) == len(list(streamed)) == len(ds)
        assert resident.traffic.to_device_nbytes == data
        assert resident.traffic.index_nbytes == epoch * NUM_ROWS * 4
        assert streamed.traffic.to_device_nbytes == epoch * data
        one, other = resident.report(), streamed.report()
        assert (one.epoch, one.num_rows, one.state) == (other.epoch, other.num_rows, other.state)
        assert (one.epoch, one.num_rows, one.state) == (epoch - 1, NUM_ROWS, "ended")
        assert one.device == DeviceTraffic(
            data if epoch == 1 else 0, data, data, epoch * NUM_ROWS * 4, is_resident=True
        )
        # Batches on the CPU are our memory: nothing is copied.
        assert other.device == DeviceTraffic(0, 0, data, is_shared=True)
    assert "resident on the device" in str(resident.explain())
    assert "kept in memory and streamed to the device: its 16 KB against 16 KB" in str(
        streamed.explain()
    )
    mapped = make(ds.map(lambda row: row), device_memory="1GB")
    assert "streamed to the device: map(<lambda>) calls a function" in str(mapped.explain())


def address(leaf):
    return leaf.data_ptr() if hasattr(leaf, "data_ptr") else leaf.unsafe_buffer_pointer()


def test_batches_on_the_cpu_are_the_memory_of_the_stream(make, monkeypatch):
    handed = []
    from penstock.engine.stream import Stream

    following = Stream.__next__

    def noted(self):
        batch = following(self)
        handed.append([leaf.__array_interface__["data"][0] for leaf in flatten(batch)[0]])
        return batch

    monkeypatch.setattr(Stream, "__next__", noted)
    found = [[address(leaf) for leaf in flatten(batch)[0]] for batch in make(dataset())]
    assert found == handed
    assert all(place % 64 == 0 for places in handed for place in places)


def test_the_smallest_budget_never_changes_a_batch_that_is_in_use(make):
    ds = dataset(16)
    small = ds.with_options(memory=ds.explain().need_nbytes)
    feed = make(small)
    for epoch in range(8):
        wanted = expected(ds, epoch)
        total = 0.0
        for batch, (numbers, values) in zip(feed, wanted, strict=True):
            total += float(batch["x"].sum())
            assert np.array_equal(np.asarray(batch["n"]), numbers)
            assert np.array_equal(np.asarray(batch["x"]), values)
        assert np.isclose(total, sum(values.sum() for _, values in wanted), rtol=1e-4)


@pytest.mark.filterwarnings("ignore:.*still referred to:penstock.PenstockWarning")
def test_all_batches_can_be_kept(make):
    ds = dataset(16)
    feed = make(ds.with_options(memory=ds.explain().need_nbytes))
    kept = [list(feed) for _ in range(3)]
    assert all(same(batches, expected(ds, epoch)) for epoch, batches in enumerate(kept))


def test_text_and_single_rows_are_refused_with_the_cure(make):
    name = "to_jax" if make is FEEDS["jax"] else "to_torch"
    with pytest.raises(ValueError, match=rf"right: ds\.batch\(32\)\.{name}\(\)"):
        make(ps.from_arrays(np.arange(3)))
    with pytest.raises(TypeError, match=r"field .value. is .* numbers only"):
        make(ps.from_arrays(["a", "b"]).batch(2))


def test_a_feed_that_was_given_a_state_stands_there(make):
    ds = dataset()
    with ds.stream(epoch=3) as stream:
        next(stream)
        next(stream)
        state = stream.state()
    feed = make(ds)
    feed.resume(state)
    assert feed.state() == state
    assert "epoch 3, after batch 2 of 16" in repr(feed)
    assert same(feed, expected(ds, 3)[2:])
    assert same(feed, expected(ds, 4))


@pytest.mark.parametrize("device_memory", [None, "1GB"])
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_feed_that_was_read_before_stands_where_it_is_told_to(make, kind, device_memory):
    ds = dataset() if kind == "rows" else dataset().filter(lambda row: True)
    feed = make(ds, device_memory=device_memory)
    list(feed)
    with ds.stream(epoch=3) as stream:
        next(stream)
        state = stream.state()
    feed.resume(state)
    assert feed.state() == state
    batches = iter(feed)
    assert feed.state() == state  # Nothing is read before the first batch is asked for.
    next(batches)
    assert (feed.state()["epoch"], feed.state()["element"]) == (3, 2)
    batches.close()


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_iterators_left_half_way_end_their_threads_at_once(make, kind):
    ds = dataset(1) if kind == "rows" else dataset(1).filter(lambda row: True)
    feed = make(ds)
    gc.collect()
    gc.disable()
    try:
        for _ in feed:
            break
        assert not our_threads()
        first, second = iter(feed), iter(feed)
        next(first)
        next(second)
        feed.close()
        assert not our_threads()
    finally:
        gc.enable()


def test_an_error_in_the_loop_ends_the_stream_and_its_threads(make):
    batches = iter(make(dataset(1)))
    next(batches)
    with pytest.raises(KeyError, match="mine"):
        batches.throw(KeyError("mine"))
    assert not our_threads()


LEFT_OPEN = """
import numpy as np
import penstock as ps

ds = ps.from_arrays(np.arange(10_000, dtype="float32")).map(lambda x: x + 1).with_options(processes=0).batch(4)
batches = iter(ds.to_{framework}())
next(batches)
"""


@pytest.mark.slow
@pytest.mark.parametrize("framework", FEEDS)
def test_an_iteration_that_is_open_when_the_interpreter_ends_ends_without_a_word(framework):
    """In a notebook or at a prompt, where it is left half way."""
    script = LEFT_OPEN.replace("{framework}", framework)
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0
    assert "Exception ignored" not in ended.stderr


def our_threads():
    return [t.name for t in threading.enumerate() if t.name.lower().startswith("penstock")]


def test_a_feed_tells_what_it_is_how_long_and_where_it_stands(make):
    name = "JaxFeed" if make is FEEDS["jax"] else "TorchFeed"
    feed = make(dataset())
    assert len(feed) == 16
    assert repr(feed) == f"<{name} of batch(32): epoch 0, after batch 0 of 16>"
    batches = iter(feed)
    next(batches)
    assert repr(feed) == f"<{name} of batch(32): epoch 0, after batch 1 of 16>"
    list(batches)
    assert repr(feed) == f"<{name} of batch(32): epoch 1, after batch 0 of 16>"


def test_a_feed_without_a_length_says_so_and_is_a_feed_all_the_same(make):
    feed = make(dataset().filter(lambda row: True))
    assert feed
    with pytest.raises(TypeError, match="number of batches is unknown"):
        len(feed)
    assert "epoch 0, after batch 0>" in repr(feed)


def test_a_state_of_another_dataset_is_refused_when_it_is_given(make):
    with dataset(64).stream() as stream:
        state = stream.state()
    with pytest.raises(ps.StateError, match="another pipeline"):
        make(dataset(32)).resume(state)
    with pytest.raises(ps.StateError, match=r"must be a dict made by state\(\)"):
        make(dataset(32)).resume({"epoch": 3})


def test_a_batch_after_another_iteration_began_is_of_that_iteration(make):
    feed = make(dataset())
    first = iter(feed)
    next(first)
    second = iter(feed)
    next(second)
    assert feed.state()["epoch"] == 1
    first.close()
    second.close()
