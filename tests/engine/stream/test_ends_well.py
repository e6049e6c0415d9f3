"""However a stream ends, no thread of it survives, and nothing hangs."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.memory import process_ledger

CHAINS = {
    "rows": lambda ds: ds.batch(4),
    # The first of them are made by the consumer: these are more.
    "rows by threads": lambda ds: ps.from_arrays(np.zeros((4000, 100))).batch(4),
    "mapped rows": lambda ds: ds.map(lambda x: x + 1).batch(4),
    "flow": lambda ds: ds.filter(lambda x: True).batch(4),
    "deep flow": lambda ds: (
        ds.filter(lambda x: True).map(lambda x: x).shuffle(window="1KB").batch(4).repeat()
    ),
    "cached flow": lambda ds: ds.filter(lambda x: True).cache().shuffle().batch(4),
    "zip of flows": lambda ds: ps.zip(ds.filter(lambda x: True), ds.filter(lambda x: True)).batch(
        4
    ),
}


def threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name.startswith("penstock")}


@pytest.fixture(params=CHAINS)
def ds(request: pytest.FixtureRequest) -> Any:
    made = CHAINS[request.param](ps.from_arrays(np.arange(4000))).with_options(threads=2)
    before, granted = threads(), process_ledger.granted
    yield made
    gc.collect()
    for thread in threads() - before:
        thread.join(5)
    assert threads() == before
    for _ in range(500):
        # An abandoned stream is closed by a thread of no name, which may still wait for the ledger.
        if process_ledger.granted - granted < 1 << 20:
            break
        threading.Event().wait(0.01)
    assert process_ledger.granted - granted < 1 << 20  # But for what a cache keeps.


def test_a_break_ends_the_threads(ds: ps.Dataset):
    for _ in ds:
        break


def test_an_exception_in_the_loop_ends_the_threads(ds: ps.Dataset):
    def loop() -> None:
        for _ in ds:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()


def test_an_iterator_that_is_dropped_ends_its_threads(ds: ps.Dataset):
    iterator = iter(ds)
    next(iterator)
    del iterator


def test_an_iterator_that_was_never_asked_ends_its_threads(ds: ps.Dataset):
    iter(ds)


def test_a_stream_in_a_cycle_is_collected_and_ends_its_threads(ds: ps.Dataset):
    class Trainer:
        pass

    trainer = Trainer()
    trainer.me, trainer.stream = trainer, ds.stream()
    next(trainer.stream)
    gone = weakref.ref(trainer.stream)
    del trainer
    gc.collect()
    assert gone() is None


def test_a_with_block_ends_the_threads(ds: ps.Dataset):
    with ds.stream() as stream:
        next(stream)
    with pytest.raises(ps.StreamClosedError, match=r"open another one with ds.stream\(\)"):
        next(stream)


def test_closing_twice_is_closing_once_and_reading_on_is_an_error(ds: ps.Dataset):
    stream = ds.stream()
    next(stream)
    stream.close()
    stream.close()
    for _ in range(2):
        with pytest.raises(ps.StreamClosedError, match="the stream is closed"):
            next(stream)
    stream.state()
    stream.report()


def test_a_stream_in_a_collected_cycle_is_closed_whichever_thread_collects_it(ds: ps.Dataset):
    stream = ds.stream()
    next(stream)
    cycle: list[Any] = [stream]
    cycle.append(cycle)
    del stream, cycle
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join(20)
    assert not collector.is_alive()


def test_a_stream_that_is_collected_under_the_lock_of_the_ledger_does_not_hang(ds: ps.Dataset):
    stream = ds.stream()
    next(stream)
    with process_ledger.lock:  # As when the collector runs inside an allocation.
        del stream


def test_a_stream_that_its_own_thread_collects_does_not_hang():
    """The collector may run in a worker: here it does so inside the user's function."""
    streams: list[Any] = []
    opened, collected, go_on = threading.Event(), threading.Event(), threading.Event()

    def drop(x: Any) -> bool:
        if x == 3:
            opened.wait(20)
            streams.clear()
            collected.set()
            go_on.wait(20)
        return True

    streams.append(
        ps.from_arrays(np.arange(4000)).filter(drop).batch(4).with_options(threads=1).stream()
    )
    opened.set()
    assert collected.wait(20)
    go_on.set()


def test_a_finished_stream_says_so_again_and_again():
    stream = ps.from_arrays(np.arange(3)).stream()
    assert len(list(stream)) == 3
    assert next(stream, "end") == "end"
    stream.close()
    assert next(stream, "end") == "end"


def test_a_chain_whose_start_fails_leaves_no_thread():
    def fails(x: Any) -> bool:
        raise ValueError("at once")

    before = threads()
    cached = ps.from_arrays(np.arange(10)).filter(fails).cache()
    for _ in range(3):
        with pytest.raises(ps.FunctionError, match="at once"):
            cached.with_options(threads=3).stream()
    assert threads() == before
    assert process_ledger.granted == 0


def test_no_process_is_forked():
    forked = []
    os.register_at_fork(before=lambda: forked.append(1))
    assert (
        len(list(ps.from_arrays(np.arange(1000)).shuffle().filter(lambda x: True).batch(9))) == 112
    )
    assert not forked


def script(
    code: str, *, interrupt_after: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a script; send it SIGINT when it prints a line."""
    head = "import sys, time, threading\nimport numpy as np, penstock as ps\n"
    command = [sys.executable, "-c", head + textwrap.dedent(code)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        lines = ""
        if interrupt_after:
            for line in child.stdout:
                lines += line
                if line.strip() == interrupt_after:
                    child.send_signal(signal.SIGINT)
                    break
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
    return subprocess.CompletedProcess(command, child.returncode, lines + out, err)


# A function or a read that takes longer than a second is not waited for: its thread ends when it returns.
LEFT = """
        ours = [t for t in threading.enumerate() if t.name.startswith("penstock")]
        for t in ours: t.join(20)
        print("left", sum(t.is_alive() for t in ours))
"""


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("stage", ["map(f, spec=ps.ArraySpec((), 'int64'))", "filter(f)"])
def test_ctrl_c_while_user_code_runs_reaches_the_loop(stage: str, num_threads: int):
    done = script(
        f"""
        def f(x):
            if x == 50:
                print("slow", flush=True)
                for _ in range(20):
                    time.sleep(0.1)
            return x > -1 if "filter" in {stage!r} else x
        ds = ps.from_arrays(np.arange(100)).{stage}.with_options(threads={num_threads}, processes=0)
        try:
            for _ in ds: pass
        except KeyboardInterrupt:
            print("interrupted")
        {LEFT}
        """,
        interrupt_after="slow",
    )
    assert done.stdout.splitlines()[-2:] == ["interrupted", "left 0"], (done.stdout, done.stderr)
    assert done.returncode == 0


def test_ctrl_c_while_waiting_for_data_reaches_the_loop():
    done = script(
        f"""
        class Slow:
            shape, dtype = (10, 2), np.dtype("f4")
            def __getitem__(self, key):
                if key.stop:
                    print("slow", flush=True)
                    time.sleep(2)
                return np.zeros((key.stop - key.start, 2), "f4")
        try:
            for _ in ps.from_arrays(Slow()).batch(2): pass
        except KeyboardInterrupt:
            print("interrupted")
        {LEFT}
        """,
        interrupt_after="slow",
    )
    assert done.stdout.splitlines()[-2:] == ["interrupted", "left 0"], (done.stdout, done.stderr)


def test_ctrl_c_in_the_loop_itself_ends_the_threads():
    done = script(
        f"""
        ds = ps.from_arrays(np.arange(100_000)).filter(lambda x: True).batch(2)
        try:
            for _ in ds:
                print("slow", flush=True)
                time.sleep(30)
        except KeyboardInterrupt:
            print("interrupted")
        {LEFT}
        """,
        interrupt_after="slow",
    )
    assert done.stdout.splitlines()[-2:] == ["interrupted", "left 0"], (done.stdout, done.stderr)


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "stream.close()", "del stream"])
@pytest.mark.parametrize("chain", ["batch(4)", "filter(lambda x: True).batch(4)"])
def test_the_interpreter_ends_with_an_open_stream(chain: str, ending: str):
    done = script(
        f"""
        stream = ps.from_arrays(np.arange(100_000)).{chain}.stream()
        next(stream)
        print("read")
        {ending}
        """,
        timeout=30,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")


def test_an_error_that_nobody_catches_ends_the_interpreter():
    done = script(
        """
        for _ in ps.from_arrays(np.arange(100_000)).filter(lambda x: x < 9 or 1 // 0).batch(4):
            pass
        """,
        timeout=30,
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "FunctionError: filter(<lambda>)" in done.stderr
