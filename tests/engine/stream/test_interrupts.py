"""Ctrl-C at any moment: it reaches the loop, nothing hangs, nothing is left, and the next epoch is whole."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import penstock as ps
from penstock.engine.functions import remote
from penstock.memory import process_ledger

# An alarm strikes the main thread between any two lines, as Ctrl-C does, but thousands of times.
STRIKES = """
import collections, faulthandler, random, signal, sys, threading, time
import numpy as np
import penstock as ps
from penstock.core import idle
from penstock.memory import process_ledger

count = collections.Counter()
# An exception that strikes in a destructor or a callback is lost by Python itself, with what that was to do.
sys.unraisablehook = lambda args: count.update(["lost"])
is_armed = False

def strike(*args):
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

def left():
    return {t.name for t in threading.enumerate() if t.name.startswith("penstock")}

signal.signal(signal.SIGALRM, strike)
rows = ps.from_arrays(np.arange(2000))
chains = {
    "rows": rows.shuffle(seed=1).batch(2),
    "threads": ps.from_arrays(np.arange(500_000)).shuffle(seed=1).batch(1000),
    "filter": rows.filter(lambda x: True).with_options(threads=2, processes=0),
    "map": rows.map(lambda x: x + 0).with_options(threads=2, processes=0),
    "generator": ps.from_generator(lambda: map(np.int64, range(2000)), ps.ArraySpec((), "int64")).batch(8),
    "mix": ps.mix([rows.filter(lambda x: True), rows.skip(9)], weights=[1, 1], seed=1, stop="all").batch(3),
    "processes": rows.map(lambda x: x + 0).batch(100).with_options(processes=2),
}
lost, stays, granted = 0, set(), 0
ds, seconds = chains[sys.argv[1]], float(sys.argv[2])
epochs = []  # The seconds of the first epoch, which starts processes, and of the next.
for _ in range(2):
    started = time.perf_counter()
    total = sum(int(np.sum(x)) for x in ds)
    epochs.append(time.perf_counter() - started)
are_waiting = True
end = time.perf_counter() + seconds
while time.perf_counter() < end or count["struck"] < 3:
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        is_armed = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, epochs[are_waiting]))
        got = sum(int(np.sum(x)) for x in ds)
        is_armed = False
        assert got == total, (got, total)
        count["whole"] += 1
    except KeyboardInterrupt:
        count["struck"] += 1
    is_armed = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    # Processes that wait are struck in the next epoch, which they run, or end here.
    are_waiting = random.random() < 0.7
    if not are_waiting:
        idle.close_all()
    patience = time.perf_counter() + 10
    while (not are_waiting and left() > stays) or process_ledger.granted > granted:
        if time.perf_counter() > patience:
            assert count["lost"] > lost, (left() - stays, process_ledger.granted)
            stays, granted = left(), process_ledger.granted
        time.sleep(1e-3)
    lost = count["lost"]
faulthandler.cancel_dump_traceback_later()
assert sum(int(np.sum(x)) for x in ds) == total
print(count["struck"])
"""


def strike(chain: str, seconds: float) -> int:
    """Strike epoch after epoch of a chain for so long; return how often that was."""
    command = [sys.executable, "-c", textwrap.dedent(STRIKES), chain, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 120)
    assert done.returncode == 0, done.stderr[-4000:]
    return int(done.stdout)


CHAINS = ["rows", "threads", "filter", "map", "generator", "mix", "processes"]


@pytest.mark.parametrize("chain", CHAINS)
def test_ctrl_c_at_any_moment_ends_the_epoch_and_leaves_nothing(chain: str):
    assert strike(chain, seconds=2) >= 3  # However long that takes on a busy machine.


@pytest.mark.soak
@pytest.mark.parametrize("chain", CHAINS)
def test_ctrl_c_at_thousands_of_moments(chain: str):
    assert strike(chain, seconds=60) >= 50


def test_ctrl_c_before_processes_start_gives_their_memory_back(monkeypatch: pytest.MonkeyPatch):
    def struck(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    ds = ps.from_arrays(np.arange(100)).map(lambda x: x + 0).with_options(processes=2)
    before = process_ledger.granted
    monkeypatch.setattr(remote.RemoteMap, "__init__", struck)
    with pytest.raises(KeyboardInterrupt):
        ds.stream()
    assert process_ledger.granted == before
