"""What can go wrong with code that runs in a worker process."""

import pickle
import signal
from dataclasses import dataclass

from penstock.errors import PenstockError


class PoolClosed(PenstockError, RuntimeError):
    """A task was given to a pool that is closed, or was under way when the pool was closed."""


class RemoteError(PenstockError, RuntimeError):
    """Stands for an exception of a worker whose own type cannot be rebuilt here; `type_name` names that type."""

    def __init__(self, message: str, type_name: str) -> None:
        super().__init__(message, type_name)
        self.type_name = type_name

    def __str__(self) -> str:
        return str(self.args[0])


class WorkerDied(PenstockError, RuntimeError):
    """A worker ended while it had a task: killed, crashed, or told to exit by the code it ran.

    `exit_code` and `signal_name` say how (one of them is None), `task_id` says during which task,
    `traceback_text` where in the Python code, if that is known.
    """

    def __init__(
        self,
        name: str,
        task_id: object,
        pid: int,
        exit_code: int | None,
        signal_name: str | None,
        traceback_text: str = "",
    ) -> None:
        super().__init__(name, task_id, pid, exit_code, signal_name, traceback_text)
        self.name, self.task_id, self.pid = name, task_id, pid
        self.exit_code, self.signal_name = exit_code, signal_name
        self.traceback_text = traceback_text

    def __str__(self) -> str:
        when = "while it started" if self.task_id is None else f"during task {self.task_id!r}"
        if self.signal_name is None:
            how = f"exited with code {self.exit_code}"
            cure = (
                "The function, or something it calls, ended it: let it raise an exception instead."
            )
        elif self.signal_name == "SIGKILL":
            how = "was killed by SIGKILL"
            cure = (
                "If nobody sent it, the kernel did, for want of memory: let the function hold less "
                "at a time, or use fewer processes."
            )
        else:
            how = f"was ended by {self.signal_name}"
            cure = "Native code that the function calls crashed, or someone sent the signal."
        text = f"{self.name}: worker process {self.pid} {how} {when}. {cure}"
        return f"{text}\n{self.traceback_text}" if self.traceback_text else text


class RemoteTraceback(Exception):
    """The cause of an exception that came from a worker: its traceback in the worker, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as a worker sends it: its pickle if it has one, and its type, message and traceback as text."""

    pickled: bytes | None
    type_name: str
    text: str
    traceback_text: str

    def rebuild(self) -> BaseException:
        """Return the exception, or a RemoteError in its place, caused by the remote traceback."""
        error: object = None
        if self.pickled is not None:
            try:
                error = pickle.loads(self.pickled)
            except Exception:  # noqa: BLE001  its class may raise anything
                error = None  # some can be pickled but not unpickled: __init__ wants more than args
        if not isinstance(error, BaseException):
            words = f"{self.type_name}: {self.text}" if self.text else self.type_name
            error = RemoteError(words, self.type_name)
        error.__cause__ = RemoteTraceback(self.traceback_text)
        return error


def name_of_signal(number: int) -> str:
    """Return SIGKILL for 9, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
