"""What is written of streams that are watched: by this process, and by others that end in every way."""

import gc
import os
import signal
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from live.run_files import SECONDS, process, run_name, runs_of, until
from penstock.core import idle
from penstock.live import publisher
from penstock.live.runs import run_names, status
from penstock.live.summary import all_runs

ROWS = np.arange(4000, dtype="f4").reshape(1000, 4)


def dataset(**options):
    return ps.from_arrays(ROWS).shuffle(seed=0).batch(10).with_options(watch=True, **options)


def written():
    """What this process has written in this test, after all that it will."""
    idle.close_all()
    return runs_of(os.getpid())


def our_threads():
    return [one.name for one in threading.enumerate() if one.name.startswith("penstock-live")]


def test_a_stream_that_is_not_watched_writes_nothing_and_starts_nothing():
    before = our_threads()
    with ps.from_arrays(ROWS).batch(10).with_options(watch=False).stream() as stream:
        next(stream)
        assert our_threads() == before
    assert run_names() == []


def test_the_address_is_printed_once_and_the_page_stays_there_for_the_next_epoch(capfd):
    idle.close_all()
    publisher._publisher = None  # As in a process that has watched nothing yet.
    ds = dataset()
    for _ in range(2):
        list(ds)
        assert sorted(set(our_threads())) == ["penstock-live", "penstock-live-page"]
        url = publisher._publisher.server.url
    idle.close_all()
    assert our_threads() == []
    list(ds)
    assert publisher._publisher.server.url == url
    assert capfd.readouterr().err == f"penstock: live page at {url}\n"


def test_a_run_is_one_dataset_and_has_all_its_epochs():
    ds, other = dataset(), dataset()
    for _ in range(2):
        list(ds)
        written()
    list(other)
    first, second = written()
    assert first["pipeline"] == "from_arrays((1000, 4) float32).shuffle(seed=0).batch(10)"
    assert [(one["epoch"], one["num_rows"], one["state"]) for one in first["epochs"]] == [
        (0, 1000, "ended"),
        (1, 1000, "ended"),
    ]
    assert first["report"]["epoch"] == 1
    assert first["pid"] == os.getpid()
    assert first["plan"]["budget_nbytes"] == first["report"]["budget_nbytes"]
    assert second["epochs"][0]["epoch"] == 0
    assert first["command"].startswith(Path(sys.orig_argv[0]).name)


def test_two_streams_of_one_dataset_at_the_same_time_are_two_runs():
    ds = dataset()
    with ds.stream() as one, ds.stream() as other:
        next(one)
        next(other)
        next(other)
    assert [run["report"]["num_elements"] for run in written()] == [1, 2]


def test_how_a_stream_ended_is_written():
    with dataset().stream() as stream:
        next(stream)
    lost = dataset().stream()
    next(lost)
    until(lambda: [run for run in runs_of(os.getpid()) if run["report"]["state"] == "open"])
    del lost
    gc.collect()

    def fail(x):
        if x.max() == 3999:
            raise ValueError("a bad row")
        return x

    with pytest.raises(ps.FunctionError):
        list(dataset(processes=0).map(fail))
    states = [(run["report"]["state"], run["report"]["error"]) for run in written()]
    assert states[:2] == [("closed", ""), ("closed", "")]
    assert states[2][0] == "failed"
    assert "a bad row" in states[2][1]


def test_a_stream_that_is_refused_is_a_run_that_failed():
    with pytest.raises(ps.BudgetError):
        dataset(memory=1).stream()
    (run,) = written()
    assert run["report"]["state"] == "failed"
    assert run["report"]["error"].startswith("BudgetError: ")


def test_a_consumer_in_a_long_step_is_seen_and_so_is_one_that_waits_for_data():
    let_go = threading.Event()

    def wait(x):
        let_go.wait(SECONDS)
        return x

    let_go.set()  # For the first row, by which `map` finds out what comes of it.
    ds = ps.from_arrays(ROWS).map(wait).batch(10).with_options(watch=True, processes=0)
    let_go.clear()
    with dataset().stream() as busy:
        next(busy)
        until(lambda: any(run["is_waiting"] for run in runs_of(os.getpid())))
        reader = threading.Thread(target=lambda: list(ds))
        reader.start()
        try:
            found = until(
                lambda: [
                    run
                    for run in runs_of(os.getpid())
                    if run["is_asking"] and run["now"]["waited_share"] > 0.5
                ]
            )
            assert found[0]["is_waiting"] is False
        finally:
            let_go.set()
            reader.join()


def test_rows_that_stay_on_the_device_are_a_run_as_well():
    feed = dataset().to_torch(device="cpu", device_memory="1MB")
    for _ in feed:
        pass
    (run,) = written()
    assert run["report"]["num_rows"] == 1000
    assert run["report"]["state"] == "ended"


def test_a_process_keeps_only_its_last_runs(monkeypatch):
    monkeypatch.setattr(publisher, "_MOST_RUNS", 3)
    for _ in range(6):
        list(dataset())
        idle.close_all()
    assert len(written()) == 3


def test_a_folder_that_cannot_be_written_is_told_once_and_ends_no_training(runs_folder):
    publisher._publisher = None
    runs_folder.parent.mkdir(parents=True)
    runs_folder.write_text("no folder")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            assert len(list(dataset())) == 100
            idle.close_all()
    assert [str(one.message) for one in told] == [
        (
            "what this process reads is not shown on the live page any more: [Errno 20] Not a directory: "
            f"'{runs_folder}/.{run_name(1)}.new'. The folder of runs is in the user's cache directory, which "
            "XDG_CACHE_HOME sets."
        )
    ]
    publisher._publisher = None


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if an earlier test started it
def test_a_forked_child_has_no_part_in_what_its_parent_shows():
    ds = dataset()
    stream = ds.stream()
    next(stream)
    child = os.fork()
    if not child:
        code = 1
        try:
            assert publisher._publisher is None
            list(ds)
            publisher._publisher.at_exit()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [run["report"]["state"] for run in runs_of(child)] == ["ended"]
    stream.close()
    assert publisher._publisher.server is not None
    assert [run["report"]["num_elements"] for run in written()] == [1]


SCRIPT = """
import os, signal, sys
import numpy as np
import penstock as ps
ds = ps.from_arrays(np.zeros((1000, 4), "f4")).batch(10).with_options(watch=True)
how = sys.argv[1]
if how == "leaves out the end":
    stream = ds.stream()
    next(stream)
    sys.exit()
for number, batch in enumerate(ds):
    if number == 50:
        print("there", flush=True)
        sys.stdin.readline()
        if how == "fails":
            raise ValueError("the loss is NaN")
        if how == "is interrupted":
            signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.parametrize(
    ("how", "word", "error"),
    [
        ("ends", "ended", ""),
        ("fails", "failed", "ValueError: the loss is NaN"),
        ("is interrupted", "failed", "KeyboardInterrupt"),
        ("leaves out the end", "stopped", ""),
        ("is killed", "killed", ""),
    ],
)
def test_the_end_of_a_process_is_seen_from_outside(how, word, error):
    child = process(SCRIPT, how)
    if how == "is killed":
        assert child.stdout.readline() == "there\n"
        until(lambda: runs_of(child.pid))
        child.send_signal(signal.SIGKILL)
        until(lambda: all_runs()["run"]["status"] == "killed")  # Before anybody asks how it ended.
    _, stderr = child.communicate("\n", timeout=SECONDS)
    assert "penstock: live page at http://127.0.0.1:" in stderr
    (name,) = run_names()
    (run,) = runs_of(child.pid)
    assert status(name, run) == word
    assert all_runs()["run"]["error"] == error
    assert stderr.count("penstock: ") == 1


def test_a_process_that_has_no_stderr_goes_on():
    child = process("import sys; sys.stderr = None" + SCRIPT, "ends")
    assert child.communicate("\n", timeout=SECONDS)[1] == ""
    assert child.returncode == 0


FORKED = """
import multiprocessing, sys, time
import numpy as np
import penstock as ps

def read():
    ds = ps.from_arrays(np.zeros((1000, 4), "f4")).batch(10).with_options(watch=True)
    for number, batch in enumerate(ds):
        if number % 50 == 0:
            time.sleep(0.1)

child = multiprocessing.get_context("fork").Process(target=read)
child.start()
child.join()
print(child.pid, child.exitcode)
"""


def test_a_run_in_a_process_of_multiprocessing_ends_as_it_does():
    child = process(FORKED)
    pid, code = map(int, child.communicate("", timeout=SECONDS)[0].split())
    assert code == 0
    (run,) = runs_of(pid)
    assert status(run_names()[0], run) == "ended"
    assert run["report"]["num_rows"] == 1000


def test_a_folder_that_vanishes_before_the_end_is_told_by_nobody():
    script = """
import os, pathlib, shutil
import numpy as np
import penstock as ps
from penstock.live.runs import runs_folder
stream = ps.from_arrays(np.zeros((1000, 4), "f4")).batch(10).with_options(watch=True).stream()
next(stream)
folder = pathlib.Path(os.environ["XDG_CACHE_HOME"])
shutil.rmtree(folder)
folder.write_text("")
"""
    child = process(script)
    _, stderr = child.communicate("", timeout=SECONDS)
    assert child.returncode == 0
    assert "Traceback" not in stderr
