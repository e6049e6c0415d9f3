"""Writes with engine="ray", on a Ray of its own, and is killed by one of its own tasks in the middle."""

import os
import signal
import sys
from pathlib import Path

import penstock as ps


def kills(marker, row):
    """A function that kills a process when it meets a row, once: that which the file `marker` names."""

    def function(number):
        if number == row and marker.exists():
            driver = int(marker.read_text())
            marker.unlink()
            os.kill(driver, signal.SIGKILL)
        return number * 2

    return function


def dataset(files, function):
    return ps.from_files(files).map(function, spec=ps.ArraySpec((), "int64"))


if __name__ == "__main__":
    files, target, marker, row, shard_rows = sys.argv[1:]
    Path(marker).write_text(str(os.getpid()))
    function = kills(Path(marker), int(row))
    dataset(files, function).write(target, engine="ray", shard_rows=int(shard_rows))
