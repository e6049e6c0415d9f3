"""Chains whose rows tell which process made them, and whether that process is still there."""

import os
import subprocess
import sys
import textwrap

import numpy as np

import penstock as ps

NUMBER = ps.ArraySpec((), "int64")


def pid_of(x):
    return os.getpid()


def rows(function=pid_of, *, count=40, processes=1, **options):
    ds = ps.from_arrays(np.arange(count)).map(function, spec=NUMBER)
    return ds.with_options(processes=processes, **options)


def pids(elements):
    """Return the processes that ran an epoch."""
    return {int(pid) for element in elements for pid in np.ravel(element)}


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def script(code, *arguments):
    head = "import os, sys\nimport numpy as np\nimport penstock as ps\n"
    command = [sys.executable, "-c", head + textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
