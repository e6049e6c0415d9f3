"""A forked child: its parent's streams say whose they are, its own work, and nothing of the parent's is touched."""

import fcntl
import gc
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core import forking
from penstock.memory import process_ledger

pytestmark = [
    pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings(
        "ignore:os.fork:RuntimeWarning"
    ),  # JAX, if an earlier test started it
]
SCALAR = ps.ArraySpec((), "int64")
NUM_FORKS = 2
CHILD_SECONDS = 30


def in_child(check: Callable[[], None]) -> None:
    """Run a check in a forked child, which must come to its end; what it raises is shown."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(CHILD_SECONDS)  # A child that hangs is killed.
        try:
            check()
        except BaseException:  # noqa: BLE001  # The parent must not go on here.
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def slow(x: Any) -> Any:
    return x + np.zeros(2000).sum().astype(np.int64)


def rows() -> ps.Dataset:
    return ps.from_arrays(np.arange(3000)).map(slow, spec=SCALAR)


def flow() -> ps.Dataset:
    return ps.from_arrays(np.arange(3000)).filter(lambda x: slow(x) >= 0)


def generated() -> Iterator[Any]:
    yield from map(np.int64, range(3000))


CHAINS: dict[str, Callable[[Path], ps.Dataset]] = {
    "map": lambda _: rows(),
    "filter": lambda _: flow(),
    "generator": lambda _: ps.from_generator(generated, SCALAR).map(slow, spec=SCALAR),
    "shuffle": lambda _: rows().shuffle(seed=0),
    "cache in memory": lambda _: rows().cache(),
    "flow in memory": lambda _: flow().cache(),
    "cache on disk": lambda path: rows().cache(path / "cache"),
    "flow on disk": lambda path: flow().cache(path / "cache"),
    "zip": lambda _: ps.zip(flow(), flow()),
}


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_child_forked_while_threads_are_busy_reads_for_itself(
    chain: Callable[[Path], ps.Dataset], tmp_path: Path
) -> None:
    opened: list[ps.Stream] = []
    is_over = threading.Event()
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for number in range(10_000):
                ds = chain(tmp_path / str(number)).batch(4).with_options(threads=2, processes=0)
                with ds.stream() as stream:
                    opened[:] = [stream]
                    for _ in stream:
                        if is_over.is_set():
                            return
        except BaseException as error:  # noqa: BLE001  # The test looks at it.
            errors.append(error)

    (tmp_path / "child").mkdir()
    ds = chain(tmp_path / "child").batch(4).with_options(threads=2, processes=0)

    def check() -> None:
        assert process_ledger.granted == 0
        for stream in opened:
            stream.state()
            stream.report()
            try:
                for _ in stream:  # One that came to its end just ends again.
                    raise AssertionError("a batch of the parent's")
            except ps.StreamClosedError as error:
                assert "belongs to the process that opened it" in str(error)  # noqa: PT017  # In a child.
            stream.close()
        with ds.stream() as own:
            assert len(np.asarray(next(own)).reshape(-1)) in (4, 8)
        opened.clear()
        gc.collect()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(NUM_FORKS):
            in_child(check)
    finally:
        is_over.set()
        reader.join(60)
    assert not errors


def test_what_the_child_closes_or_drops_is_left_as_it_was_in_the_parent(tmp_path: Path):
    ds = flow().cache(tmp_path / "cache").batch(4).with_options(threads=2, processes=0)
    stream = ds.stream()
    first = next(stream)
    streams = [stream]

    def check() -> None:
        streams.pop().close()
        gc.collect()

    granted = process_ledger.granted
    del stream
    in_child(check)
    assert process_ledger.granted == granted
    rest = [row for batch in streams[0] for row in batch.tolist()]
    assert [*first.tolist(), *rest] == list(range(3000))
    assert (tmp_path / "cache" / "manifest.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_closed", [False, True])
def test_worker_processes_and_their_rows_stay_the_parents(*, is_closed: bool):
    ds = rows().batch(4).with_options(processes=1, threads=2)
    streams = [ds.stream()]
    found = []

    def check() -> None:
        if is_closed:
            streams.pop().close()
        with ds.stream() as own:
            assert next(own).tolist() == [0, 1, 2, 3]

    for _ in range(3):
        found += [next(streams[0]) for _ in range(20)]
        in_child(check)
    found += list(streams[0])
    assert np.concatenate(found).tolist() == list(range(3000))


def exact(path: Path) -> ps.Dataset:
    np.save(path / "x.npy", np.arange(300_000).reshape(-1, 50))
    return ps.from_files(path / "x.npy").shuffle(seed=0, exact=True, window="1MB").batch(8)


@pytest.mark.slow
def test_scratch_files_of_an_exact_shuffle_are_the_parents(tmp_path: Path):
    ds = exact(tmp_path)
    expected = list(ds.stream(epoch=0))
    with ds.stream(epoch=0) as stream:
        found = [next(stream)]

        def check() -> None:
            with ds.stream(epoch=0) as own:
                assert (next(own) == expected[0]).all()

        in_child(check)
        found += list(stream)
    assert (np.concatenate(found) == np.concatenate(expected)).all()


@pytest.mark.slow
def test_processes_of_multiprocessing_that_are_forked_have_streams_of_their_own():
    ds = rows().shuffle(seed=1).batch(100).with_options(threads=2)
    with ds.stream(epoch=0) as stream, multiprocessing.get_context("fork").Pool(2) as pool:
        next(stream)
        sums = pool.map(_total, [ds] * 4)
    assert sums == [sum(range(3000))] * 4


def _total(ds: ps.Dataset) -> int:
    with ds.stream(epoch=0) as stream:
        return sum(int(batch.sum()) for batch in stream)


def test_a_child_does_not_keep_the_locks_of_its_parent(tmp_path: Path):
    folder = tmp_path / "cache"
    stream = flow().cache(folder).batch(4).with_options(threads=2, processes=0).stream()
    next(stream)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)  # It lives until the parent says so.
        os._exit(0)
    stream.close()
    if folder.exists():  # A small one may be whole, or gone.
        fd = os.open(folder, os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
    os.close(write)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0


def test_a_cache_in_memory_that_is_whole_is_read_by_both():
    calls: list[int] = []

    def count(x: Any) -> Any:
        calls.append(1)
        return x

    ds = ps.from_arrays(np.arange(100)).map(count, spec=SCALAR).cache().with_options(processes=0)
    assert [int(x) for x in ds] == list(range(100))
    calls.clear()

    def check() -> None:
        assert [int(x) for x in ds] == list(range(100))
        assert not calls

    in_child(check)


def test_locks_that_other_threads_hold_are_free_in_the_child():
    plain, reentrant = forking.lock(), forking.rlock()
    held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with plain, reentrant:
            held.set()
            may_go.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(60)

    def check() -> None:
        assert plain.acquire(timeout=5)
        assert reentrant.acquire(timeout=5)

    try:
        in_child(check)
        assert not plain.acquire(blocking=False)
    finally:
        may_go.set()
        holder.join()


def test_a_lock_of_the_thread_that_forks_is_still_its_own():
    mine = forking.rlock()

    def check() -> None:
        with mine:
            pass
        mine.release()  # Of the parent's `with`.

    with mine:
        in_child(check)
