"""A pool of worker processes that run one function on blocks of shared memory."""

import hashlib
import importlib.util
import os
import sys
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from penstock.core.closing import Closing
from penstock.errors import WorkersUnavailable
from penstock.workers.arena import Arena, Array, Place
from penstock.workers.process import Task, TaskResult, surroundings
from penstock.workers.service import Service
from penstock.workers.wire import pack_any

__all__ = ["TaskResult", "WorkerPool", "unavailable_reason"]


def unavailable_reason() -> str | None:
    """Return why worker processes cannot run here, or None if they can."""
    if getattr(sys, "frozen", False):
        return "this is a frozen application, whose executable would start the application again"
    if not sys.executable:
        return "Python is embedded in another program, and has no interpreter of its own to start"
    if importlib.util.find_spec("cloudpickle") is None:
        return "it needs cloudpickle: pip install 'penstock[processes]'"
    return None


class WorkerPool(Closing):
    """Run `function(inputs, outputs, meta)` in processes, on arrays that are shared and never copied.

    The function comes as a pickle (see `pickle_function`). Workers start at once and in the
    background. Arrays must lie in arenas, made by `add_arena`. Tasks end in any order.

    >>> import numpy as np
    >>> from penstock.workers import pickle_function
    >>> function = lambda inputs, outputs, meta: np.multiply(inputs[0], meta, out=outputs[0])
    >>> with WorkerPool(1, pickle_function(function), name="scale") as pool:
    ...     x, y = pool.add_arena(800).memory[:800].view("float32").reshape(2, 100)
    ...     x[:] = 21
    ...     seconds = pool.submit(0, inputs=[x], outputs=[y], meta=2).result().seconds
    ...     print(y[0])
    42.0
    """

    def __init__(self, num_workers: int, function_pickle: bytes, *, name: str) -> None:
        if num_workers < 1:
            raise ValueError(f"num_workers must be at least 1, got {num_workers}.")
        if (reason := unavailable_reason()) is not None:
            raise WorkersUnavailable(f"{name} cannot run in processes: {reason}.")
        self.name = name
        self.num_workers = num_workers
        self._started_as = _identity(num_workers, function_pickle)
        self._service = Service(num_workers, function_pickle, name=name)
        self._arenas = self._service.arenas
        self._owner_pid = os.getpid()
        self._finalizer = weakref.finalize(
            self, _close, self._service, self._arenas, self._owner_pid
        )
        self._service.start()

    @property
    def ready(self) -> Future[None]:
        """Return a future that ends when every worker has loaded the function, or fails if one can't."""
        return self._service.ready

    @property
    def num_restarts(self) -> int:
        """Return how many workers were started to replace others."""
        return self._service.num_restarts

    def pids(self) -> list[int]:
        """Return the process ids of the workers."""
        return self._service.pids()

    def add_arena(self, nbytes: int) -> Arena:
        """Return a new arena; each worker maps it with the first task that uses it."""
        try:
            arena = Arena(nbytes, name=f"penstock arena of {self.name}")
        except OSError as error:
            raise WorkersUnavailable(
                f"{self.name}: there is no shared memory of {nbytes} bytes for its worker processes: "
                f"{error}. Use fewer processes, or none: with_options(processes=0)."
            ) from error
        self._arenas[arena.arena_id] = arena
        return arena

    def drop_arena(self, arena: Arena, *, is_kept: bool = False) -> None:
        """Take no more tasks on this arena, and give its memory back at once: nobody may look at it any more.

        With `is_kept`, for a `TaskResult` that says so, it stays valid for those who do: the function, in its worker.
        """
        self._arenas.pop(arena.arena_id, None)
        if is_kept:
            arena.close()
        else:
            arena.discard()

    def submit(
        self,
        task_id: object,
        *,
        inputs: Iterable[Array] = (),
        outputs: Iterable[Array] = (),
        meta: Any = None,
        writable_inputs: bool = False,
    ) -> Future[TaskResult]:
        """Call the function on these arrays in a worker; one small message each way.

        `inputs` and `outputs` lie in an arena. `meta` and what the function returns are pickled, except
        for large arrays in them, which lie in memory of their own. The future ends with a TaskResult, with the
        function's own exception (caused by a RemoteTraceback), or with WorkerDied, after which the
        same task may be submitted again. When it has ended, no worker touches the arrays any more.
        Its callbacks run on the thread that serves all workers, and must be short.
        """
        if os.getpid() != self._owner_pid:
            raise RuntimeError(f"{self.name}: a pool cannot be used in a fork of its process.")
        used: dict[int, Arena] = {}
        inputs, outputs = tuple(inputs), tuple(outputs)
        places_in = [self._place(array, used) for array in inputs]
        places_out = [self._place(array, used) for array in outputs]
        message = ("task", places_in, places_out, writable_inputs, meta)
        task = Task(
            task_id=task_id,
            frame=pack_any(message),
            arrays=inputs + outputs,
            arenas=tuple(used.values()),
        )
        self._service.post(task)
        return task.future

    def rest(self) -> bool:
        """Give all shared memory back, and let the workers wait for `resume`; False if they can't be used again.

        They can't be if one of them died or keeps rows of its tasks, or if a task is under way. While they wait they
        hold no memory of tasks; after some seconds (`service.IDLE_SECONDS`), or when one of them dies, they end.
        """
        return self._service.rest()

    def resume(self, num_workers: int, function_pickle: bytes) -> bool:
        """Take tasks again, after `rest`; False if the workers have ended, or were started for anything else.

        They must be as many, have loaded a function of this very pickle, and run where they would be started now: with
        the same `sys.path`, environment and working directory.
        """
        if _identity(num_workers, function_pickle) != self._started_as:
            return False
        return self._service.resume(function_pickle)

    def end_soon(self) -> None:
        """Let the workers end without waiting for it; also by the garbage collector, on any thread."""
        if os.getpid() == self._owner_pid:
            self._finalizer.detach()
            self._service.end_soon()

    def close(self) -> None:
        """End the workers and fail the tasks under way; views of the arenas stay valid."""
        _close(self._service, self._arenas, self._owner_pid)
        self._finalizer.detach()

    def _place(self, array: Array, used: dict[int, Arena]) -> Place:
        for arena in tuple(self._arenas.values()):
            if (place := arena.place(array)) is not None:
                used[arena.arena_id] = arena
                return place
        raise ValueError(
            f"{self.name}: an array of shape {array.shape} is not in an arena of this pool: "
            "take its memory from pool.add_arena(nbytes).memory."
        )


def _identity(num_workers: int, function_pickle: bytes) -> bytes:
    """Return a digest of all that workers are started with."""
    digest = hashlib.blake2b(function_pickle)
    digest.update(repr((num_workers, *surroundings())).encode(errors="surrogateescape"))
    return digest.digest()


def _close(service: Service, arenas: dict[int, Arena], owner_pid: int) -> None:
    if os.getpid() != owner_pid:
        return  # in a fork of the owner, only a copy of the pool dies: the workers are the owner's
    service.close()
    for arena in arenas.values():
        arena.close()
    arenas.clear()
