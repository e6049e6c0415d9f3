"""Workers of other programs: scripts of every kind, Ctrl-C, and parents that die."""

import os
import signal
import sys
import textwrap

import pytest

# A script without a __main__ guard, whose function and class live in its main module.
SCRIPT = """
import numpy as np
from penstock.workers import WorkerPool, pickle_function
print("started")
factor = 3

class Pair:
    def __init__(self, value):
        self.value = value

def scale(inputs, outputs, meta):
    np.multiply(inputs[0], factor * meta.value, out=outputs[0])
    return Pair(float(outputs[0].sum()))

pool = WorkerPool(2, pickle_function(scale), name="map(scale)")
x, y = pool.add_arena(80).memory[:80].view("float32").reshape(2, 10)
x[:] = 1
for step in range(5):
    value = pool.submit(step, inputs=[x], outputs=[y], meta=Pair(2)).result(60).value
    assert type(value) is Pair, type(value)
print(value.value, flush=True)
"""
CLOSE = "pool.close()\n"


def finish(process, text=None, *, expect=0):
    out, err = process.communicate(text, timeout=100)
    assert process.returncode == expect, (out, err)
    return out, err


@pytest.mark.parametrize("ending", [CLOSE, ""], ids=["closed", "left open"])
def test_a_script_without_a_main_guard_runs_once(start_python, tmp_path, ending):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT + ending)
    assert finish(start_python("-W", "error", str(script))) == ("started\n60.0\n", "")


@pytest.mark.parametrize("ending", [CLOSE, ""], ids=["closed", "left open"])
def test_a_script_from_standard_input_runs_once(start_python, ending):
    assert finish(start_python("-"), SCRIPT + ending) == ("started\n60.0\n", "")


def test_code_from_the_command_line_runs_once(start_python):
    assert finish(start_python("-c", SCRIPT + CLOSE)) == ("started\n60.0\n", "")


def test_cells_of_a_notebook_run(start_python):
    # As a kernel does it: cells are compiled under made-up file names and run in the main module.
    notebook = f"""
import __main__
for number, cell in enumerate({[SCRIPT, CLOSE]!r}):
    exec(compile(cell, f"/tmp/ipykernel_1/{{number}}.py", "exec"), __main__.__dict__)
"""
    assert finish(start_python("-c", notebook)) == ("started\n60.0\n", "")


def test_modules_beside_the_script_are_found_and_files_of_the_working_directory_are_not(
    start_python, tmp_path
):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "my_rows.py").write_text(
        "def scale(inputs, outputs, meta):\n    return __name__, __debug__\n"
    )
    (tmp_path / "code" / "train.py").write_text(
        "import my_rows\n"
        "from penstock.workers import WorkerPool, pickle_function\n"
        "with WorkerPool(1, pickle_function(my_rows.scale), name='f') as pool:\n"
        "    print(*pool.submit(0).result(60).value)\n"
    )
    for name in ("random.py", "socket.py", "types.py"):
        (tmp_path / name).write_text("raise RuntimeError('the wrong module')\n")
    process = start_python("-O", str(tmp_path / "code" / "train.py"), cwd=tmp_path)
    assert finish(process) == ("my_rows False\n", "")


def test_an_exception_in_the_script_ends_the_workers_too(start_python, tmp_path, wait_for_exit):
    process = start_python("-", env=os.environ | {"PYTHONUNBUFFERED": "1"})
    out, err = finish(process, SCRIPT + "print(*pool.pids())\n1 / 0\n", expect=1)
    assert err.count("Traceback") == 1
    for pid in out.split("\n")[2].split():
        wait_for_exit(int(pid))


BUSY = textwrap.dedent("""
    import signal, sys, time
    from penstock.workers import WorkerPool, pickle_function

    def spin(inputs, outputs, meta):
        while True:
            pass

    pool = WorkerPool(2, pickle_function(spin), name="map(spin)")
    try:
        futures = [pool.submit(i) for i in range(4)]
        if sys.argv[1] == "ready":
            pool.ready.result(60)
        while len(pool.pids()) < 2:
            time.sleep(0.001)
        print(*pool.pids(), flush=True)
        futures[0].result()
    except KeyboardInterrupt:
        pool.close()
        print("interrupted", flush=True)
""")


def start_busy(start_python, tmp_path, when):
    script = tmp_path / "busy.py"
    script.write_text(BUSY)
    process = start_python(str(script), when)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    return process, pids


@pytest.mark.parametrize("when", ["ready", "starting"])
def test_ctrl_c_reaches_the_parent_alone_and_ends_all(start_python, tmp_path, wait_for_exit, when):
    process, pids = start_busy(start_python, tmp_path, when)
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process) == ("interrupted\n", "")
    for pid in pids:
        wait_for_exit(pid)


@pytest.mark.parametrize("when", ["ready", "starting"])
def test_a_killed_parent_takes_its_busy_workers_along(start_python, tmp_path, wait_for_exit, when):
    process, pids = start_busy(start_python, tmp_path, when)
    process.kill()
    for pid in pids:
        wait_for_exit(pid)


def test_a_parent_that_lets_broken_pipes_end_it_survives_its_worker(start_python):
    script = """
import os, signal
from penstock.workers import WorkerDied, WorkerPool, pickle_function
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
die = lambda inputs, outputs, meta: os._exit(1) if meta else None
with WorkerPool(1, pickle_function(die), name="f") as pool:
    for step in range(5):
        futures = [pool.submit(step, meta=meta) for meta in (1, 0, 0)]
        assert isinstance(futures[0].exception(60), WorkerDied)
        for future in futures[1:]:
            future.result(60)
print("alive")
"""
    assert finish(start_python("-c", script)) == ("alive\n", "")


def test_a_thread_that_makes_a_pool_and_ends_does_not_end_its_workers(make_pool, wait):
    import threading

    made = []
    thread = threading.Thread(
        target=lambda: made.append(make_pool(lambda inputs, outputs, meta: meta))
    )
    thread.start()
    thread.join()
    assert wait(made[0].submit(0, meta=1)).value == 1
    assert made[0].num_restarts == 0


def test_flags_of_the_interpreter_are_passed_on(make_pool, wait):
    found = wait(make_pool(lambda inputs, outputs, meta: sys.flags.optimize).submit(0)).value
    assert found == sys.flags.optimize
