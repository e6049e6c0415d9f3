"""A pool between two uses: it waits without memory, goes on with the same function only, and ends by itself."""

import os
import re
import signal
import threading
from pathlib import Path

import pytest
from tests.workers.conftest import PATIENCE_SECONDS

from penstock.workers import PoolClosed, WorkerDied, pickle_function, service


def pid_of(inputs, outputs, meta):
    return os.getpid()


def die_if_told(inputs, outputs, meta):
    return os._exit(3) if meta else os.getpid()


PICKLE = pickle_function(pid_of)


@pytest.fixture(autouse=True)
def _a_busy_machine_may_take_its_time(monkeypatch):
    monkeypatch.setattr(service, "IDLE_SECONDS", 600)


def eventually(is_so):
    """Whether something comes true that another process is about to do."""
    for _ in range(PATIENCE_SECONDS * 100):
        if is_so():
            return True
        threading.Event().wait(0.01)
    return False


SHARED = re.compile("[:/]penstock (arena|function|message|crash report)")


def shared(pid):
    """Return the shared memory of ours that a process maps, or has open."""
    found = [
        line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if SHARED.search(line)
    ]
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # the descriptor of this very listing
        # The crash report is a file of no bytes, for as long as there is no crash.
        if SHARED.search(target) and "crash report" not in target:
            found.append(target)
    return found


def test_the_same_workers_go_on_after_a_rest(make_pool, wait):
    pool = make_pool(pid_of, num_workers=2)
    wait(pool.ready)
    pids = pool.pids()
    for _ in range(3):
        assert wait(pool.submit(0)).value in pids
        assert pool.rest()
        assert pool.resume(2, PICKLE)
        assert pool.pids() == pids
    assert pool.num_restarts == 0


def test_at_rest_no_process_has_shared_memory_of_it(make_pool, lease, wait):
    def fill(inputs, outputs, meta):
        outputs[0][:] = meta

    before = shared("self")
    pool = make_pool(fill)
    x = lease(pool, ("f8", (100_000,)))[0]
    wait(pool.submit(0, outputs=[x], meta=5))
    assert x[7] == 5
    (pid,) = pool.pids()
    assert shared(pid)
    assert pool.rest()
    del x
    assert eventually(lambda: not shared(pid))
    assert eventually(lambda: shared("self") == before)
    assert pool.resume(1, pickle_function(fill))
    x = lease(pool, ("f8", (100,)))[0]
    wait(pool.submit(0, outputs=[x], meta=6))
    assert x[7] == 6


def test_a_pool_at_rest_takes_no_tasks(make_pool):
    pool = make_pool(pid_of)
    assert pool.rest()
    with pytest.raises(PoolClosed, match="takes no more tasks"):
        pool.submit(0)


def test_it_does_not_rest_while_a_task_is_under_way(make_pool, wait, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def hold(inputs, outputs, meta):
        return Path(meta).read_text()

    pool = make_pool(hold)
    under_way = pool.submit(0, meta=str(gate))
    assert not pool.rest()
    gate.write_text("done")
    assert wait(under_way).value == "done"
    assert pool.rest()


def test_it_does_not_rest_after_a_worker_died(make_pool, wait):
    pool = make_pool(die_if_told)
    pid = wait(pool.submit(0)).value
    with pytest.raises(WorkerDied, match="code 3"):
        wait(pool.submit(0, meta=True))
    assert wait(pool.submit(0)).value != pid
    assert not pool.rest()


def test_it_does_not_rest_if_the_function_keeps_rows(make_pool, lease, wait):
    kept = []
    pool = make_pool(lambda inputs, outputs, meta: kept.append(inputs[0]))
    wait(pool.submit(0, inputs=lease(pool, ("i8", (5,)))))
    assert not pool.rest()


@pytest.mark.parametrize("change", ["function", "number", "environment", "folder", "path"], ids=str)
def test_it_does_not_go_on_as_what_it_was_not_started_as(
    make_pool, change, monkeypatch, tmp_path, wait
):
    pool = make_pool(pid_of)
    assert pool.rest()
    if change == "environment":
        monkeypatch.setenv("PENSTOCK_TEST", "1")
    elif change == "folder":
        monkeypatch.chdir(tmp_path)
    elif change == "path":
        monkeypatch.syspath_prepend(tmp_path)
    other = pickle_function(lambda inputs, outputs, meta: None)
    assert not pool.resume(
        2 if change == "number" else 1, other if change == "function" else PICKLE
    )
    monkeypatch.undo()
    assert pool.resume(1, PICKLE)
    wait(pool.submit(0))


def test_it_ends_by_itself_after_a_while(make_pool, wait, wait_for_exit, monkeypatch):
    monkeypatch.setattr(service, "IDLE_SECONDS", 0.05)
    pool = make_pool(pid_of)
    pid = wait(pool.submit(0)).value
    assert pool.rest()
    wait_for_exit(pid)
    assert eventually(lambda: not pool.pids())
    assert not pool.resume(1, PICKLE)


def test_time_in_use_is_no_rest(make_pool, wait, monkeypatch):
    pool = make_pool(pid_of)
    pid = wait(pool.submit(0)).value
    monkeypatch.setattr(service, "IDLE_SECONDS", 1.0)
    assert pool.rest()
    assert pool.resume(1, PICKLE)
    threading.Event().wait(1.5)  # There is no event to wait for: nothing must happen.
    assert wait(pool.submit(0)).value == pid


def test_it_ends_when_a_worker_dies_at_rest(make_pool, wait, wait_for_exit):
    pool = make_pool(pid_of, num_workers=2)
    wait(pool.ready)
    first, second = pool.pids()
    assert pool.rest()
    os.kill(first, signal.SIGKILL)
    wait_for_exit(second)
    assert eventually(lambda: not pool.pids())
    assert not pool.resume(2, PICKLE)


def test_it_can_be_told_to_end_without_waiting(make_pool, wait, wait_for_exit):
    pool = make_pool(pid_of)
    pid = wait(pool.submit(0)).value
    assert pool.rest()
    pool.end_soon()
    wait_for_exit(pid)
    assert not pool.resume(1, PICKLE)


def test_a_worker_that_dies_after_a_rest_is_replaced(make_pool, wait):
    pool = make_pool(die_if_told)
    pid = wait(pool.submit(0)).value
    assert pool.rest()
    # By now it has let go of the function, which the new worker is to load.
    assert eventually(lambda: not any("function" in one for one in shared("self")))
    assert pool.resume(1, pickle_function(die_if_told))
    with pytest.raises(WorkerDied, match="code 3"):
        wait(pool.submit(0, meta=True))
    assert wait(pool.submit(0)).value != pid
