"""The report: what a stream did, where the time went, and what to change."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import indent

from penstock.memory import format_nbytes


@dataclass(frozen=True, slots=True)
class StageTime:
    """The time that one stage took itself, without its inputs, over all threads."""

    call: str
    seconds: float
    num_rows: int
    is_function: bool = False
    """Whether it runs a function of the user's."""


@dataclass(frozen=True, slots=True)
class StagePadding:
    """How much of what one stage made is padding, in the fields that it pads."""

    call: str
    num_values: int
    """Values that are not padding."""
    num_padding: int

    @property
    def share(self) -> float:
        """The share of padding, from 0 to 1."""
        return self.num_padding / (self.num_values + self.num_padding)


@dataclass(frozen=True, slots=True)
class Report:
    """What a stream has done so far; `print` it, or look at its fields."""

    epoch: int
    num_elements: int
    nbytes: int
    seconds: float
    """Since the stream was opened."""
    waited_seconds: float
    """How long the consumer waited for data."""
    stages: tuple[StageTime, ...]
    threads: int
    num_blocks: int
    peak_nbytes: int
    held_nbytes: int
    """The most bytes that the consumer kept alive, of batches that it had gone past."""
    budget_nbytes: int
    decisions: tuple[str, ...] = ()
    """What was decided by measurement, and why."""
    num_skipped: int = 0
    """Bad rows that were skipped, by `on_error="skip"`."""
    skipped: tuple[str, ...] = ()
    """What was wrong with the first few of them and where they are; for functions, with tracebacks."""
    padding: tuple[StagePadding, ...] = ()
    """The share of padding, for each stage that pads; of what was made, which may be ahead of the consumer."""

    net_nbytes: int = 0
    """Bytes of its remote files that were read over the network while it was open."""
    cache_nbytes: int = 0
    """Bytes of them that came from the cache on this machine instead, by `remote_cache`."""

    @property
    def elements_per_second(self) -> float:
        """Batches (or rows, without `batch`) a second."""
        return self.num_elements / self.seconds if self.seconds else 0.0

    @property
    def bottleneck(self) -> str:
        """The stage that took the most time, or 'the consumer' if data was always there."""
        if self.seconds and self.waited_seconds < 0.02 * self.seconds:
            return "the consumer"
        return "" if self._slowest is None else self._slowest.call

    @property
    def _slowest(self) -> StageTime | None:
        return max(self.stages, key=lambda stage: stage.seconds, default=None)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        share = 100 * self.waited_seconds / self.seconds if self.seconds else 0.0
        yield (
            f"epoch {self.epoch}: {self.num_elements} elements, {format_nbytes(self.nbytes)} in "
            f"{self.num_blocks} blocks, {self.seconds:.3f} s ({self.elements_per_second:,.0f} a second)"
        )
        yield f"  waited for data   {self.waited_seconds:.3f} s ({share:.1f} %)"
        for stage in self.stages:
            yield f"  {stage.seconds:9.3f} s  {stage.call}, {stage.num_rows} rows"
        yield (
            f"  memory            peak {format_nbytes(self.peak_nbytes)} of a budget of "
            f"{format_nbytes(self.budget_nbytes)}, held by the consumer {format_nbytes(self.held_nbytes)}"
        )
        for one in self.padding:
            total = one.num_values + one.num_padding
            yield f"  padding           {100 * one.share:.1f} % of {total} values of {one.call}"
        if self.net_nbytes or self.cache_nbytes:
            yield (
                f"  remote files      {format_nbytes(self.net_nbytes)} over the network, "
                f"{format_nbytes(self.cache_nbytes)} from the cache"
            )
        for decision in self.decisions:
            yield f"  decided           {decision}"
        if self.num_skipped:
            yield f"  skipped           {self.num_skipped} bad rows"
            yield from (indent(error, "    ") for error in self.skipped)
        yield f"  bottleneck        {self.bottleneck}{self._advice()}"

    def _advice(self) -> str:
        if self.bottleneck == "the consumer":
            return ": data was always ready"
        if self._slowest is not None and self._slowest.is_function:
            return ": make the function faster, or call it on batches (.batch(n).map(f))"
        return ""
