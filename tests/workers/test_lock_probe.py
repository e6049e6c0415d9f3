"""Telling functions that hold the interpreter lock from those that do not."""

import hashlib
import os
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import pytest

from penstock.workers import holds_lock

BLOCK = os.urandom(1 << 20)


def count_up(limit):
    total = 0
    for i in range(limit):
        total += i
    return total


def small_arrays(x):
    for _ in range(20):
        x = x * 0.5 + 1.0
    return x


HOLDING = {
    "python": lambda: count_up(2000),
    "slow python": lambda: count_up(400_000),
    "fast python": lambda: count_up(5),
    "small arrays": lambda: small_arrays(np.ones(10)),
    "regular objects": lambda: sorted(str(i) for i in range(200)),
}
FREE = {
    "hash": lambda: hashlib.sha256(BLOCK).digest(),
    "compression": lambda: zlib.compress(BLOCK[:100_000], 1),
    "large arrays": lambda: np.sort(np.random.default_rng(0).random(200_000)),
    "waiting": lambda: time.sleep(0.001),
}


# Timed: a machine that is busy in the wrong moment changes the answer, so it is no test for every run.
@pytest.mark.soak
@pytest.mark.parametrize("name", HOLDING)
def test_python_code_holds_the_lock(name):
    measured = holds_lock(HOLDING[name])
    assert measured.holds, measured
    assert measured.reason.startswith("holds the interpreter lock: two threads make ")


# Timed: a machine that is busy in the wrong moment changes the answer, so it is no test for every run.
@pytest.mark.soak
@pytest.mark.parametrize("name", FREE)
def test_native_code_on_large_data_and_waiting_let_go_of_it(name):
    measured = holds_lock(FREE[name])
    assert not measured.holds, measured
    assert measured.reason.startswith("lets go of the interpreter lock: two threads make ")


@pytest.fixture
def busy_machine():
    """Twice as many busy processes as there are cores."""
    count = 2 * (os.cpu_count() or 1)
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    yield
    for other in others:
        other.kill()
        other.wait()


# Timed, as those above: among four busy processes the rival may get no core to ask for the lock on.
@pytest.mark.soak
@pytest.mark.parametrize("name", ["python", "hash", "waiting", "large arrays"])
def test_a_busy_machine_does_not_pass_for_a_held_lock(busy_machine, name):
    measured = holds_lock({**HOLDING, **FREE}[name])
    assert measured.holds == (name in HOLDING), measured


def test_inputs_are_passed_on():
    seen = []
    holds_lock(lambda *inputs: seen.append(inputs), 1, "two")
    assert set(seen) == {(1, "two")}


def test_a_slow_function_is_called_four_or_five_times():
    calls = []

    def slow():
        calls.append(threading.get_ident())
        time.sleep(0.1)

    measured = holds_lock(slow)
    assert measured.num_calls == len(calls)
    assert len(calls) in (4, 5)
    assert not measured.holds
    assert measured.seconds_per_call >= 0.1


def test_what_the_function_raises_is_raised_and_no_thread_is_left():
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        holds_lock(lambda: 1 / 0)
    assert threading.active_count() == before


def test_what_the_function_raises_beside_another_thread_is_raised_here():
    main = threading.get_ident()

    def fail_elsewhere():
        if threading.get_ident() != main:
            raise ValueError("not here")

    with pytest.raises(ValueError, match="not here"):
        holds_lock(fail_elsewhere)
