"""How fast a run goes just now: the change over its last seconds, where a report tells of a whole epoch."""

from collections import deque
from dataclasses import asdict, dataclass, replace
from typing import Any

from penstock.reports.measured import Measured

_SECONDS = 5.0
"""Over how long the pace is taken: less flickers, more is late."""
WAITING_SECONDS = 2.0
"""A consumer that was given nothing for so long, and does not wait for data, is busy elsewhere."""


@dataclass(frozen=True, slots=True)
class Now:
    """The pace of the last seconds."""

    rows_per_second: float
    elements_per_second: float
    waited_share: float
    read_per_second: float
    stage_rows: tuple[float, ...]
    """Rows a second that each stage has made."""
    stage_busy: tuple[float, ...]
    """How many threads' worth of time each stage took."""
    is_waiting: bool
    """Whether the consumer has not asked for data for a while."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as what JSON can hold."""
        return asdict(self)


class Pace:
    """The last few reports of one epoch, by their figures."""

    def __init__(self) -> None:
        self._past: deque[Measured] = deque()
        self._moved = 0.0
        """When the consumer was given something last, as far as reports tell."""

    def now(self, report: Measured, *, is_asking: bool) -> Now:
        """Return the pace, with the report of this moment; `is_asking`: the consumer waits for data right now."""
        past = self._past
        if not past or past[-1].num_elements != report.num_elements or is_asking:
            self._moved = report.seconds
        while len(past) > 1 and report.seconds - past[1].seconds >= _SECONDS:
            past.popleft()
        first = past[0] if past else None
        past.append(_light(report))
        is_open = report.state == "open"
        return Now(
            rows_per_second=_rate(first, report, "num_rows"),
            elements_per_second=_rate(first, report, "num_elements"),
            waited_share=max(0.0, min(1.0, _rate(first, report, "waited_seconds"))),
            read_per_second=_rate(first, report, "read_nbytes"),
            stage_rows=_stage_rates(first, report, "num_rows"),
            stage_busy=_stage_rates(first, report, "seconds"),
            is_waiting=is_open and report.seconds - self._moved >= WAITING_SECONDS,
        )


def _light(report: Measured) -> Measured:
    """Return a report without what is large."""
    return replace(report, timeline=(), spans=(), decisions=(), skipped=(), skipped_files=())


def _rate(first: Measured | None, last: Measured, name: str) -> float:
    before = 0.0 if first is None else getattr(first, name)
    seconds = last.seconds - (0.0 if first is None else first.seconds)
    return max(0.0, (getattr(last, name) - before) / seconds) if seconds > 0 else 0.0


def _stage_rates(first: Measured | None, last: Measured, name: str) -> tuple[float, ...]:
    if first is None or len(first.stages) != len(last.stages):
        seconds = last.seconds
        return tuple(getattr(one, name) / seconds if seconds else 0.0 for one in last.stages)
    seconds = last.seconds - first.seconds
    return tuple(
        max(0.0, (getattr(b, name) - getattr(a, name)) / seconds) if seconds > 0 else 0.0
        for a, b in zip(first.stages, last.stages, strict=True)
    )
