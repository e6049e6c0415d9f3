"""User code in processes of its own: a pool of workers, their shared memory, and a test of who gains from it."""

from penstock.errors import CannotPickle, WorkersUnavailable
from penstock.workers.arena import Arena
from penstock.workers.errors import PoolClosed, RemoteError, RemoteTraceback, WorkerDied
from penstock.workers.lock_probe import Measurement, holds_lock
from penstock.workers.pickling import pickle_function
from penstock.workers.pool import TaskResult, WorkerPool, unavailable_reason

__all__ = [
    "Arena",
    "CannotPickle",
    "Measurement",
    "PoolClosed",
    "RemoteError",
    "RemoteTraceback",
    "TaskResult",
    "WorkerDied",
    "WorkerPool",
    "WorkersUnavailable",
    "holds_lock",
    "pickle_function",
    "unavailable_reason",
]
