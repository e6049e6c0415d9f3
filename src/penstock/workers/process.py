"""One worker process: how it is started, what it was given, and how it ended."""

import os
import pickle
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Container
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock.workers.anonymous_memory import memory_file
from penstock.workers.arena import Arena, Array
from penstock.workers.channel import channel_over, socket_pair
from penstock.workers.errors import WorkerDied, name_of_signal
from penstock.workers.portable import is_portable
from penstock.workers.wire import Frame, pack

# From closing a worker's channel to killing it: time to flush output and to run atexit functions.
GRACE_SECONDS = 1.0
# A killed process that does not end is stuck in the kernel (a dead network disk): it is waited for no longer.
KILLED_SECONDS = 5.0

# The worker's modules are loaded under a package name of their own: with `import penstock`, each worker would
# load the whole library. sys.path is set before anything else is imported: else a random.py in the working
# directory would be found instead of Python's.
_BOOTSTRAP = """
import sys
here, is_portable, channel_fd, crash_fd, parent_pid, *path = sys.argv[2:]
sys.argv[1:] = []
sys.path[:] = path
package = type(sys)("_penstock_worker")
package.__path__ = [here]
sys.modules["_penstock_worker"] = package
build = type(sys)("_penstock_worker.portable")
build.is_portable = is_portable == "True"
sys.modules["_penstock_worker.portable"] = build
from _penstock_worker.worker_main import main
main(int(channel_fd), int(crash_fd), int(parent_pid))
"""
_HERE = str(Path(__file__).absolute().parent)
_ONE_THREAD = dict.fromkeys(
    (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    ),
    "1",
)


class TaskResult(NamedTuple):
    """What a task gave: the function's return value, and how long it ran in the worker.

    If `is_kept`, the function refers to the task's arrays even now, and their memory must not be used again. This
    comes up once a worker: from then on, it hands the function copies.
    """

    value: Any
    seconds: float
    is_kept: bool = False


@dataclass(slots=True, eq=False)
class Task:
    """One call of the function; it refers to its arrays until no worker can touch them any more."""

    task_id: object
    frame: Frame
    arrays: tuple[Array, ...]
    arenas: tuple[Arena, ...]
    future: Future[TaskResult] = field(default_factory=Future)
    is_begun: bool = False
    is_kept: bool = False


class WorkerProcess:
    """A process started afresh, with its channel and the tasks it was given, oldest first.

    Start it from a thread that lives as long as the worker should: on Linux, the kernel kills the worker when
    that thread ends, whatever ends it.
    """

    def __init__(self, name: str, function_fd: int) -> None:
        self.name = name
        self.tasks: deque[Task] = deque()
        self.is_ready = False
        self._arenas: set[int] = set()
        self.pid_fd: int | None = None
        self._crash_fd = memory_file("penstock crash report", 0)
        try:
            ours, theirs = socket_pair()
        except BaseException:
            os.close(self._crash_fd)
            raise
        self.channel = channel_over(ours)
        _processes.add(self)
        try:
            self._process = subprocess.Popen(
                _command(name, theirs.fileno(), self._crash_fd),
                stdin=subprocess.DEVNULL,  # workers must not eat a script that is read from stdin
                pass_fds=(theirs.fileno(), self._crash_fd),
                env=os.environ | _ONE_THREAD,
            )
        except BaseException:
            self.channel.close()
            os.close(self._crash_fd)
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        # Old kernels, strict sandboxes and other systems have no pidfd.
        if sys.platform == "linux" and not is_portable:
            with suppress(OSError):
                self.pid_fd = os.pidfd_open(self.pid)
        # If the worker is dead already, the next read of its channel will show that.
        with suppress(OSError):
            self.channel.send(_frame("function"), fds=[function_fd], wait=False)

    def give(self, task: Task, arenas: Container[int]) -> None:
        """Send a task, and before it the arenas it needs; let the worker unmap those not in `arenas`."""
        self.unmap_all_but(arenas)
        for arena in task.arenas:
            if arena.arena_id not in self._arenas:
                frame = _frame("map", arena.arena_id, arena.nbytes)
                self.channel.send(frame, fds=[arena.fd], wait=False)
                self._arenas.add(arena.arena_id)
        self.channel.send(task.frame, wait=False)
        self.tasks.append(task)

    def unmap_all_but(self, arenas: Container[int]) -> None:
        """Let the worker unmap all arenas that are not in `arenas`."""
        for arena_id in [known for known in self._arenas if known not in arenas]:
            self.channel.send(_frame("drop", arena_id), wait=False)
            self._arenas.remove(arena_id)

    @property
    def is_dead(self) -> bool:
        """Tell whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def wait(self, seconds: float) -> bool:
        """Wait for the process to end; False if it is still there after that many seconds."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def bury(self) -> None:
        """Make sure that the process has ended, and release everything but its crash report."""
        self.channel.close()
        if not self.wait(GRACE_SECONDS):
            self.kill()
            self.wait(KILLED_SECONDS)
        # Forgotten first: its number must not be closed twice.
        pid_fd, self.pid_fd = self.pid_fd, None
        if pid_fd is not None:
            os.close(pid_fd)

    def death(self, task_id: object, traceback_text: str = "") -> WorkerDied:
        """Return the error that says how this worker ended while it had that task."""
        code = self._process.returncode
        signal_name = name_of_signal(-code) if code is not None and code < 0 else None
        exit_code = code if signal_name is None else None
        size = os.fstat(self._crash_fd).st_size
        crash = os.pread(self._crash_fd, size, 0).decode(errors="replace")
        return WorkerDied(
            self.name, task_id, self.pid, exit_code, signal_name, traceback_text or crash
        )

    def close(self) -> None:
        """Release the crash report, which `bury` leaves."""
        crash_fd, self._crash_fd = self._crash_fd, -1
        if crash_fd >= 0:
            os.close(crash_fd)


_processes: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    """In a forked child: close its copies of the channels, by whose end a worker knows that its parent has died."""
    for process in list(_processes):
        process.channel.forget()


os.register_at_fork(after_in_child=_leave_to_parent)


def surroundings() -> tuple[Any, ...]:
    """Return what a worker is started in, besides its function: one that was started elsewhere is another worker."""
    try:
        folder = os.getcwd()  # noqa: PTH109  # As a worker gets it.
    except OSError:  # It was removed.
        folder = ""
    return (_flags_and_path(), folder, dict(os.environ))


def _flags_and_path() -> tuple[list[str], list[str]]:
    # Private, but multiprocessing uses it, too: with other -O or -W flags a worker would behave differently.
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
    path: list[object] = list(sys.path)
    # Python itself skips entries that are not text, such as a Path.
    return flags, [entry for entry in path if isinstance(entry, str)]


def _command(name: str, channel_fd: int, crash_fd: int) -> list[str]:
    """Return the command line; its first argument names the worker in lists of processes."""
    flags, path = _flags_and_path()
    label = f"penstock worker of {name}"
    numbers = map(str, (channel_fd, crash_fd, os.getpid()))
    here = (_HERE, str(is_portable))
    return [sys.executable, *flags, "-c", _BOOTSTRAP, label, *here, *numbers, *path]


def _frame(*message: Any) -> Frame:
    return pack(message, dumps=pickle.dumps)


def block_interrupts() -> None:
    """Block Ctrl-C in this thread and in the workers it starts; a worker unblocks it once it ignores it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
