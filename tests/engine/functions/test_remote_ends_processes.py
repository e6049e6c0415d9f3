"""What ends worker processes that could run the next epoch: nothing of them is ever left behind."""

import gc
import os
import signal
import threading

import numpy as np
import pytest
from tests.conftest import our_processes, our_threads
from tests.core.test_forking import in_child
from tests.engine.functions.waiting import (
    NUMBER,
    is_gone,
    pids,
    rows,
    script,
)
from tests.workers.conftest import PATIENCE_SECONDS, wait_until_gone

import penstock as ps
from penstock.core import idle
from penstock.workers import service

pytestmark = [
    pytest.mark.slow,  # Every test starts interpreters.
    pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"),
]
IDLE_SECONDS = service.IDLE_SECONDS


def fail_at_30(x):
    if x == 30:
        raise KeyError("no such thing")
    return os.getpid()


def test_an_error_in_the_function_ends_the_processes():
    ds = rows(fail_at_30)
    with ds.stream() as stream:
        pid = int(next(stream))
        with pytest.raises(ps.FunctionError, match="row 30: KeyError"):
            list(stream)
    assert is_gone(pid)
    with pytest.raises(ps.FunctionError, match="row 30: KeyError"):
        list(ds)


def test_rows_that_are_skipped_do_not_end_the_processes():
    ds = rows(fail_at_30).with_options(on_error="skip")
    (pid,) = pids(ds)
    assert pids(ds) == {pid}


def die_once_at_30(marker):
    def die_once(x):
        if x == 30 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return os.getpid()

    return die_once


def test_a_killed_worker_ends_the_others_after_the_epoch(tmp_path):
    ds, before = rows(die_once_at_30(tmp_path / "died"), retries=1), our_processes()
    found = pids(ds)
    assert all(is_gone(pid) for pid in found)
    assert our_processes() == before
    assert pids(ds).isdisjoint(found)


def test_a_worker_that_is_killed_while_it_waits_is_replaced_in_the_next_epoch():
    ds = rows()
    (pid,) = pids(ds)
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid)
    assert pid not in pids(ds)


def test_a_function_that_keeps_its_rows_ends_with_its_epoch():
    kept = []

    def keep(x):
        kept.append(x)
        return os.getpid()

    ds = ps.from_arrays(np.arange(20)[:, None]).map(keep, spec=NUMBER).with_options(processes=1)
    (pid,) = pids(ds)
    assert is_gone(pid)


def test_ctrl_c_in_the_loop_ends_the_processes():
    ds = rows()
    stream = ds.stream()
    pid = int(next(stream))
    with pytest.raises(KeyboardInterrupt), stream:
        raise KeyboardInterrupt
    assert is_gone(pid)


@pytest.mark.parametrize("threads", [0, 2])
def test_ctrl_c_while_it_waits_for_a_batch_ends_the_processes(threads, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def tell(x):
        if x == 3:
            gate.write_text(str(os.getpid()))
            gate.read_text()  # For ever: nobody writes.
        return x

    found, is_over = [], threading.Event()

    def strike():
        found.append(int(gate.read_text()))
        # One that strikes just before the main thread begins to wait for a lock does not wake it: it strikes again.
        while not is_over.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            is_over.wait(PATIENCE_SECONDS)

    striker = threading.Thread(target=strike)
    striker.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in rows(tell, threads=threads):
            pass
    is_over.set()
    striker.join()
    assert is_gone(found[0])


def test_ten_seconds_of_idleness_end_the_processes(monkeypatch):
    assert IDLE_SECONDS == 10
    monkeypatch.setattr(service, "IDLE_SECONDS", 0.05)
    ds, before = rows(), our_threads()
    (pid,) = pids(ds)
    wait_until_gone(pid)
    for thread in our_threads() - before:
        thread.join(PATIENCE_SECONDS)
    assert our_threads() == before
    assert pid not in pids(ds)


def test_close_ends_the_processes_and_the_dataset_can_be_read_again():
    ds = rows()
    (pid,) = pids(ds)
    ds.close()
    assert is_gone(pid)
    assert pid not in pids(ds)
    ds.batch(2).close()  # Which has the same function.
    assert idle.take(ds.node) is None


def test_close_leaves_an_open_stream_alone():
    ds = rows()
    with ds.stream() as stream:
        pid = int(next(stream))
        ds.close()
        assert pids(stream) == {pid}


@pytest.mark.parametrize("framework", ["torch", "jax", "tf"])
def test_close_of_a_feed_ends_the_processes(framework):
    pytest.importorskip({"tf": "tensorflow"}.get(framework, framework))
    ds = ps.from_arrays(np.arange(40)).map(pid_of_32, spec=ps.ArraySpec((), "int32"))
    feed = getattr(ds.batch(8).with_options(processes=1), f"to_{framework}")()
    (pid,) = pids(np.asarray(batch) for batch in feed)
    assert pids(np.asarray(batch) for batch in feed) == {pid}
    feed.close()
    assert is_gone(pid)


def pid_of_32(x):
    return np.int32(os.getpid())


def test_they_end_with_the_last_dataset_that_they_belong_to():
    ds = rows()
    (pid,) = pids(ds)
    batched = ds.batch(4)
    del ds
    gc.collect()
    assert pids(batched) == {pid}
    del batched
    gc.collect()
    wait_until_gone(pid)


def test_a_dataset_that_is_collected_during_its_epoch_ends_its_processes_after_it():
    stream = rows().stream()
    (pid,) = pids(stream)
    del stream
    gc.collect()
    wait_until_gone(pid)


@pytest.mark.parametrize(
    "ending",
    ["pass", "sys.exit(0)", "os._exit(0)", "os.kill(os.getpid(), 9)", "1 / 0", "os.fork()"],
)
def test_they_end_with_the_interpreter(ending):
    done = script(f"""
        ds = ps.from_arrays(np.arange(40)).map(lambda x: os.getpid()).with_options(processes=2)
        print(*{{int(pid) for epoch in range(2) for pid in ds}}, flush=True)
        {ending}
    """)
    found = [int(pid) for pid in done.stdout.split()]
    assert found, done.stderr
    for pid in found:
        wait_until_gone(pid)
    if ending in ("pass", "sys.exit(0)", "os.fork()"):
        assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_has_no_part_in_them():
    ds = rows()
    (pid,) = pids(ds)

    def check():
        assert idle.take(ds.node) is None
        own = pids(ds)
        assert own != {pid}
        assert pids(ds) == own
        ds.close()
        assert all(is_gone(one) for one in own)
        assert not is_gone(pid)

    in_child(check)
    assert pids(ds) == {pid}


def test_a_forked_child_that_lives_on_does_not_keep_them_alive():
    ds = rows()
    (pid,) = pids(ds)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)  # It lives until the parent says so.
        os._exit(0)
    try:
        ds.close()
        assert is_gone(pid)
    finally:
        os.close(write)
        os.close(read)
        os.waitpid(child, 0)


def test_a_stream_that_fails_to_open_ends_what_it_took():
    ds = rows().filter(lambda x: True)
    ds = ds.with_options(processes=1)
    list(ds)
    before = our_processes()
    lock = threading.Lock()
    held = ds.map(lambda x: x + lock.locked(), spec=NUMBER).with_options(processes=1)
    with pytest.raises(ps.CannotPickle, match="lock"):
        held.stream()
    assert our_processes() <= before
    assert len(list(ds)) == 40
