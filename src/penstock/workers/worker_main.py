"""What runs in a worker process: load a function once, then answer one task after another.

This module is loaded under the package name `_penstock_worker` (see process.py), so that a worker does not
start by importing the whole library. Hence the relative imports, and nothing but the standard library and NumPy.
"""

import ctypes
import faulthandler
import gc
import mmap
import os
import pickle
import signal
import socket
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from .channel import Channel, channel_over
from .light_package import install
from .mapped_memory import map_memory
from .portable import is_portable
from .wire import Frame, pack, pack_any, unpack

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# How often it is looked for the parent where the kernel does not tell of its death.
_LOOK_SECONDS = 0.5
# The score that Chromium gives its renderers: when memory runs out, the kernel kills a worker, which can be
# replaced, before its parent.
_OOM_SCORE = b"300"

Function = Callable[[list[Any], list[Any], Any], Any]


class Job(NamedTuple):
    """A task as it is sent: where its arrays lie, and its other arguments as they were given."""

    inputs: Any
    outputs: Any
    writable_inputs: bool
    meta: Any


def main(channel_fd: int, crash_fd: int, parent_pid: int) -> None:
    """Serve the parent at the other end of channel_fd until the parent closes it or dies."""
    # The parent handles Ctrl-C. It started us with SIGINT blocked, so that none could come before this line.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _end_with(parent_pid)
    faulthandler.enable(crash_fd)
    for fd in (channel_fd, crash_fd):
        os.set_inheritable(fd, False)  # noqa: FBT003  it takes no keyword
    _volunteer_for_the_oom_killer()
    if sys.stdout is not None:
        # Write each whole line at once: workers share the parent's output, and a crash flushes nothing.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a real file here
    install("penstock")
    channel = channel_over(socket.socket(fileno=channel_fd))
    try:
        Worker(channel).serve()
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody waits for the answer any more
    finally:
        channel.close()


def _end_with(parent_pid: int) -> None:
    """Let this process be killed when its parent ends, whatever it does then."""
    if sys.platform != "linux" or is_portable:
        threading.Thread(target=_watch, args=(parent_pid,), daemon=True).start()
    else:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # the parent died before we could ask for the signal
        os._exit(1)


def _watch(parent_pid: int) -> None:
    """Kill this process soon after its parent ended: not while a function holds the interpreter lock."""
    while os.getppid() == parent_pid:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _volunteer_for_the_oom_killer() -> None:
    # If the score is higher already (only root may lower it), or there is no /proc, nothing changes.
    with suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, _OOM_SCORE)
        finally:
            os.close(fd)


class Worker:
    """The function, the arenas mapped so far, and the loop that answers messages."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._arenas: dict[int, Any] = {}
        self._function: Function | None = None
        self._works_on_copies = False

    def serve(self) -> None:
        """Answer messages until the parent's end closes."""
        while (received := self._channel.receive()) is not None:
            data, fds = received
            try:
                kind, *rest = unpack(data, fds)
            except Exception as error:  # noqa: BLE001  what the caller put in may raise anything
                self._channel.send(_frame_of_error(error))
                continue
            if kind == "task":
                self._answer(Job(*rest))
                rest.clear()  # else its meta would live until the next message
            elif kind == "map":
                arena_id, nbytes = rest
                self._arenas[arena_id] = map_memory(fds[0], nbytes)
                os.close(fds[0])
            elif kind == "drop":
                del self._arenas[rest[0]]
            elif kind == "function":
                self._load(fds[0])

    def _load(self, fd: int) -> None:
        """Load the function; send that the worker is ready, or why the function cannot be loaded."""
        try:
            with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as function_pickle:
                self._function = pickle.loads(function_pickle)
            frame = pack(("ready",), dumps=pickle.dumps)
        except Exception as error:  # noqa: BLE001  what it imports may raise anything
            frame = _frame_of_error(error)
        os.close(fd)
        self._channel.send(frame)

    def _answer(self, job: Job) -> None:
        """Run one task and send its answer."""
        views = _Views(self._arenas)
        frame, exit_code = self._run(job, views)
        if not self._works_on_copies and views.are_kept():
            # The function keeps a view of memory that is about to be used again. The parent leaves this
            # task's memory to it; from now on the function gets arrays of its own, which it may keep.
            self._works_on_copies = True
            self._channel.send(pack(("kept",), dumps=pickle.dumps))
        for stream in (sys.stdout, sys.stderr):
            # the user's code may have closed it
            with suppress(AttributeError, ValueError, OSError):
                stream.flush()
        self._channel.send(frame)
        frame.close()
        if exit_code is not None:
            sys.exit(exit_code)

    def _run(self, job: Job, views: "_Views") -> tuple[Frame, Any]:
        """Return the answer, and the exit code if the function asked for the end of the process."""
        try:
            inputs = [views.array(place, writable=job.writable_inputs) for place in job.inputs]
            outputs = [views.array(place, writable=True) for place in job.outputs]
            begun = time.perf_counter()
            if self._works_on_copies:
                value = self._call_on_copies(inputs, outputs, job)
            else:
                assert self._function is not None  # no task comes before we sent "ready"
                value = self._function(inputs, outputs, job.meta)
            seconds = time.perf_counter() - begun
            return pack_any(("done", seconds, value)), None
        except Exception as error:  # noqa: BLE001  the caller handles it
            return _frame_of_error(error), None
        except BaseException as error:  # noqa: BLE001  likewise, and then this process ends
            code = error.code if isinstance(error, SystemExit) else 1
            return _frame_of_error(error, ends=True), 0 if code is None else code

    def _call_on_copies(self, inputs: list[Any], outputs: list[Any], job: Job) -> Any:
        assert self._function is not None
        own_inputs = [array.copy() for array in inputs]
        own_outputs = [array.copy() for array in outputs]
        for array in own_inputs:
            array.flags.writeable = job.writable_inputs
        value = self._function(own_inputs, own_outputs, job.meta)
        if job.writable_inputs:
            outputs, own_outputs = inputs + outputs, own_inputs + own_outputs
        for shared, own in zip(outputs, own_outputs, strict=True):
            shared[...] = own
        return value


class _Views:
    """The arrays of one task, made in a way that tells afterwards whether the function kept one of them."""

    def __init__(self, arenas: dict[int, Any]) -> None:
        self._arenas = arenas
        # Every view of a view refers to its root array here, and to the arena only through the root.
        self._roots: dict[tuple[int, bool], Any] = {}
        self._watched: list[weakref.ref[Any]] = []

    def array(self, place: Any, *, writable: bool) -> Any:
        """Return the array at a place of an arena."""
        arena_id, offset, dtype, shape, strides = place
        root = self._roots.get((arena_id, writable))
        if root is None:
            memory = memoryview(self._arenas[arena_id])
            root = np.frombuffer(memory if writable else memory.toreadonly(), np.uint8)
            self._roots[arena_id, writable] = root
            self._watched.append(weakref.ref(root))
        return np.ndarray(shape, dtype, buffer=root, offset=offset, strides=strides)

    def are_kept(self) -> bool:
        """Tell whether an array of this task is still referred to, now that the task is done."""
        self._roots.clear()
        if all(root() is None for root in self._watched):
            return False
        gc.collect()  # an unreachable cycle does not count as kept
        return any(root() is not None for root in self._watched)


def _pickle_of_error(error: BaseException) -> bytes | None:
    """Return the exception's pickle, or None if it has none."""
    try:
        return pickle.dumps(error, protocol=5)
    except Exception:  # noqa: BLE001  its class may raise anything
        import cloudpickle

        with suppress(Exception):
            return bytes(cloudpickle.dumps(error, protocol=5))
        return None


def _frame_of_error(error: BaseException, *, ends: bool = False) -> Frame:
    """Return an exception as a frame: the exception itself if it can be pickled, and its text."""
    where = error.__traceback__
    if where is not None and where.tb_next is not None:
        where = where.tb_next  # the first frame is ours, and does not help the user
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  its class may raise anything
        text = "(its text cannot be had: its __str__ raises)"
    lines = traceback.format_exception(kind, error, where)
    message = ("raised", ends, _pickle_of_error(error), name, text, "".join(lines))
    return pack(message, dumps=pickle.dumps)
