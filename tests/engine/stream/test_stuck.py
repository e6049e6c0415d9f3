"""Functions, generators and reads that never return: closing does not wait for them, names them, and frees memory."""

import functools
import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.engine.stream import engine
from penstock.engine.stream.stuck import stuck_at
from penstock.engine.stream.threads import Threads
from penstock.memory import process_ledger
from penstock.memory.pool import Lease

SCALAR = ps.ArraySpec((), "int64")
TEXT = ps.ArraySpec((), "str")


class Dam:
    """Lets 5 rows through, and then blocks the thread of a stream until the test is over."""

    def __init__(self) -> None:
        self.is_reached, self.is_over = threading.Event(), threading.Event()
        self.num_closed = 0

    def block(self, x: Any) -> Any:
        if x >= 5 and threading.current_thread().name.startswith("penstock"):
            self.is_reached.set()
            assert self.is_over.wait(60)
        return x

    def rows(self) -> Iterator[Any]:
        try:
            for number in range(100_000):
                yield np.int64(self.block(number))
        finally:
            self.num_closed += 1

    def texts(self) -> Iterator[str]:
        for number in self.rows():
            yield str(number)

    def __getitem__(self, key: Any) -> Any:
        """Be an array on storage."""
        self.block(key.stop - 1)
        return np.arange(key.start, key.stop)

    shape, dtype = (4000,), np.dtype("int64")


@pytest.fixture
def dam() -> Iterator[Dam]:
    made = Dam()
    before = {one for one in threading.enumerate() if one.name.startswith("penstock")}
    yield made
    made.is_over.set()
    for one in threading.enumerate():
        if one.name.startswith("penstock") and one not in before:
            one.join(20)
            assert not one.is_alive()


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "GRACE_SECONDS", 0.2)


def generated(dam: Dam) -> ps.Dataset:
    return ps.from_generator(dam.rows, SCALAR)


def arrays() -> ps.Dataset:
    return ps.from_arrays(np.arange(4000))


GENERATORS: dict[str, Callable[[Dam, Path], ps.Dataset]] = {
    "alone": lambda dam, _: generated(dam),
    "text": lambda dam, _: ps.from_generator(dam.texts, TEXT).batch(4),
    "many rows an item": lambda dam, _: ps.from_generator(
        lambda: (np.array([row]) for row in dam.rows()), SCALAR, rows_per_item="many"
    ),
    "batch": lambda dam, _: generated(dam).batch(4),
    "map": lambda dam, _: generated(dam).map(lambda x: x, spec=SCALAR),
    "filter": lambda dam, _: generated(dam).filter(lambda x: True),
    "shuffle": lambda dam, _: generated(dam).shuffle(seed=0).batch(4),
    "zip": lambda dam, _: ps.zip(generated(dam), arrays()).batch(4),
    "mix": lambda dam, _: ps.mix([generated(dam), arrays()], weights=[1, 1], seed=0, stop="all"),
    "concatenate": lambda dam, _: ps.concatenate(generated(dam), arrays()),
    "repeat": lambda dam, _: generated(dam).repeat(2).batch(4),
    "cache on disk": lambda dam, path: generated(dam).cache(path / "cache").batch(4),
}
FUNCTIONS: dict[str, tuple[str, Callable[[Dam, Path], ps.Dataset]]] = {
    "map": ("map(block)", lambda dam, _: arrays().map(dam.block, spec=SCALAR).batch(4)),
    "filter": ("filter(block)", lambda dam, _: arrays().filter(dam.block)),
    "map behind a filter": (
        "map(block)",
        lambda dam, _: arrays().filter(lambda x: True).map(dam.block, spec=SCALAR),
    ),
    "shuffle": (
        "map(block)",
        lambda dam, _: arrays().map(dam.block, spec=SCALAR).shuffle(seed=0).batch(4),
    ),
    "cache in memory": (
        "map(block)",
        lambda dam, _: arrays().map(dam.block, spec=SCALAR).cache().batch(4),
    ),
    "cache on disk": (
        "map(block)",
        lambda dam, path: arrays().map(dam.block, spec=SCALAR).cache(path / "cache").batch(4),
    ),
    "an array on storage": ("from_arrays", lambda dam, _: ps.from_arrays(dam).batch(4)),
}


def num_leases() -> int:
    gc.collect()
    # By type: isinstance asks each object for its class, and some answer with a warning.
    return sum(type(one) is Lease for one in gc.get_objects())


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("chain", GENERATORS.values(), ids=GENERATORS)
def test_a_generator_that_blocks_is_left_behind_with_no_buffer(
    chain: Callable[[Dam, Path], ps.Dataset], dam: Dam, tmp_path: Path
) -> None:
    leases = (
        num_leases()
    )  # First: it collects what tests before this one left, which may have been granted bytes.
    granted = process_ledger.granted
    stream = chain(dam, tmp_path).with_options(threads=2, processes=0).stream()
    assert dam.is_reached.wait(60)
    with pytest.warns(ps.PenstockWarning, match=r"from_generator\(.*test_stuck.py:\d+.* has not"):
        stream.close()
    assert not dam.is_over.is_set()
    assert process_ledger.granted == granted
    until = time.monotonic() + 20
    while num_leases() > leases and time.monotonic() < until:
        threading.Event().wait(0.01)  # On a busy machine other threads may take longer to end, too.
    assert num_leases() == leases
    assert dam.num_closed == 0
    dam.is_over.set()
    for one in threading.enumerate():
        if one.name.startswith("penstock-pump"):
            one.join(20)
    assert dam.num_closed == 1  # The generator, by its own thread.


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize(("stage", "chain"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_or_a_read_that_blocks_is_named_and_not_waited_for(
    stage: str, chain: Callable[[Dam, Path], ps.Dataset], dam: Dam, tmp_path: Path
) -> None:
    ds = chain(dam, tmp_path).with_options(threads=2, processes=0)
    stream = ds.stream()
    told: list[Any] = []

    def read() -> None:
        with pytest.raises(ps.StreamClosedError):
            for _ in stream:
                pass
        told.append(True)

    reader = threading.Thread(target=read)
    reader.start()
    assert dam.is_reached.wait(20)
    with pytest.warns(ps.PenstockWarning, match=r"the stream was closed, but .* has not") as found:  # noqa: PT031  # The reader may warn.
        stream.close()
        reader.join(20)
    assert told == [True]  # Although the function has not returned.
    assert not dam.is_over.is_set()
    assert stage in str(found[0].message)
    assert "test_stuck.py" in str(found[0].message)
    dam.is_over.set()
    with ds.stream() as again:  # What was left behind holds up nobody.
        next(again)


def test_close_takes_a_second_and_no_longer(dam: Dam) -> None:
    stream = generated(dam).batch(4).with_options(threads=2).stream()
    assert dam.is_reached.wait(60)
    started = time.perf_counter()
    with pytest.warns(ps.PenstockWarning, match="within 1 s"):
        stream.close()
    assert time.perf_counter() - started < 30
    stream.close()  # No second wait, and no second warning.


@pytest.mark.usefixtures("short_grace")
def test_a_stream_that_is_dropped_does_not_wait_either(dam: Dam) -> None:
    stream = generated(dam).batch(4).with_options(threads=2).stream()
    assert dam.is_reached.wait(60)
    with pytest.warns(ps.PenstockWarning, match="from_generator"):  # noqa: PT031  # Either may close it.
        del stream
        gc.collect()


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_generator_in_an_endless_repeat_has_one_thread_at_a_time(num_threads: int) -> None:
    ds = ps.from_generator(lambda: iter(range(3)), SCALAR).take(2).repeat()
    with ds.with_options(threads=num_threads).stream() as stream:
        for _ in range(2000):
            next(stream)
        names = [one.name for one in threading.enumerate() if one.name.startswith("penstock")]
    assert len(names) < 50


@pytest.mark.usefixtures("short_grace")
def test_a_function_that_is_not_written_in_python_is_left_behind_as_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_PATIENCE", 500)
    lock = threading.Lock()
    lock.acquire()
    seconds = ps.from_arrays(np.full(4000, 90))
    ds = seconds.map(functools.partial(lock.acquire, True), spec=ps.ArraySpec((), "bool"))
    stream = ds.with_options(threads=1, processes=0).stream()

    def read() -> None:
        with pytest.raises(ps.StreamClosedError):
            next(stream)

    reader = threading.Thread(target=read)
    reader.start()
    while not any(stuck_at(one.ident).is_in_function for one in threading.enumerate()):
        time.sleep(0.01)
    with pytest.warns(ps.PenstockWarning, match=r"map\(acquire\)"):  # noqa: PT031  # The reader may warn.
        stream.close()
        reader.join(20)
    assert not lock.acquire(blocking=False)  # It was not waited for.
    lock.release()


@pytest.mark.usefixtures("short_grace")
def test_a_thread_that_is_slow_in_code_of_ours_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a busy machine, where a healthy thread may take seconds to come to its end."""
    monkeypatch.setattr(engine, "_PATIENCE", 500)
    names = {"__name__": "penstock.slow", "work": Threads._work, "sleep": time.sleep}
    exec("def slowly(self):\n    work(self)\n    sleep(0.6)", names)
    monkeypatch.setattr(Threads, "_work", names["slowly"])
    before = process_ledger.granted
    with (
        arrays()
        .map(lambda x: x, spec=SCALAR)
        .with_options(threads=2, processes=0)
        .stream() as stream
    ):
        next(stream)
    assert process_ledger.granted == before  # And a warning would be an error.


def test_a_thread_at_no_stage_is_named_by_its_line() -> None:
    found = stuck_at(threading.get_ident())
    assert found.stage == "a thread"
    assert not found.is_in_function
    assert stuck_at(0).line == "at its end"
