"""Writes with engine="ray", on a Ray of its own, and is killed by one of its own tasks in the middle."""

import os
import signal
import sys
from pathlib import Path

import penstock as ps


def kills(marker):
    """A function that kills a process when it meets a row, once: the file `marker` names both."""

    def function(number):
        if number % 10 == 9 and marker.exists():
            victim, row = map(int, marker.read_text().split())
            if row == number:
                marker.unlink()
                os.kill(victim, signal.SIGKILL)
        return number * 2

    return function


def dataset(files, marker):
    return ps.from_files(files).map(kills(marker), spec=ps.ArraySpec((), "int64"))


if __name__ == "__main__":
    files, target, marker, row, shard_rows = sys.argv[1:]
    Path(marker).write_text(f"{os.getpid()} {row}")
    dataset(files, Path(marker)).write(target, engine="ray", shard_rows=int(shard_rows))
