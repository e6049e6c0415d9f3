"""Runs of the examples for Ray Train, each with a Ray of its own, of which nothing is left in the end."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import numpy as np

import penstock as ps

ROOT = Path(__file__).parents[2]
LIMIT = 250  # Seconds of one command; a test of two of them has 600.
NUM_ROWS, BATCH_SIZE, STEPS, EPOCHS = 1001, 48, 21, 2
# Every 2 seconds by default: Ray takes in a checkpoint when it looks after its workers.
QUICKLY = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2", "RAY_prestart_worker_first_driver": "0"}
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "TF_CPP_MIN_LOG_LEVEL": "3"}
TOLD_BY = ("RANK", "WORLD_SIZE", "TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "RAY_ADDRESS")


def run(script, *options, code=0):
    """Run the one command of an example; all that it started is gone in the end. Return what it printed."""
    environ = {name: value for name, value in os.environ.items() if name not in TOLD_BY}
    # Not in a folder of pytest: the name of a socket must be short.
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temporary:
        environ |= {**QUICKLY, **QUIET, "RAY_TMPDIR": temporary}
        started = subprocess.Popen(
            [sys.executable, ROOT / "examples" / script, *map(str, options)],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = started.communicate(timeout=LIMIT)
            found = started.returncode
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            left_behind(temporary, 0)  # They hold the pipe.
            output, _ = started.communicate()
            found = f"nothing within {LIMIT} s"
        left = left_behind(temporary, 60)
    assert found == code, f"{script} ended with {found}:\n{output[-8000:]}"
    assert not left, f"{script} left {left}:\n{output[-8000:]}"
    return output


def left_behind(temporary, seconds):
    """Kill what Ray has started and is still there after so many seconds; return the command lines."""
    until, left = monotonic() + seconds, []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"RAY_TMPDIR={temporary}".encode() in (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
            handle = os.pidfd_open(int(process.name)) if is_ours else None
        except OSError:  # It has ended.
            continue
        if handle is None:
            continue
        try:
            if not select.select([handle], [], [], max(0, until - monotonic()))[0]:
                left.append(command)
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
    return left


def read_attempts(log):
    """Return the lines of each group of workers, as {rank: lines}, in the order in which Ray started them."""
    processes = {}
    for line in log.read_text().splitlines():
        found = json.loads(line)
        processes.setdefault(found["process"], []).append(found)
    attempts = []
    for lines in processes.values():
        rank = lines[0]["rank"]
        number = sum(rank in attempt for attempt in attempts)
        if number == len(attempts):
            attempts.append({})
        attempts[number][rank] = lines
    return attempts


def check_rows(log, data, worlds, starts):
    """Check what each group of workers has read: its part of the global batches of one process, and all of them once.

    Of a group, what counts is what it did before the step with which the next one began.
    """
    ds = ps.from_files(f"{data}/*.npz", fields="row").shuffle(seed=0).batch(BATCH_SIZE)
    whole = [batch for epoch in range(EPOCHS) for batch in ds.stream(epoch=epoch)]
    assert len(whole) == EPOCHS * STEPS
    attempts = read_attempts(log)
    assert [len(attempt) for attempt in attempts] == worlds
    ends = [*starts[1:], len(whole)]
    trained = []
    for attempt, world, start, end in zip(attempts, worlds, starts, ends, strict=True):
        for rank, lines in attempt.items():
            steps = [line["step"] for line in lines]
            assert steps == list(range(start, start + len(steps)))
            assert start + len(steps) >= end
            for line in lines:
                assert line["world"] == world
                np.testing.assert_array_equal(line["rows"], whole[line["step"]][rank::world])
            trained += [row for line in lines if line["step"] < end for row in line["rows"]]
    np.testing.assert_array_equal(np.bincount(trained), np.full(NUM_ROWS, EPOCHS))


def check_a_killed_worker(script, folder):
    """Kill a worker in mid-epoch: Ray starts both anew by itself, and the run ends well.

    Return the folders of the data and of the last checkpoint.
    """
    log = folder / "log.jsonl"
    output = run(script, folder / "run", "--epochs", EPOCHS, "--log", log, "--kill-at", 13)
    assert f"trained for {EPOCHS * STEPS} steps" in output, output[-4000:]
    check_rows(log, folder / "run" / "data", worlds=[2, 2], starts=[0, 10])
    return places(folder / "run")


def check_two_killed_workers(script, folder):
    """Kill a worker twice: Ray goes on once by itself, then the command does with one worker, both in mid-epoch.

    Return the folders of the data and of the last checkpoint.
    """
    log = folder / "log.jsonl"
    common = (folder / "run", "--epochs", EPOCHS, "--max-failures", 1, "--log", log)
    output = run(script, *common, "--kill-at", 13, 31, code=1)
    assert "WorkerGroupError" in output, output[-4000:]
    output = run(script, *common, "--workers", 1)
    assert f"trained for {EPOCHS * STEPS} steps" in output, output[-4000:]
    check_rows(log, folder / "run" / "data", worlds=[2, 2, 1], starts=[0, 10, 30])
    return places(folder / "run")


def places(folder):
    return folder / "data", max(folder.glob("*/checkpoint_*/"))


def batches(data):
    """Yield the global batches of all epochs, as one process reads them: x and y."""
    ds = ps.from_files(f"{data}/*.npz", fields=("x", "y")).shuffle(seed=0).batch(BATCH_SIZE)
    for epoch in range(EPOCHS):
        yield from ds.stream(epoch=epoch)
