"""A stream that one thread closes while another is in `next()`: that one is told, and nothing hangs."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import StreamClosedError
from penstock.memory import process_ledger

SCALAR = ps.ArraySpec((), "int64")
CHAINS = {
    "map": lambda ds, f: ds.map(f, spec=SCALAR).batch(4),
    "filter": lambda ds, f: ds.filter(lambda x: f(x) >= 0).batch(4),
    "map behind a filter": lambda ds, f: ds.filter(lambda x: True).map(f, spec=SCALAR).batch(4),
    "shuffle behind a filter": lambda ds, f: (
        ds.filter(lambda x: f(x) >= 0).shuffle(seed=0, window="1KB").batch(4)
    ),
    "shuffle behind a map": lambda ds, f: ds.map(f, spec=SCALAR).shuffle(seed=0).batch(4),
    "zip": lambda ds, f: ps.zip(ds, ds.filter(lambda x: f(x) >= 0)).batch(4),
}


class Gate:
    """A function of a row that waits, from some row on, until it may go on."""

    def __init__(self) -> None:
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, x: Any) -> Any:
        if x >= 40:
            self.is_reached.set()
            assert self.may_go_on.wait(60)
        return x


class Consumer(threading.Thread):
    """A thread that reads a stream to its end."""

    def __init__(self, stream: ps.Stream) -> None:
        super().__init__()
        self.stream: ps.Stream | None = stream
        self.num_batches = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        assert self.stream is not None
        try:
            for _ in self.stream:
                self.num_batches += 1
        except BaseException as error:  # noqa: BLE001  # Whatever it is, the test looks at it.
            self.error = error.with_traceback(None)
        self.stream = None


def all_end(*some: threading.Thread) -> None:
    for thread in some:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_who_waits_is_told_that_it_was_closed(
    chain: Callable[..., ps.Dataset], num_threads: int
) -> None:
    granted = process_ledger.granted
    gate = Gate()
    ds = chain(ps.from_arrays(np.arange(4000)), gate).with_options(threads=num_threads, processes=0)
    stream = ds.stream()
    consumer = Consumer(stream)
    assert gate.is_reached.wait(60)
    closer = threading.Thread(target=stream.close)
    closer.start()
    closer.join(0.2)  # It may wait for the function, which goes on now.
    gate.may_go_on.set()
    all_end(closer, consumer)
    assert isinstance(consumer.error, StreamClosedError)
    assert consumer.num_batches < 1000
    with pytest.raises(StreamClosedError):
        next(stream)
    gc.collect()
    assert process_ledger.granted == granted


def test_a_next_in_the_middle_of_a_users_function_frees_the_buffers_itself():
    granted = process_ledger.granted
    gate = Gate()
    ds = ps.from_arrays(np.arange(400)).filter(lambda x: gate(x) >= 0).with_options(threads=0)
    stream = ds.stream()
    consumer = Consumer(stream)
    assert gate.is_reached.wait(60)
    with pytest.warns(ps.PenstockWarning, match=r"filter\(<lambda>\), .* has not returned"):
        stream.close()  # Returns, although the function goes on.
    assert not gate.may_go_on.is_set()
    assert process_ledger.granted > granted
    gate.may_go_on.set()
    all_end(consumer)
    assert isinstance(consumer.error, StreamClosedError)
    assert process_ledger.granted == granted


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_stream_that_is_closed_in_the_middle_of_its_own_next_ends_on_its_way_out(
    chain: Callable[..., ps.Dataset],
) -> None:
    opened: list[ps.Stream] = []

    def closing(x: Any) -> Any:
        if x == 40:
            opened[0].close()
        return x

    granted = process_ledger.granted
    ds = chain(ps.from_arrays(np.arange(400)), closing).with_options(threads=0)
    opened.append(ds.stream())
    with pytest.raises(StreamClosedError):
        for _ in opened[0]:
            pass
    assert process_ledger.granted == granted


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_closing_at_any_moment_ends_well(chain: Callable[..., ps.Dataset]) -> None:
    ds = chain(ps.from_arrays(np.arange(2000)), lambda x: x).with_options(threads=2, processes=0)
    for pause in np.random.default_rng(0).uniform(0, 0.02, 15):
        stream = ds.stream()
        consumer = Consumer(stream)
        consumer.join(pause)
        stream.close()
        all_end(consumer)
        is_whole = consumer.num_batches == 500
        assert is_whole if consumer.error is None else isinstance(consumer.error, StreamClosedError)
