"""What a consumer waits for: calls and blocks that some thread makes."""

import contextlib
import threading
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import Any

from penstock.core.parcels import Begun, Parcel
from penstock.errors import StreamClosedError


def closed() -> StreamClosedError:
    """Return the error of whoever waits for a stream that was closed."""
    return StreamClosedError("the stream was closed.")


class Task:
    """A call to be made on some thread, and its result."""

    __slots__ = (
        "_done",
        "argument",
        "error",
        "function",
        "is_cancelled",
        "is_finished",
        "nbytes",
        "result",
    )

    def __init__(self, function: Callable[[Any], Any], argument: Any, nbytes: int) -> None:
        self.function = function
        self.argument = argument
        self.nbytes = nbytes
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.is_finished = False
        # A plain lock is the cheapest thing to wait for, and Ctrl-C interrupts it.
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def is_done(self) -> bool:
        """Whether the call was made."""
        return not self._done.locked()

    def run(self, *, is_closing: bool) -> tuple[float, float]:
        """Make the call; return the seconds that it took, and those of them on a core."""
        started, on_core = perf_counter(), thread_time()
        try:
            if is_closing:
                self.error = closed()
            elif not self.is_cancelled:
                self.result = self.function(self.argument)
        except BaseException as error:  # noqa: BLE001  # It is the consumer who must see it.
            self.error = error
        finally:
            self.argument = None
            self.is_finished = True
            self.wake()
        return perf_counter() - started, thread_time() - on_core

    def cancel(self) -> None:
        """Let it not begin, if it has not; nobody waits for it any more."""
        self.is_cancelled = True

    def wake(self) -> None:
        """Let whoever waits go on; not an error if it went on before."""
        with contextlib.suppress(RuntimeError):
            self._done.release()

    def wait(self) -> Any:
        """Return the result, or raise; only one thread waits, and only once."""
        self._done.acquire()
        if not self.is_finished:
            raise closed()
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # Its traceback refers to this frame, and so to `self`: a cycle.
        result, self.result = self.result, None
        return result


class Filling:
    """A block that a native job fills, on some thread."""

    __slots__ = ("_begun", "_end", "_helps", "nbytes")

    def __init__(
        self, begun: Begun, end: Callable[[Begun], Parcel], nbytes: int, *, helps: bool
    ) -> None:
        self._begun: Begun | None = begun
        self._end = end
        self._helps = helps
        self.nbytes = nbytes

    @property
    def is_done(self) -> bool:
        """Whether the block was filled."""
        return self._begun is None or self._begun.job.is_done

    def cancel(self) -> None:
        """Let it not begin; if it has begun, wait for its end, since it writes to memory that goes away."""
        if self._begun is not None:
            self._begun.job.cancel()

    def wake(self) -> None:
        """Let whoever waits go on."""
        begun = self._begun  # The one who waits may let go of it just now.
        if begun is not None:
            begun.job.wake()

    def wait(self) -> Parcel:
        """Return the block, or raise; only one thread waits, and only once. It may fill blocks meanwhile."""
        begun = self._begun
        assert begun is not None
        if not begun.job.wait(self._helps):
            raise closed()
        self._begun = (
            None  # Else the block would seem to be in use when its consumer is done with it.
        )
        return self._end(begun)
