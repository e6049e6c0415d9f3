"""Starts the ranks of a training as real processes on this machine, and gives what each of them found."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).with_name("one_rank.py")
LIMIT = 150
TOLD_BY = ("RANK", "WORLD_SIZE", "TF_CONFIG", "MASTER_ADDR", "MASTER_PORT")


def free_ports(count):
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]
    finally:
        for one in taken:
            one.close()


def run_ranks(engine, folder, world=2, processes=None, killed=()):
    """Run `one_rank.py` as each rank, and return what they print last, by rank; all are dead in the end.

    `processes` is how many are started, if the engine starts its ranks itself. Those in `killed` are to die by SIGKILL.
    """
    processes = world if processes is None else processes
    ports = ",".join(map(str, free_ports(world)))
    environ = {key: value for key, value in os.environ.items() if key not in TOLD_BY}
    environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"}
    logs = [folder / f"{rank}.log" for rank in range(processes)]
    started = []
    try:
        for rank, log in enumerate(logs):
            command = [sys.executable, SCRIPT, engine, str(rank), str(world), ports, str(folder)]
            with log.open("wb") as out:
                one = subprocess.Popen(
                    command,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=environ,
                    start_new_session=True,
                )
            started.append(one)
        until = time.monotonic() + LIMIT
        codes = []
        for one in started:
            try:
                codes.append(one.wait(max(0.1, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append("still running")
    finally:
        for one in started:
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)  # With what it started itself.
                one.wait()
    expected = [-9 if rank in killed else 0 for rank in range(processes)]
    shown = "\n".join(f"-- {log.name}: {log.read_text(errors='replace')[-4000:]}" for log in logs)
    assert codes == expected, f"{engine} ended with {codes}:\n{shown}"
    return {int(path.stem): json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
