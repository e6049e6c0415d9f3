"""Does a function hold the interpreter lock? A short measurement, made once, before the first batch."""

import os
import queue
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from penstock.core.crew import Crew

# Two threads make 1.0 times the calls of one if the lock is held all the time, and 2.0 if never.
_SPEEDUP_OF_FREE = 1.5
# If the lock seems to be held, it is measured once more where the speedup was this close to the one above,
# or other programs had the cores for more than this share of the time: a thread that loses its core while it
# has the lock goes on holding it. Disturbances lower the speedup and never raise it, so the better round counts.
_DOUBT, _BUSY = 0.25, 0.2
# Shares of the budget: for calls beside another thread, then for calls alone. Python passes the lock on every
# 5 ms, so the first share has to be several times that.
_BESIDE_SHARE, _ALONE_SHARE = 0.75, 0.25
# On a busy machine a lap goes on until its thread had enough time on a core; at most this many times as long.
_MOST_BUDGETS = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """What was measured, whether the function holds the lock, and the reason as text."""

    holds: bool
    speedup: float
    """The calls of two threads over those of one, if each thread had a core to itself."""
    seconds_per_call: float
    num_calls: int
    waited_for_core: float
    """The share of the time that the thread was ready to run and other programs had the core.

    `speedup` does not count this time, so that a busy machine is not mistaken for a held lock.
    """
    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class _Lap:
    """What one thread did: how many calls, the seconds that one call ran and slept, and that all waited for a core."""

    num_calls: int
    running: float
    asleep: float
    total_queued: float


def holds_lock(
    function: Callable[..., Any], *sample_inputs: Any, budget_seconds: float = 0.05
) -> Measurement:
    """Tell whether function(*sample_inputs) keeps other Python threads from running.

    Calls the function for about `budget_seconds`, on this thread and on one more; at least four times, however
    slow it is. An exception of the function is raised here.

    >>> holds_lock(lambda: sum(range(1000))).holds
    True
    """
    measured = _measure(function, sample_inputs, budget_seconds)
    is_close = measured.speedup > _SPEEDUP_OF_FREE - _DOUBT
    if measured.holds and (is_close or measured.waited_for_core > _BUSY):
        again = _measure(function, sample_inputs, budget_seconds)
        measured = max(measured, again, key=lambda each: each.speedup)
    return measured


def _measure(
    function: Callable[..., Any], inputs: tuple[Any, ...], budget_seconds: float
) -> Measurement:
    begun = time.perf_counter()
    with _Rival(function, inputs) as rival:
        beside = _run_lap(function, inputs, budget_seconds * _BESIDE_SHARE, rival)
    alone = _run_lap(function, inputs, budget_seconds * _ALONE_SHARE)
    # A thread that waits for the lock counts as asleep. How long a call sleeps by itself is measured alone; how
    # long it runs is measured beside the rival, since cores that share a cache run slower.
    own = beside.running + alone.asleep
    speedup = 2 * min(1.0, own / (beside.running + beside.asleep))
    seconds = time.perf_counter() - begun
    num_calls = beside.num_calls + rival.num_calls + alone.num_calls
    seconds_per_call = alone.running + alone.asleep
    holds = speedup < _SPEEDUP_OF_FREE
    verdict = "holds the interpreter lock" if holds else "lets go of the interpreter lock"
    return Measurement(
        holds=holds,
        speedup=speedup,
        seconds_per_call=seconds_per_call,
        num_calls=num_calls,
        waited_for_core=(beside.total_queued + alone.total_queued) / seconds,
        seconds=seconds,
        reason=(
            f"{verdict}: two threads make {speedup:.2f} times the calls of one "
            f"({_duration(seconds_per_call)} a call, {num_calls} calls in {_duration(seconds)})"
        ),
    )


class _Rival:
    """A thread that calls the function again and again; our calls begin after its first one."""

    def __init__(self, function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        self.num_calls = 0
        self._function, self._inputs = function, inputs
        self._is_warm: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_over = False
        self._error: BaseException | None = None
        self._crew = Crew()

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._function(*self._inputs)
                self.num_calls += 1
                if self.num_calls == 1:
                    # The first call may pay for imports and caches, so it is not measured.
                    self._is_warm.put(None)
        except BaseException as error:  # noqa: BLE001  raised by __exit__, on the caller's thread
            self._error = error
            self._is_warm.put(None)

    def __enter__(self) -> Self:
        try:
            self._crew.start(["penstock lock probe"], self._run)
            self._is_warm.get()
        except BaseException:  # Ctrl-C: there will be no __exit__.
            self._is_over = True
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        self._is_over = True
        self._crew.join()
        if self._error is not None:
            raise self._error


def _run_lap(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    seconds: float,
    rival: _Rival | None = None,
) -> _Lap:
    """Call function at least once, and until this thread ran or slept for `seconds`.

    It also goes on until the rival made half as many calls: a rival without a core does not ask for the lock.
    """
    queued, running = _seconds_queued(), time.thread_time()
    rival_calls = rival.num_calls if rival is not None else 0
    start = time.perf_counter()
    deadline, latest = start + seconds, start + seconds * _MOST_BUDGETS
    num_calls = 0
    while True:
        function(*inputs)
        num_calls += 1
        now = time.perf_counter()
        if now >= latest:
            break
        if now >= deadline:
            missing = seconds - (now - start) + (_seconds_queued() - queued)
            is_behind = rival is not None and 2 * (rival.num_calls - rival_calls + 1) < num_calls
            if missing <= 0 and not is_behind:
                break
            deadline = now + max(missing, seconds / 10)
    running = time.thread_time() - running
    queued = _seconds_queued() - queued
    asleep = max(0.0, time.perf_counter() - start - running - queued)
    return _Lap(num_calls, max(running, 1e-9) / num_calls, asleep / num_calls, queued)


def _seconds_queued() -> float:
    """Return how long this thread was ready to run but had no core; 0 where the system does not tell."""
    with suppress(OSError, IndexError, ValueError):
        fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        try:
            return int(os.read(fd, 100).split()[1]) * 1e-9
        finally:
            os.close(fd)
    return 0.0


def _duration(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
