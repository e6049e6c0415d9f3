"""Tuning: more threads or a deeper queue, tried while the consumer waits, and kept only if it pays.

Each number is only ever raised. A raise that does not pay is taken back once, and that number is then
left alone: so it settles after a few periods, and can't swing to and fro. What is tuned is when
blocks are made; which rows are in them, and in which order they come, does not depend on it.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from penstock.core.lazy import lazy

if TYPE_CHECKING:
    from penstock.reports import figures
else:
    figures = lazy("penstock.reports.figures")  # `import penstock` does not wait for it.

_PERIOD_SECONDS = 0.5  # Long enough that one slow block decides nothing.
_PERIOD_BLOCKS = 4
_STALL = 0.05  # Share of the time that the consumer waits: less is not worth a thread.
# Share of their time. Busier threads: more of them would have something to do. Busier cores: they would not.
_BUSY = 0.8
_PAYS = 1.05  # Times the bytes a second: less is noise.
_THREADS_A_CORE = 4
_DEPTH_A_THREAD = 4


class Tunable(Protocol):
    """What is tuned: the threads of a stream."""

    count: int
    ahead: int

    @property
    def busy_seconds(self) -> float:
        """What all tasks took so far."""
        ...

    @property
    def core_seconds(self) -> float:
        """What they took of that on a core."""
        ...

    def resize(self, count: int) -> None:
        """Set the number of threads."""
        ...


@dataclass(frozen=True, slots=True)
class Period:
    """What was measured between two decisions."""

    seconds: float
    waited_seconds: float
    """How long the consumer waited."""
    nbytes: int
    """What the consumer was given."""
    busy_seconds: float
    core_seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.nbytes / self.seconds


@dataclass(slots=True)
class _Trial:
    name: str
    before: int
    rate: float


class Tuner:
    """Decides, period after period, how many threads there are and how many blocks they are ahead."""

    def __init__(self, threads: Tunable, cores: int) -> None:
        self._threads = threads
        self._cores = cores
        self._most = {
            "threads": _THREADS_A_CORE * cores,
            "blocks ahead": _DEPTH_A_THREAD * (threads.ahead + 1),
        }
        self._settled: set[str] = set()
        self._trial: _Trial | None = None
        self.decisions: list[figures.Decided] = []
        self._has_failed = False
        self._opened = perf_counter()
        self._started: float | None = None
        self._waited = 0.0
        self._nbytes = 0
        self._num_blocks = 0
        self._busy = self._core = 0.0

    def handed_out(self, nbytes: int, waited_seconds: float) -> None:
        """Take note of a block, on the consumer's thread; decide at the end of a period."""
        if self._has_failed:
            return
        try:
            self._note(nbytes, waited_seconds)
        except Exception as error:  # noqa: BLE001  # The stream goes on without: the system may refuse a thread.
            self._has_failed = True
            seconds = perf_counter() - self._opened
            why = f"{type(error).__name__}: {error}"
            self.decisions.append(figures.Decided("tuning has stopped", why, seconds))

    def _note(self, nbytes: int, waited_seconds: float) -> None:
        now = perf_counter()
        if self._started is None:
            self._started = now  # The first block waits for threads, files and processes to start.
            return
        self._nbytes += nbytes
        self._waited += waited_seconds
        self._num_blocks += 1
        seconds = now - self._started
        if seconds < _PERIOD_SECONDS or self._num_blocks < _PERIOD_BLOCKS:
            return
        busy, core = self._threads.busy_seconds, self._threads.core_seconds
        period = Period(seconds, self._waited, self._nbytes, busy - self._busy, core - self._core)
        self.decide(period, now - self._opened)
        self._started, self._busy, self._core = now, busy, core
        self._waited, self._nbytes, self._num_blocks = 0.0, 0, 0

    def decide(self, period: Period, at_seconds: float) -> None:
        """Keep or take back what was tried in this period; try the next thing if the consumer waits."""
        trial, self._trial = self._trial, None
        if trial is not None and period.rate < _PAYS * trial.rate:
            gave = 100 * period.rate / trial.rate if trial.rate else 0.0
            why = f"{self._value(trial.name)} gave {gave:.0f} % of the bytes a second"
            self._settled.add(trial.name)
            self._set(trial.name, trial.before, at_seconds, why)
            return
        stalled = period.waited_seconds / period.seconds
        if stalled < _STALL:
            return
        busy = period.busy_seconds / (period.seconds * self._threads.count)
        on_core = period.core_seconds / max(period.busy_seconds, 1e-9)
        name = "blocks ahead"
        if busy >= _BUSY:
            # There may be more threads than cores if they wait for a disk or a lock.
            if period.core_seconds >= _BUSY * self._cores * period.seconds:
                return  # The cores are busy: more threads would not help.
            name = "threads"
        before = self._value(name)
        after = min(self._most[name], before + max(1, before // 2))
        if name in self._settled or after <= before:
            return
        why = (
            f"the consumer waited {100 * stalled:.0f} % of the time, the threads were busy "
            f"{100 * busy:.0f} % of it, and on a core {100 * on_core:.0f} % of that"
        )
        self._trial = _Trial(name, before, period.rate)
        self._set(name, after, at_seconds, why)

    def _value(self, name: str) -> int:
        return self._threads.count if name == "threads" else self._threads.ahead

    def _set(self, name: str, value: int, at_seconds: float, why: str) -> None:
        before = self._value(name)
        if name == "threads":
            self._threads.resize(value)
            # Else some threads have nothing to do.
            self._threads.ahead = max(self._threads.ahead, value + 1)
        else:
            self._threads.ahead = value
        self.decisions.append(figures.Decided(f"{name} {before} -> {value}", why, at_seconds))
