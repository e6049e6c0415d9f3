"""Pools that are closed when a test is over, and ways to wait for what happens outside this process."""

import ctypes
import errno
import os
import select
import subprocess
import sys

import pytest
from tests.workers.carving import carve, carved_nbytes

from penstock.workers import WorkerPool, pickle_function

# How long anything that must happen may take on a busy machine before it counts as a hang.
PATIENCE_SECONDS = 60
# By its number: tests/portable takes os.pidfd_open away.
LIBC, PIDFD_OPEN = ctypes.CDLL(None, use_errno=True), 434


@pytest.fixture
def make_pool():
    """Return a maker of pools for plain functions."""
    pools = []

    def make(function, *, num_workers=1, name="map(f)"):
        pool = WorkerPool(num_workers, pickle_function(function), name=name)
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def wait():
    """Return the result of a future, or fail where a hang would begin."""
    return lambda future: future.result(timeout=PATIENCE_SECONDS)


@pytest.fixture
def lease():
    """Return arrays in an arena of their own."""

    def make(pool, *arrays):
        return carve(pool.add_arena(carved_nbytes(arrays)).memory, arrays)

    return make


def wait_until_gone(pid):
    """Wait until a process has ended that is not our child, or that nobody waits for."""
    fd = LIBC.syscall(PIDFD_OPEN, pid, 0)
    if fd < 0:
        assert ctypes.get_errno() == errno.ESRCH
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        assert poll.poll(PATIENCE_SECONDS * 1000), f"process {pid} is still there"
    finally:
        os.close(fd)


@pytest.fixture
def wait_for_exit():
    """Wait until a process that is not our child has ended."""
    return wait_until_gone


@pytest.fixture
def start_python():
    """Start Python on a command line of its own, in a process group of its own, with its output in pipes."""
    started = []

    def start(*arguments, **options):
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
