"""Ctrl-C interrupts waits, though a library has set a handler that lets them go on."""

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.ctrl_c import Interrupts

SECONDS = 30  # Whoever is not interrupted by then goes on, and the test fails.


@pytest.fixture(autouse=True)
def handler_that_lets_waits_go_on() -> Iterator[None]:
    signal.siginterrupt(signal.SIGINT, False)
    yield
    signal.siginterrupt(signal.SIGINT, True)


class Gate:
    """A function that lets nobody pass, and strikes once somebody waits."""

    def __init__(self) -> None:
        self.is_reached, self.is_open = threading.Event(), threading.Event()
        threading.Thread(target=self._strike).start()

    def _strike(self) -> None:
        self.is_reached.wait(SECONDS)
        threading.Event().wait(
            0.2
        )  # By now the main thread waits, too; if not, it is struck all the same.
        for _ in range(3):  # One that strikes just before a wait begins does not end it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            if self.is_open.wait(SECONDS):
                return
        self.is_open.set()

    def __call__(self, x: Any) -> Any:
        self.is_reached.set()
        self.is_open.wait()
        return x


def generated(gate: Gate) -> Iterator[Any]:
    for row in range(100):
        yield gate(np.int64(row))


CHAINS = {
    "map": lambda gate: ps.from_arrays(np.arange(5000)).map(gate, spec=ps.ArraySpec((), "int64")),
    "flow": lambda gate: ps.from_arrays(np.arange(5000)).filter(lambda x: gate(x) >= 0),
    "generator": lambda gate: ps.from_generator(
        lambda: generated(gate), ps.ArraySpec((), "int64")
    ).batch(4),
    "cache": lambda gate: ps.from_arrays(np.arange(500)).filter(lambda x: gate(x) >= 0).cache(),
}


@pytest.mark.filterwarnings(
    "ignore:the stream was closed, but"
)  # Its function is still at the gate.
@pytest.mark.parametrize("chain", CHAINS)
def test_a_wait_for_a_batch_is_interrupted(chain: str):
    gate = Gate()
    ds = CHAINS[chain](gate).with_options(threads=2, processes=0)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(ds)
        assert not gate.is_open.is_set(), "it was not interrupted: it came to its end"
    finally:
        gate.is_open.set()


@pytest.mark.slow
@pytest.mark.parametrize("order", ["polars, penstock", "penstock, polars"])
def test_a_script_with_polars_ends_by_ctrl_c(order: str):
    script = f"""
        import {order}, os, signal, sys, threading, time
        import numpy as np

        def strike():
            time.sleep(1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep({SECONDS})
            os._exit(3)

        def wait(x):
            if x == 3:
                threading.Thread(target=strike, daemon=True).start()
                time.sleep(1e6)
            return x

        ds = penstock.from_arrays(np.arange(5000)).map(wait, spec=penstock.ArraySpec((), "int64"))
        try:
            list(ds.with_options(threads=2, processes=0))
        except KeyboardInterrupt:
            os._exit(7)
    """
    code = textwrap.dedent(script)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240
    )
    assert result.returncode == 7, result.stderr


def test_a_strike_that_is_lost_is_raised_by_the_next_check():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        interrupts.check()
        with contextlib.suppress(KeyboardInterrupt):  # As a callback of the garbage collector does.
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_and_processes_that_ignore_it_are_left_as_they_are():
    found = []

    def enter():
        with Interrupts() as interrupts:
            found.append(signal.getsignal(signal.SIGINT))
            interrupts.check()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        enter()
    finally:
        signal.signal(signal.SIGINT, before)
    assert found == [before, signal.SIG_IGN]
