"""Ctrl-C ends a wait at once, whatever else the process has loaded, and is heard of wherever it strikes."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


def keep_interrupting() -> None:
    """Let Ctrl-C interrupt waits for locks, as Python has it.

    Libraries that set a handler of their own may take that away: after `import polars`, the main thread that waits for
    a lock hears of Ctrl-C only when it has the lock. The handler stays theirs.
    """
    signal.siginterrupt(signal.SIGINT, True)  # noqa: FBT003  # It takes no keywords.


class Interrupts:
    """Hears of each Ctrl-C while it is entered, also of one that is lost: `check` raises it then.

    What is raised in a callback of the garbage collector, as JAX has one, is only printed, and the program goes on.
    """

    def __init__(self) -> None:
        self._is_struck = False
        self._before: Any = None

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        # Only the main thread may, and a process that ignores Ctrl-C goes on to do so.
        if threading.current_thread() is threading.main_thread() and callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._strike)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _strike(self, number: int, frame: FrameType | None) -> None:
        self._is_struck = True
        self._before(number, frame)

    def check(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C was pressed."""
        if self._is_struck:
            raise KeyboardInterrupt
