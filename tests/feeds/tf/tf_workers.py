"""Runs a script of TensorFlow in one process, or in several that find each other by TF_CONFIG, as on machines."""

import json
import sys
from pathlib import Path

from tests.processes import Group, free_ports

ROOT = Path(__file__).parents[3]
LIMIT = 400
"""Seconds until processes that have not ended are killed, and shown."""
# Few threads: processes that share few cores spend their time waiting for each other.
ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "PYTHONPATH": ROOT,
    "TF_NUM_INTRAOP_THREADS": 1,
    "TF_CONFIG": None,
}


def clusters(count):
    """Return the TF_CONFIG of each of so many workers."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    return [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]


def start(script, count, *arguments):
    """Return the processes of `count` workers."""
    command = [sys.executable, str(script), *map(str, arguments)]
    environments = [ENVIRONMENT | {"TF_CONFIG": config} for config in clusters(count)]
    return Group([command for _ in environments], environments, ROOT)


def alone(script, *arguments):
    """Return a process by itself."""
    return Group([[sys.executable, str(script), *map(str, arguments)]], [ENVIRONMENT], ROOT)


def outputs(processes):
    """Return what each process has printed; fail with all outputs if one has failed."""
    with processes as group:
        ended = group.wait(LIMIT)
        assert all(one.returncode == 0 for one in ended), group.shown()
    return [one.output for one in ended]


def results(processes):
    """Return what each process has printed last, a line of JSON."""
    return [json.loads(output.splitlines()[-1]) for output in outputs(processes)]


def remembered(run):
    """Return a function that gives what `run` gave for the same number before."""
    known = {}

    def get(count):
        if count not in known:
            known[count] = run(count)
        return known[count]

    return get
