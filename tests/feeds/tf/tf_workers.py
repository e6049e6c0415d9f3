"""Runs a script in several processes that find each other by TF_CONFIG, as on several machines."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIMIT = 400
"""Seconds until processes that have not ended are killed, and shown."""


def environment(**more):
    # Few threads: processes that share few cores spend their time waiting for each other.
    return (
        os.environ
        | {
            "KERAS_BACKEND": "tensorflow",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_NUM_INTRAOP_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }
        | more
    )


def clusters(count):
    """Return the TF_CONFIG of each of so many workers."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]


def start(script, count, *arguments):
    """Return the processes of `count` workers."""
    return [
        subprocess.Popen(
            [sys.executable, str(script), *map(str, arguments)],
            env=environment(TF_CONFIG=config),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for config in clusters(count)
    ]


def finish(processes, limit=LIMIT):
    """Return (return code, output, errors) of each process; whoever has not ended by the limit is killed."""
    end = time.monotonic() + limit
    ended = []
    for process in processes:
        try:
            output, errors = process.communicate(timeout=max(1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            errors += f"\n(killed: it had not ended after {limit} seconds)"
        ended.append((process.returncode, output, errors))
    return ended


def results(processes):
    """Return what each process has printed last, a line of JSON; fail with all outputs if one has failed."""
    ended = finish(processes)
    shown = "\n".join(
        f"-- {rank}: {code}\n{out[-3000:]}\n{err[-5000:]}"
        for rank, (code, out, err) in enumerate(ended)
    )
    assert all(code == 0 for code, _, _ in ended), shown
    return [json.loads(output.splitlines()[-1]) for _, output, _ in ended]
