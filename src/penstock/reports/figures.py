"""The values that a report is made of. Each can be written as JSON, and read back."""

from dataclasses import dataclass
from typing import NamedTuple

from penstock.memory import format_nbytes


@dataclass(frozen=True, slots=True)
class StageTime:
    """What one stage did itself, without its inputs, over all threads."""

    call: str
    seconds: float
    num_rows: int
    is_function: bool = False
    """Whether it runs a function of the user's."""
    kind: str = ""
    """What it is, as far as advice differs: "memory", "files", "remote" and "generator" are sources, "function" is a
    function of the user's, "shuffle" one of rows on storage; "" is any other stage."""
    is_batched: bool = False
    """Whether a row of it is a batch."""
    num_processes: int = 0
    """How many worker processes run its function; 0 if threads do, or the consumer."""
    placement: str = ""
    """Why its function runs where it does, as it was measured; '' where there was nothing to decide."""
    depth: int = 0
    """How many zips, concatenations and mixes it is an input of."""
    inputs: tuple[int, ...] = ()
    """The numbers of the stages whose rows it takes."""
    queue: float | None = None
    """How many blocks that it had made were waiting to be taken, on average; None if it makes none ahead."""


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
        return self.num_padding / max(1, self.num_values + self.num_padding)


@dataclass(frozen=True, slots=True)
class StageShuffle:
    """How one shuffle puts its rows in order, and how well that mixes them."""

    call: str
    kind: str
    """In words, as `explain()` has it."""
    mixing: float | None
    """From 0 (the order of the file) to 1 (a true shuffle); None where it can't be known: in a flow."""


@dataclass(frozen=True, slots=True)
class Decided:
    """Something that was decided by measurement: what, when, and why."""

    what: str
    why: str
    seconds: float = 0.0
    """Since the stream was opened; 0 before the first block."""

    def __str__(self) -> str:
        when = f" after {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.what}{when}: {self.why}"


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file with rows that were skipped, and how many."""

    file: str
    num_rows: int


@dataclass(frozen=True, slots=True)
class DeviceTraffic:
    """What a feed has copied to its device."""

    nbytes: int
    """Bytes of data that were copied for the epoch of the report."""
    all_nbytes: int
    """Bytes of data that were copied since the feed was made, over all its epochs."""
    data_nbytes: int
    """Bytes of one epoch, each counted once."""
    index_nbytes: int = 0
    """Bytes of row numbers that were sent instead of data, to gather rows by that are on the device."""
    is_resident: bool = False
    """Whether the data stays on the device."""
    is_shared: bool = False
    """Whether the device is the CPU, which used the batches where they were: nothing was copied."""

    @property
    def copies(self) -> float:
        """How often each byte was copied to the device so far, on average."""
        return self.all_nbytes / self.data_nbytes if self.data_nbytes else 0.0

    def __str__(self) -> str:
        if self.is_shared:
            return "nothing was copied: the CPU uses batches where they are"
        text = (
            f"{format_nbytes(self.nbytes)} in this epoch, {format_nbytes(self.all_nbytes)} in all"
        )
        stays = ", and it stays there" if self.is_resident else ""
        return f"{text}: each byte was copied {self.copies:.1f} times{stays}"


class Sample(NamedTuple):
    """How far a stream was at one moment. The counts are sums since it was opened."""

    seconds: float
    """Since the stream was opened."""
    num_elements: int
    num_rows: int
    nbytes: int
    """Of the blocks that were handed out."""
    read_nbytes: int
    waited_seconds: float
    ledger_nbytes: int
    """What the stream held at that moment, by the ledger; where samples were merged, the most of them."""
    held_nbytes: int
    """What the consumer kept alive, of batches that it had gone past; likewise."""
    queue: int
    """How many blocks were waiting for the consumer at that moment; where samples were merged, the fewest."""
    threads: int
    stage_seconds: tuple[float, ...]
    """The time of each stage itself, in the order of the report's stages."""
    queues: tuple[int | None, ...]
    """How many blocks of each stage were waiting to be taken; None for those that make none ahead."""


class Span(NamedTuple):
    """A piece of work of one thread, or a wait."""

    stage: int
    """The number of the stage, in the order of the report's stages; -1 for waiting for another thread."""
    thread: int
    """The number of the thread, in the order of the report's threads."""
    start: float
    """In seconds since the stream was opened."""
    seconds: float
    """With what the stages took that it asked for rows."""
