"""Files with bad rows: these are skipped and counted, and all other rows come in order."""

import copy
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, FileVersion, Flow, Node, Rows, rows_per_block
from penstock.core.state import cursor_row
from penstock.core.tally import Tally
from penstock.io.location import Location
from penstock.sources.reading.parts import BAD, bad
from penstock.sources.reading.read_blocks import block_rows

_FIRST = 64  # The first block is this many times smaller than the rest: the consumer is waiting.
_TRIES = 3  # A file may change again between finding what is bad and reading the rest.


@dataclass(frozen=True, slots=True)
class BadRun:
    """Bad rows, from `start` to `stop`; `where` names them as rows of their file."""

    start: int
    stop: int
    where: str
    error: Exception


class SkippableRows(Rows):
    """Rows of files with random access, of which the bad ones can be found."""

    locations: Sequence[Location]

    @abstractmethod
    def bad_runs(self, start: int, stop: int, context: Context) -> Iterator[BadRun]:
        """Yield the bad rows among `start` to `stop`, in runs as short as can be told apart."""

    def with_errors(self, on_error: str) -> Node:
        """Return the rows, or the flow that skips bad ones: it knows its number of rows only at its end."""
        return SkippingFlow(self) if on_error == "skip" else self


@dataclass(frozen=True, slots=True)
class _Read:
    """Rows `start` to `stop` as they were read: a parcel of the good ones, and the bad ones."""

    start: int
    stop: int
    parcel: Parcel
    bad_runs: list[BadRun]


class SkippingFlow(Flow):
    """The rows of files without the bad ones; the cursor is the number of the next row, bad or not."""

    num_rows = None

    def __init__(self, rows: SkippableRows) -> None:
        self.rows = rows
        self.locations = rows.locations
        self.structure = rows.structure
        self.fields = rows.fields
        self.skipped_files = rows.skipped_files

    def with_errors(self, on_error: str) -> Node:
        """Return this flow, or the rows, which raise where one is bad."""
        return self if on_error == "skip" else self.rows.with_errors(on_error)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the good rows, read ahead in parallel; bad ones are counted in order."""
        found = context.executor.ordered(
            partial(self._read, context), self._spans(cursor, context), self._span_nbytes, of=self
        )
        counting = _Counting(context.skipped)
        ready: list[Parcel] = []
        for read in found:
            counting.count(read)
            if read.parcel.size:
                ready.append(read.parcel)
            del read  # Else the block would count as held by the consumer.
            while ready:
                yield ready.pop()

    def _spans(self, cursor: Cursor, context: Context) -> Iterator[tuple[int, int]]:
        """Yield the rows of each block, which ends where a chunk does: what is bad is often bad as a whole."""
        start = cursor_row(self, cursor, self.rows.num_rows)
        most = rows_per_block(self, context.block_nbytes)
        chunk = block_rows(self.rows) if self.rows.grains else 1
        chunk = chunk if chunk <= most else 1
        size = max(1, most // _FIRST)
        while start < self.rows.num_rows:
            whole = max(start // chunk + 1, (start + size) // chunk)
            stop = min(self.rows.num_rows, whole * chunk)
            yield start, stop
            start, size = stop, min(most, 2 * size)

    def _span_nbytes(self, span: tuple[int, int]) -> int:
        size = span[1] - span[0]
        return self.block_nbytes(size) + self.rows.staging_nbytes(size)

    def _read(self, context: Context, span: tuple[int, int]) -> _Read:
        mark = context.clock.enter()
        try:
            return self._attempt(*span, context)
        finally:
            context.clock.leave(mark, self, 0)  # The rows are counted where they are handed on.

    def _attempt(self, start: int, stop: int, context: Context) -> _Read:
        """Read all rows at once; if that fails, find out which are bad, and read the others."""
        bad_runs: list[BadRun] = []
        for attempt in range(_TRIES):
            is_good = np.ones(stop - start, np.bool_)
            for bad_run in bad_runs:
                is_good[bad_run.start - start : bad_run.stop - start] = False
            good = np.flatnonzero(is_good)
            block = context.block(self, len(good))
            try:
                self._fill(start, good, block, context)
            except BAD as error:
                found = bad(error)
            else:
                places = np.append(good, stop - start) if bad_runs else None
                after = partial(_after, start, places)
                return _Read(start, stop, Parcel(block.finish(), len(good), after), bad_runs)
            del block  # Frees its memory for the search.
            if attempt + 1 < _TRIES:
                bad_runs = list(self.rows.bad_runs(start, stop, context))
        raise found

    def _fill(self, start: int, good: Index, block: Block, context: Context) -> None:
        """Read the good rows run by run: one read of rows that lie apart might read the bad ones between them, too."""
        done = 0
        for run in np.split(good, np.flatnonzero(np.diff(good) != 1) + 1):
            if len(run):
                is_all = len(run) == len(good)
                part = block if is_all else block.at(np.arange(done, done + len(run)))
                first = start + int(run[0])
                self.rows.fill(slice(first, first + len(run)), part, context)
                done += len(run)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way and of those that are ready, and what reading takes."""
        size = rows_per_block(self, block_nbytes)
        working = max(1, ahead) * self.rows.staging_nbytes(size)
        blocks = (2 * ahead + 3) * self.block_nbytes(size)
        return blocks + working + self.rows.retained_nbytes(ahead)

    def heaviest(self) -> str:
        """Return the row that takes most of the memory."""
        return self.rows.heaviest()

    def notes(self) -> tuple[str, ...]:
        """Return what it costs to skip bad rows."""
        note = (
            "on_error='skip' reads files forward: which rows there are is known at the end. A shuffle "
            "after it mixes windows. A resume goes straight to its row."
        )
        return (note,)

    def choice(self) -> str:
        """Return how the files are read."""
        return self.rows.choice()

    def describe(self) -> str:
        """Return the call that made the rows."""
        return self.rows.describe().removesuffix(")") + ", skip)"

    def fingerprint(self) -> Any:
        """Return what the order of the rows depends on."""
        return ["skip", self.rows.fingerprint()]

    def files_read(self) -> Iterator[FileVersion]:
        """Yield the files of the rows."""
        return self.rows.files_read()

    def evidence(self) -> Iterator[Evidence]:
        """Yield what the rows are made from."""
        return self.rows.evidence()


class SkippableFlow(Flow):
    """Files that are read forward; under `skip` bad rows and bad files are skipped."""

    skip = False
    locations: Sequence[Location]

    def with_errors(self, on_error: str) -> Node:
        """Return the flow that skips bad rows, or the one that raises."""
        if self.skip == (on_error == "skip"):
            return self
        other = copy.copy(self)
        other.skip = not self.skip
        return other

    def skip_bad(self, error: Exception, context: Context, num_rows: int = 1) -> None:
        """Count rows as skipped under `skip`, else raise their error."""
        if not self.skip:
            raise error
        context.skipped.add(bad(error), num_rows)


class _Counting:
    """Counts bad runs in the order of the rows; one that goes on in the next block is one error."""

    def __init__(self, skipped: Tally) -> None:
        self.skipped = skipped
        self.open: set[str] = set()
        """The errors at the very end of the last block, which may go on in the next."""

    def count(self, read: _Read) -> None:
        """Count the bad runs of one block."""
        is_bad = np.zeros(read.stop - read.start, np.bool_)
        num_bad = 0
        ending = set()
        for bad_run in read.bad_runs:
            is_bad[bad_run.start - read.start : bad_run.stop - read.start] = True
            num_new, num_bad = int(is_bad.sum()) - num_bad, int(is_bad.sum())
            what = str(bad_run.error)
            if bad_run.start == read.start and what in self.open:
                self.skipped.add_rows(bad_run.error, num_new)
            else:
                bad_run.error.add_note(f"Skipped: {bad_run.where}.")
                self.skipped.add(bad_run.error, num_new)
            if bad_run.stop == read.stop:
                ending.add(what)
        self.open = ending


def passed(places: Index | None, count: int) -> int:
    """Return how many rows, good and bad, are used up with the first `count` good ones.

    `places` has the place of each good row among all rows, followed by the number of all rows; None:
    all are good.
    """
    if places is None:
        return count
    if count == len(places) - 1:
        return int(places[-1])
    return int(places[count - 1]) + 1 if count else 0


def _after(start: int, places: Index | None, offset: int) -> Cursor:
    return start + passed(places, offset)
