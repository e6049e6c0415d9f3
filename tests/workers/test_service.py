"""Workers that are killed, crash, exit or run out of memory: an error at once, and work goes on."""

import ctypes
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from penstock.workers import WorkerDied, WorkersUnavailable


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_killed_worker_fails_its_task_at_once(make_pool, wait, tmp_path):
    def snooze(inputs, outputs, meta):
        Path(meta).write_text("asleep")
        time.sleep(600)

    pool = make_pool(snooze, name="map(snooze)")
    wait(pool.ready)
    (pid,) = pool.pids()
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    future = pool.submit(17, meta=str(gate))
    assert gate.read_text() == "asleep"
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(
        WorkerDied, match=r"map\(snooze\): worker process \d+ was killed by SIGKILL"
    ):
        wait(future)
    error = future.exception()
    assert (error.task_id, error.pid, error.exit_code, error.signal_name) == (
        17,
        pid,
        None,
        "SIGKILL",
    )
    assert "during task 17" in str(error)
    assert "for want of memory" in str(error)


def test_a_worker_that_exits_is_named_with_its_code(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: os._exit(3))
    with pytest.raises(
        WorkerDied, match=r"exited with code 3 during task 'x'.*let it raise"
    ) as caught:
        wait(pool.submit("x"))
    assert (caught.value.exit_code, caught.value.signal_name) == (3, None)


@pytest.mark.parametrize(("argument", "code"), [(4, 4), (None, 0), ("goodbye", 1)])
def test_sys_exit_in_user_code_does_not_pass_for_an_exit_of_the_parent(
    make_pool, wait, argument, code
):
    def leave(inputs, outputs, meta):
        sys.exit(meta)

    pool = make_pool(leave)
    with pytest.raises(WorkerDied, match=f"exited with code {code}") as caught:
        wait(pool.submit(0, meta=argument))
    assert "in leave\n    sys.exit(meta)" in caught.value.traceback_text
    assert wait(make_pool(lambda inputs, outputs, meta: meta).submit(0, meta=5)).value == 5


def test_a_crash_names_the_python_line_it_happened_in(make_pool, wait):
    def crash(inputs, outputs, meta):
        ctypes.string_at(0)

    pool = make_pool(crash)
    with pytest.raises(WorkerDied, match="was ended by SIGSEGV during task 0") as caught:
        wait(pool.submit(0))
    assert "Segmentation fault" in caught.value.traceback_text
    assert f'File "{__file__}"' in caught.value.traceback_text
    assert "in crash" in str(caught.value)


def test_an_abort_is_named(make_pool, wait):
    with pytest.raises(WorkerDied, match="was ended by SIGABRT"):
        wait(make_pool(lambda inputs, outputs, meta: os.abort()).submit(0))


def test_a_memory_error_comes_back_as_one_and_the_worker_lives(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: np.ones(meta).nbytes)
    with pytest.raises(MemoryError, match="Unable to allocate"):
        wait(pool.submit(0, meta=1 << 55))
    assert wait(pool.submit(1, meta=10)).value == 80
    assert pool.num_restarts == 0


def test_tasks_that_a_dead_worker_had_not_begun_are_run_by_its_successor(make_pool, wait):
    def run(inputs, outputs, meta):
        if meta == 0:
            os._exit(1)
        return meta

    pool = make_pool(run)
    futures = [pool.submit(i, meta=i) for i in range(6)]
    with pytest.raises(WorkerDied):
        wait(futures[0])
    assert [wait(future).value for future in futures[1:]] == [1, 2, 3, 4, 5]
    assert pool.num_restarts == 1


def test_an_answer_sent_before_death_is_not_lost(make_pool, wait):
    def run(inputs, outputs, meta):
        if meta == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return meta

    pool = make_pool(run)
    wait(pool.ready)
    for step in range(10):
        before, deadly, after = (
            pool.submit(step, meta=meta) for meta in ("before", "die", "after")
        )
        assert wait(before).value == "before"
        with pytest.raises(WorkerDied):
            wait(deadly)
        assert wait(after).value == "after"


def test_the_dead_are_replaced_only_while_there_is_work(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: meta and os._exit(meta), num_workers=2)
    wait(pool.ready)
    with pytest.raises(WorkerDied):
        wait(pool.submit(0, meta=1))
    wait(pool.submit(1))
    assert len(pool.pids()) == 1
    for future in [pool.submit(i) for i in range(50)]:
        wait(future)
    assert len(pool.pids()) == 2
    assert pool.num_restarts == 1


def test_a_child_of_a_dead_worker_does_not_keep_its_task_waiting(make_pool, wait, tmp_path):
    def fork_and_die(inputs, outputs, meta):
        child = os.fork()
        if child == 0:
            time.sleep(600)  # it has a copy of the worker's end of the channel
        Path(meta).write_text(str(child))
        os.kill(os.getpid(), signal.SIGKILL)

    report = tmp_path / "grandchild"
    pool = make_pool(fork_and_die)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        wait(pool.submit(0, meta=str(report)))
    os.kill(int(report.read_text()), signal.SIGKILL)


def test_workers_that_die_while_they_start_end_the_pool_with_an_error(make_pool, wait):
    class Deadly:
        def __reduce__(self):
            return os._exit, (5,)

    pool = make_pool(Deadly(), num_workers=2)
    with pytest.raises(WorkerDied, match="exited with code 5 while it started"):
        wait(pool.ready)
    with pytest.raises(WorkerDied):
        pool.submit(0)


def test_a_function_that_cannot_be_loaded_ends_the_pool_with_an_error(make_pool, wait):
    class Homeless:
        def __reduce__(self):
            return __import__, ("module_that_is_not_there",)

    pool = make_pool(Homeless(), name="map(homeless)")
    message = r"map\(homeless\): .*No module named 'module_that_is_not_there'.*must be importable"
    with pytest.raises(WorkersUnavailable, match=message):
        wait(pool.ready)


def test_a_task_that_waits_for_workers_that_never_start_fails_too(make_pool, wait):
    class Homeless:
        def __reduce__(self):
            return __import__, ("module_that_is_not_there",)

    pool = make_pool(Homeless())
    try:
        future = pool.submit(0)
    except WorkersUnavailable:
        return  # it was faster than us
    with pytest.raises(WorkersUnavailable):
        wait(future)


def test_an_interpreter_that_cannot_be_started_is_an_error(make_pool, wait, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    pool = make_pool(lambda inputs, outputs, meta: None)
    with pytest.raises(WorkersUnavailable, match=r"could not be started: .*/nowhere/python"):
        wait(pool.ready)


def test_a_pool_goes_on_with_the_workers_it_has_when_more_cannot_start(make_pool, wait, tmp_path):
    only_one = tmp_path / "one is enough"

    def load():
        only_one.touch(exist_ok=False)  # the second and later ones fail
        return lambda inputs, outputs, meta: meta

    class First:
        def __reduce__(self):
            return _load_or_die, (load,)

    pool = make_pool(First(), num_workers=2)
    wait(pool.ready)
    assert [wait(pool.submit(i, meta=i)).value for i in range(20)] == list(range(20))
    assert len(pool.pids()) == 1


def _load_or_die(load):
    try:
        return load()
    except FileExistsError:
        os.kill(os.getpid(), signal.SIGKILL)


def test_restarts_leave_no_descriptor_behind(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: meta and os._exit(meta))
    wait(pool.submit(0))
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(WorkerDied):
            wait(pool.submit(0, meta=1))
        wait(pool.submit(1, meta=0))
    assert open_descriptors() == before
    assert pool.num_restarts == 5


def kill_at_random(make_pool, lease, wait, *, num_kills, seed):
    """Run blocks through a pool while its workers are killed at random; every block must come out right."""
    rng = random.Random(seed)

    def run(inputs, outputs, meta):
        for row in range(len(inputs[0])):
            outputs[0][row] = inputs[0][row] * 2 + meta
            time.sleep(0.0005)
        return np.full(3000, meta)

    files = open_descriptors()
    pool = make_pool(run, num_workers=2)
    stop, killed = threading.Event(), []

    def kill():
        while len(killed) < num_kills and not stop.wait(rng.uniform(0, 0.3)):
            alive = [worker for worker in pool._service._workers if worker.pid not in killed]
            # Any worker may go, but not before one has started, or none ever would on a slow machine.
            if any(worker.is_ready for worker in alive):
                victim = rng.choice(alive)
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    num_failed, number = 0, 0
    arrays = [lease(pool, ("int64", (20,)), ("int64", (20,))) for _ in range(6)]
    try:
        while killer.is_alive():
            pending = []
            for x, y in arrays:
                x[:], y[:] = np.arange(20) + number, -1
                pending.append(
                    (number, x, y, pool.submit(number, inputs=[x], outputs=[y], meta=number))
                )
                number += 1
            for task_id, x, y, future in pending:
                while isinstance(error := future.exception(timeout=60), WorkerDied):
                    assert error.task_id == task_id
                    assert error.signal_name == "SIGKILL"
                    num_failed += 1
                    future = pool.submit(task_id, inputs=[x], outputs=[y], meta=task_id)
                assert future.result().value.tolist() == [task_id] * 3000
                assert y.tolist() == (x * 2 + task_id).tolist()
    finally:
        stop.set()
        killer.join()
    assert len(killed) == num_kills
    assert num_failed <= num_kills
    pool.close()
    assert open_descriptors() <= files


def test_workers_killed_at_random_moments_cost_only_their_task(make_pool, lease, wait):
    kill_at_random(make_pool, lease, wait, num_kills=10, seed=0)


@pytest.mark.soak
def test_a_hundred_kills_at_random_moments_cost_only_their_tasks(make_pool, lease, wait):
    kill_at_random(make_pool, lease, wait, num_kills=100, seed=1)


@pytest.mark.soak
def test_pools_that_are_closed_at_random_moments_leave_nothing(make_pool, wait):
    rng = random.Random(2)
    files = open_descriptors()
    for _ in range(100):
        pool = make_pool(lambda inputs, outputs, meta: time.sleep(meta), num_workers=2)
        futures = [pool.submit(i, meta=rng.uniform(0, 0.05)) for i in range(4)]
        threading.Event().wait(rng.uniform(0, 0.3))
        pool.close()
        for future in futures:
            assert future.done()
        assert open_descriptors() <= files + 1  # one for this very listing
