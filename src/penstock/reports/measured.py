"""What was measured of a stream: the fields of a report, without what can be done with it."""

from dataclasses import dataclass

from penstock.reports.figures import (
    Decided,
    DeviceTraffic,
    Sample,
    SkippedFile,
    Span,
    StagePadding,
    StageShuffle,
    StageTime,
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The fields of a `Report`."""

    epoch: int
    num_elements: int
    """Batches that the consumer was given; rows, without `batch`."""
    nbytes: int
    """Bytes of the blocks that they were in."""
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
    decisions: tuple[Decided, ...] = ()
    """What was decided by measurement, when, and why."""
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

    num_rows: int = 0
    """Rows in the batches that the consumer was given."""
    is_batched: bool = False
    num_expected: int | None = None
    """How many elements the consumer gets if it reads to the end; None if nobody knows, or there is no end."""
    read_nbytes: int = 0
    """Bytes that were read from files: on this machine, over the network, and from the cache of remote files."""
    device: DeviceTraffic | None = None
    """What went to the device, if a feed has read the stream; None if it went nowhere."""
    timeline: tuple[Sample, ...] = ()
    """How far it was, and when: at most 240 samples, the last one from the moment of the report."""
    spans: tuple[Span, ...] = ()
    """The last pieces of work of each thread, and its waits; at most 2,048, and none shorter than 20 us."""
    thread_names: tuple[str, ...] = ()
    shuffles: tuple[StageShuffle, ...] = ()
    skipped_files: tuple[SkippedFile, ...] = ()
    """Where bad rows were skipped, for errors that have a file; of at most 1,000 files."""
    full_nbytes: int = 0
    """The memory budget that would not have made the plan smaller; 0 if it was not made smaller."""
    cores: int = 0
    """How many cores this process may use."""
    opened_at: float = 0.0
    """When the stream was opened, in seconds since 1970."""
    state: str = "open"
    """"open", "ended" at the last element, "closed" before it, or "failed"."""
    error: str = ""
    """The error that ended it."""
    rank: int = 0
    """Which rank of a distributed run it is of, and of how many."""
    world: int = 1
    ranks: "tuple[Measured, ...]" = ()
    """The reports that it was merged from, by `merge_reports`."""

    @property
    def num_batches(self) -> int:
        """Batches that the consumer was given; 0 without `batch`."""
        return self.num_elements if self.is_batched else 0

    @property
    def elements_per_second(self) -> float:
        """Batches (or rows, without `batch`) a second."""
        return self.num_elements / self.seconds if self.seconds else 0.0

    @property
    def rows_per_second(self) -> float:
        """Rows a second."""
        return self.num_rows / self.seconds if self.seconds else 0.0

    @property
    def waited_share(self) -> float:
        """The share of the time that the consumer waited for data, from 0 to 1."""
        return min(1.0, self.waited_seconds / self.seconds) if self.seconds else 0.0
