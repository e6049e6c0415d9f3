"""How far a long step is, and the bars that show it: those of the command that runs, or those that a call asks for.

The library tells of its long steps (`begin`), and shows nothing by itself: a command that has a terminal says by
`shown_by` who shows them. `write(progress=True)` has a bar of its own.
"""

import contextlib
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from penstock.core.optional import require

_DELAY = 0.5  # Seconds until a bar is shown: what ends sooner needs none.
_INTERVAL = 0.1  # Seconds between two looks of a bar; some steps advance a thousand times a second.


class Step:
    """A step that nobody looks at; `Bar` is one that is shown. Any thread may advance it."""

    def advance(self, count: int, nbytes: int = 0) -> None:
        """Tell that so much more is done; `nbytes` is what that was in bytes, for the speed."""

    def close(self) -> None:
        """End the step, whether or not all of it was done. May be called more than once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


Show = Callable[[str, int | None, int, str], Step]
"""Shows a step, by what it is, the total, how much of that is done, and the unit of both: "rows", "bytes" ..."""
_show: Show | None = None


@contextlib.contextmanager
def shown_by(show: Show | None) -> Iterator[None]:
    """Have `show` show all long steps that begin meanwhile, in any thread of this process."""
    global _show  # noqa: PLW0603  # One terminal, one who writes to it.
    before, _show = _show, show
    try:
        yield
    finally:
        _show = before


def begin(
    what: str, *, total: int | None, done: int = 0, unit: str = "rows", wanted: bool | None = None
) -> Step:
    """Return a step that begins now, to be advanced and closed; it is shown if somebody shows steps.

    `wanted=True` shows it in any case, and needs rich; `wanted=False` shows nothing.
    """
    if wanted is False or (wanted is None and _show is None):
        return Step()
    show = _show
    if show is None:
        require("rich.progress", "progress=True", "progress")
        show = Bars(delay=0.0, stays=True).begin
    return show(what, total, done, unit)


def can_show() -> bool:
    """Return whether there can be bars: whether rich is installed. It is imported when the first bar is shown."""
    return importlib.util.find_spec("rich") is not None


class Bars:
    """The bars of a terminal, on stderr: one for each step under way, that took longer than a moment."""

    def __init__(self, *, delay: float = _DELAY, stays: bool = False) -> None:
        """Show bars after `delay` seconds; with `stays`, a bar is left on the screen when it ends."""
        self.delay = delay
        self.stays = stays
        self._lock = threading.Lock()
        self._shown: Any = None
        self._num_shown = 0
        self._is_closed = False

    def begin(self, what: str, total: int | None, done: int, unit: str) -> "Bar":
        """Return a bar for one step."""
        return Bar(self, what, total, done, unit)

    def add(self, what: str, total: int | None, **words: str) -> tuple[Any, Any] | None:
        """Put a bar on the screen; return the display that it is in, and its number there. None after `close`."""
        with self._lock:
            if self._is_closed:
                return None
            if self._shown is None:
                self._shown = _display(stays=self.stays)
                self._shown.start()
            self._num_shown += 1
            return self._shown, self._shown.add_task(what, total=total, **words)

    def close(self) -> None:
        """Leave the terminal as it was, whatever is still under way: nothing is shown from now on."""
        with self._lock:
            shown, self._shown = self._shown, None
            self._is_closed = True
            if shown is not None:
                shown.stop()

    def remove(self, task: Any) -> None:
        """Take a bar off the screen (unless bars stay); the last one leaves the terminal as it was."""
        with self._lock:
            if self._shown is None:
                return
            if not self.stays:
                self._shown.remove_task(task)
            self._num_shown -= 1
            if not self._num_shown:
                self._shown.stop()
                self._shown = None


def _display(*, stays: bool) -> Any:
    import rich.console
    import rich.progress as bars

    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=24),
        bars.TextColumn("{task.fields[amount]}"),
        bars.TextColumn("{task.fields[speed]}"),
        bars.TimeRemainingColumn(compact=True),
        bars.TextColumn("left"),
        console=rich.console.Console(stderr=True),
        transient=not stays,
        redirect_stdout=False,  # What a command prints is for stdout, wherever that leads.
    )


class Bar(Step):
    """A step that is shown, once it took longer than a moment."""

    def __init__(self, bars: Bars, what: str, total: int | None, done: int, unit: str) -> None:
        self._bars = bars
        self._what, self._total, self._unit = what, total, unit
        self._start = self._done = done
        self._nbytes = 0
        self._began = time.monotonic()
        self._looked = self._began + bars.delay - _INTERVAL
        self._task: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def advance(self, count: int, nbytes: int = 0) -> None:
        """Tell that so much more is done."""
        with self._lock:
            self._done += count
            self._nbytes += count if self._unit == "bytes" else nbytes
            if time.monotonic() - self._looked >= _INTERVAL:
                self._show()

    def close(self) -> None:
        """Show the end, if any of it was shown or bars stay, and end the bar."""
        with self._lock:
            began, self._began = self._began, 0.0
            if not began:
                return
            if self._bars.stays:
                self._began = began
                self._show()
                self._began = 0.0
            if self._task is not None:
                self._bars.remove(self._task[1])

    def _show(self) -> None:
        self._looked = time.monotonic()
        if not self._began:
            return  # It was closed by another thread.
        seconds = max(1e-3, self._looked - self._began)
        per_second = f"{self._nbytes / seconds / 1e6:,.0f} MB/s" if self._nbytes else ""
        if not per_second and self._unit != "bytes":
            per_second = f"{(self._done - self._start) / seconds:,.0f}/s"
        words = {"amount": self._amount(), "speed": per_second}
        if self._task is None:
            self._task = self._bars.add(self._what, self._total, **words)
        if self._task is not None:
            shown, task = self._task
            shown.update(task, completed=self._done, **words)

    def _amount(self) -> str:
        if self._unit == "bytes":
            total = "" if self._total is None else f" of {self._total / 1e6:,.0f}"
            return f"{self._done / 1e6:,.0f}{total} MB"
        total = "" if self._total is None else f" of {self._total:,}"
        return f"{self._done:,}{total} {self._unit}"
