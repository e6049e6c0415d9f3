"""Writes what the watched streams of this process do: one thread, about once a second, for all of them.

The thread takes reports instead of the consumer: so a run is seen as it is while the consumer is in a long step of
its own, or waits for a block that does not come. It goes on for a minute after the last watched stream, and so does the
page: between two epochs a training may validate for a while, and the address of the page should stay the same.
"""

import atexit
import contextlib
import itertools
import multiprocessing.util
import os
import shlex
import socket
import sys
import threading
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, perf_counter, time
from typing import Any, Protocol

from penstock.core import forking, idle
from penstock.core.crew import Crew
from penstock.errors import warn_user
from penstock.live.pace import Pace
from penstock.live.runs import FORMAT, VERSION, clean_up, run_id, run_name, runs_folder, write_run
from penstock.live.server import PageServer
from penstock.reports.report import Report

_FIRST_SECONDS = 0.2  # Until the first look: whoever opens the page sees something.
_SECONDS = 1.0
_LINGER_SECONDS = 60.0
_COSTS = 200
"""After a look, so many times as long passes as it took: it takes longer for a chain of thousands of stages."""
_SHORT_SECONDS = 0.5
"""Epochs that are shorter are written when the thread comes to it: to look at each would be most of their time."""
_MOST_RUNS = 20
"""Datasets of this process that are kept apart; a search over many makes more."""
_MOST_EPOCHS = 100


class Watched(Protocol):
    """What is watched: a stream, or what stands in its place."""

    def report(self) -> Report:
        """Return what it has done so far."""
        ...

    @property
    def is_asking(self) -> bool:
        """Whether the consumer waits for data at this moment."""
        ...


class _Run:
    """One dataset that this process reads, epoch after epoch."""

    def __init__(self, number: int, node: Any, plan: Mapping[str, Any]) -> None:
        self.name = run_name(number)
        self.node = weakref.ref(node)
        self.plan = dict(plan)
        self.stream: weakref.ref[Watched] | None = None
        """The stream that is read, or was read last."""
        self.ended: Watched | None = None
        """That stream, if it was closed and nobody has looked at it since."""
        self.is_open = False
        self.opened = 0.0
        self.closed = 0.0
        self.looked = 0.0
        self.began_at = time()
        self.pace = Pace()
        self.epochs: deque[dict[str, Any]] = deque(maxlen=_MOST_EPOCHS)
        self.found: dict[str, Any] | None = None
        """What was written last."""

    def begin(self, stream: "weakref.ref[Watched]") -> None:
        self.stream, self.ended, self.is_open = stream, None, True
        self.pace = Pace()
        self.opened = monotonic()

    def end(self, stream: Watched) -> None:
        self.ended = stream
        self.closed = monotonic()
        self.is_open = False

    @property
    def has_news(self) -> bool:
        return self.is_open or self.ended is not None

    def look(self, common: Mapping[str, Any]) -> None:
        """Take the report of its stream."""
        reference, ended = self.stream, self.ended
        stream = ended or (None if reference is None else reference())
        self.looked = monotonic()
        if stream is not None:
            self._take(stream, common)
        elif self.found is not None and self.found["report"]["state"] == "open":
            self.found["report"]["state"] = "closed"  # It was collected, without being closed.
        # Another thread may have closed it meanwhile, or have opened the next.
        if ended is not None and self.ended is ended:
            self.ended = None
        elif stream is None and self.stream is reference:
            self.is_open = False

    def _take(self, stream: Watched, common: Mapping[str, Any]) -> None:
        report = stream.report()
        is_open = report.state == "open"
        now = self.pace.now(report, is_asking=is_open and stream.is_asking)
        if not is_open:
            if self.epochs and self.epochs[-1]["opened_at"] == report.opened_at:
                self.epochs.pop()  # It was noted before, when it had ended and was not closed.
            self.epochs.append(
                {
                    "epoch": report.epoch,
                    "opened_at": report.opened_at,
                    "num_rows": report.num_rows,
                    "seconds": report.seconds,
                    "waited_share": report.waited_share,
                    "state": report.state,
                }
            )
        self.found = {
            **common,
            "id": run_id(self.name),
            "began_at": self.began_at,
            "updated_at": time(),
            "pipeline": ".".join(stage.call for stage in report.stages),
            "plan": self.plan,
            "is_asking": is_open and stream.is_asking,
            "is_waiting": now.is_waiting,
            "now": now.to_dict(),
            "advice": report.advice,
            "bottleneck": report.bottleneck,
            "epochs": list(self.epochs),
            "error": "",
            "report": report.to_dict(spans=False),
        }


class Publisher:
    """The watched streams of this process, the thread that writes them, and the page."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._open: dict[int, _Run] = {}
        """The run of each open stream, by the stream's id."""
        self._numbers = itertools.count(1)
        self._table = forking.rlock()
        """Held while a run begins, and while the thread starts or ends."""
        self._writing = forking.lock()
        self._crew: Crew | None = None
        self._stop = threading.Lock()
        """Held until the thread is to end."""
        self._last_open = 0.0
        self._is_broken = False
        self._common = _process_facts()
        self.server: PageServer | None = None
        self._can_serve = True
        self._url = ""

    def begin(self, stream: Watched, node: Any, plan: Mapping[str, Any], *, rank: int) -> None:
        """Watch a stream of a node from now on."""
        with self._table:
            run = self._run_of(node, plan)
            key = id(stream)
            # A stream may be collected without being closed.
            run.begin(weakref.ref(stream, lambda _: self._open.pop(key, None)))
            self._open[key] = run
            self._last_open = monotonic()
            if self._crew is None:
                self._start()
            if run.found is None:
                self._look([run])  # It may be gone before the thread comes to it.
            if rank == 0 and self.server is None and self._can_serve:
                self._serve()

    def end(self, stream: Watched) -> None:
        """Take note that a watched stream was closed: by whoever closes it, maybe the garbage collector."""
        run = self._open.pop(id(stream), None)
        if run is None:
            return
        run.end(stream)
        self._last_open = monotonic()
        if run.closed - max(run.opened, run.looked) >= _SHORT_SECONDS:
            # Else the thread comes to it soon, or the end of the process does.
            self._look([run])

    def _run_of(self, node: Any, plan: Mapping[str, Any]) -> _Run:
        for run in self._runs:
            if run.node() is node and not run.is_open:
                self._runs.remove(run)
                if run.ended is not None and run.closed - run.opened >= _SHORT_SECONDS:
                    self._look([run])
                break
        else:
            run = _Run(next(self._numbers), node, plan)
        self._runs.append(run)  # At the end are those that were opened last.
        over = [one for one in self._runs if not one.has_news]
        for one in over[: max(0, len(self._runs) - _MOST_RUNS)]:
            self._runs.remove(one)
            (runs_folder() / f"{one.name}.json").unlink(missing_ok=True)
        return run

    # -- the thread ---------------------------------------------------------------------------

    def _start(self) -> None:
        clean_up()
        self._stop = threading.Lock()
        self._stop.acquire()
        self._crew = Crew()
        idle.keep(self, self)
        self._crew.start(["penstock-live"], self._work)

    def _work(self) -> None:
        stop, pause = self._stop, _FIRST_SECONDS
        while not stop.acquire(timeout=pause):
            started = perf_counter()
            self._look([run for run in list(self._runs) if run.has_news])
            pause = max(_SECONDS, _COSTS * (perf_counter() - started))
            with self._table:
                if self._open:
                    self._last_open = monotonic()
                elif monotonic() - self._last_open > _LINGER_SECONDS and self._stop is stop:
                    self._crew = None
                    self._close_server()
                    return

    def _look(self, runs: list[_Run]) -> None:
        """Look at runs and write what they do. What goes wrong with that is told once, and ends no training."""
        # Whoever is at it when the garbage collector closes a stream in the same thread comes to that one later.
        if self._is_broken or not self._writing.acquire(blocking=False):
            return
        try:
            for run in runs:
                run.look(self._common)
                if run.found is not None:
                    write_run(run.name, run.found)
        except Exception as problem:  # noqa: BLE001  # Whatever it is, the training goes on.
            self._is_broken = True
            warn_user(
                f"what this process reads is not shown on the live page any more: {problem}. The folder of runs is in "
                "the user's cache directory, which XDG_CACHE_HOME sets."
            )
        finally:
            self._writing.release()

    # -- the page -----------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self.server = PageServer.again(self._url)
            self.server.start()
        except OSError as problem:
            self._can_serve = False
            warn_user(f"there is no live page, since no port could be opened here: {problem}.")
            return
        if self.server.url != self._url and sys.stderr is not None:
            self._url = self.server.url
            sys.stderr.write(f"penstock: live page at {self._url}\n")
            sys.stderr.flush()

    def _close_server(self) -> None:
        server, self.server = self.server, None
        if server is not None:
            server.close()

    # -- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is left to write; end the thread and the page. The next watched stream starts them again."""
        with self._table:
            crew, self._crew = self._crew, None
            if crew is not None:
                self._stop.release()
            self._close_server()
        if crew is not None:
            crew.join()
        self._look([run for run in self._runs if run.has_news])

    def end_soon(self) -> None:
        """Do nothing: it is kept for as long as the process lives."""

    def at_exit(self) -> None:
        """Write how all ends, with the error that ends the process, if there is one. May be called more than once."""
        idle.take(self)
        self.close()
        error = getattr(sys, "last_value", None)
        text = "" if error is None else f"{type(error).__name__}: {error}".partition("\n")[0]
        for run in self._runs:
            found = run.found
            if found is None or found["report"]["state"] in ("ended", "failed"):
                continue
            found["report"]["state"] = "closed"
            found["error"] = text.removesuffix(": ")
            if not self._is_broken:
                with contextlib.suppress(
                    Exception
                ):  # The process ends, and nobody could do anything about it.
                    write_run(run.name, found)

    def leave_to_parent(self) -> None:
        """In a forked child: have no part in what the parent publishes."""
        if self.server is not None:
            self.server.leave_to_parent()
        forking.keep_for_ever(self)


def _process_facts() -> dict[str, Any]:
    """Return what is the same for all runs of this process."""
    words = list(sys.orig_argv) or [sys.executable]
    words[0] = Path(words[0]).name
    command = shlex.join(words)
    return {
        "format": FORMAT,
        "version": VERSION,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "command": command if len(command) <= 300 else command[:297] + "...",
        "folder": _here(),
    }


def _here() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # It was removed.
        return ""


_publisher: Publisher | None = None


def begin(stream: Watched, node: Any, plan: Mapping[str, Any], *, rank: int) -> None:
    """Watch a stream of a node: publish what it does, and serve the page. Its `plan` is shown with it."""
    global _publisher  # noqa: PLW0603  # One a process, made when it is first needed.
    try:
        if _publisher is None:
            _publisher = Publisher()
            atexit.register(_publisher.at_exit)
            if multiprocessing.parent_process() is not None:
                # Such a process may end without what is registered there, if it was forked.
                multiprocessing.util.Finalize(None, _publisher.at_exit, exitpriority=0)
        _publisher.begin(stream, node, plan, rank=rank)
    except Exception as problem:  # noqa: BLE001  # Whatever it is, the training goes on.
        warn_user(f"a stream is not shown on the live page: {problem}.")


def end(stream: Watched) -> None:
    """Take note that a watched stream was closed."""
    if _publisher is not None:
        _publisher.end(stream)


def _leave_to_parent() -> None:
    global _publisher  # noqa: PLW0603  # A forked child makes its own.
    if _publisher is not None:
        atexit.unregister(_publisher.at_exit)
        _publisher.leave_to_parent()
        _publisher = None


os.register_at_fork(after_in_child=_leave_to_parent)
