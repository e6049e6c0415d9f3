"""Checksums of runs of rows: rows that are read are compared with what was written.

A run is checked when all of its rows were read. A read never grows for that: where it ends within a run, the checksum
of that piece is remembered for the read that goes on from there, which is how files are read forward.
"""

import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core import forking
from penstock.core.arrays import Array, Index
from penstock.core.rows import Context
from penstock.errors import DataError, MissingFileError
from penstock.io.cells import Sums
from penstock.io.formats.npy_header import read_header
from penstock.io.location import Location
from penstock.io.open import open_reader

CASTAGNOLI = 0x82F63B78
"""The polynomial of CRC32C."""
Stretch = tuple[int, int]
"""Rows that follow each other: the first row, and how many rows there are."""
# Pieces of runs whose other pieces may be on their way, on other threads: some 200 bytes each.
_MOST_PENDING = 4096


@dataclass(frozen=True, slots=True)
class RunGrid:
    """Where runs begin in a file of `num_rows` rows: the first has `first_rows`, all others `run_rows`."""

    num_rows: int
    run_rows: int
    first_rows: int

    @property
    def lead(self) -> int:
        """How many rows the first run is shorter than the others."""
        return self.run_rows - self.first_rows

    @property
    def num_runs(self) -> int:
        """How many runs there are; the last one may be short."""
        return -(-(self.num_rows + self.lead) // self.run_rows) if self.num_rows else 0

    def run_of(self, row: int) -> int:
        """Return the run that a row is in."""
        return (row + self.lead) // self.run_rows

    def bounds(self, run: int) -> tuple[int, int]:
        """Return the first row of a run, and the row after its last."""
        start = run * self.run_rows - self.lead
        return max(0, start), min(self.num_rows, start + self.run_rows)

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the bounds of each run that has some of the rows `start` to `stop`."""
        return map(self.bounds, range(self.run_of(start), self.run_of(stop - 1) + 1))

    def pieces(self, stretches: Sequence[Stretch]) -> tuple[Index, Index, Index]:
        """Return the pieces that runs cut stretches into: their first rows, the rows after their last, and the runs."""
        firsts, lengths = np.array(stretches, np.int64).T
        ends = firsts + lengths
        first_runs = (firsts + self.lead) // self.run_rows
        counts = (ends - 1 + self.lead) // self.run_rows - first_runs + 1
        before = np.cumsum(counts) - counts
        runs = np.arange(counts.sum()) + np.repeat(first_runs - before, counts)
        starts = runs * self.run_rows - self.lead
        stops = starts + self.run_rows
        return (
            np.maximum(starts, np.repeat(firsts, counts)),
            np.minimum(stops, np.repeat(ends, counts)),
            runs,
        )

    def are_whole(self, starts: Index, stops: Index, runs: Index) -> npt.NDArray[np.bool_]:
        """Return which pieces are all rows of their runs."""
        begins = runs * self.run_rows - self.lead
        ends = begins + self.run_rows
        is_whole: npt.NDArray[np.bool_] = np.logical_and(
            starts == np.maximum(begins, 0), stops == np.minimum(ends, self.num_rows)
        )
        return is_whole

    def edges(self, start: int, stop: int) -> Index:
        """Return `start`, the first row of each run that begins after it, and `stop`."""
        inner = np.arange((self.run_of(start) + 1) * self.run_rows - self.lead, stop, self.run_rows)
        return np.concatenate([[start], inner, [stop]])


@dataclass(frozen=True, slots=True)
class RunChecks:
    """The checksums of one array of rows, which lie in a `.npy` file beside it."""

    file: str
    """The file of the array."""
    location: Location
    """The file of its checksums."""
    crc32: int
    """The CRC-32 of all checksums: a wrong one must not condemn sound rows."""
    grid: RunGrid
    cure: str

    @property
    def nbytes(self) -> int:
        """The bytes of all checksums, which a stream keeps in memory."""
        return 4 * self.grid.num_runs

    def check(self, stretches: Sequence[Stretch], sums: Sums, width: int, context: Context) -> None:
        """Raise if rows of `width` bytes are not those that were written.

        `sums` are the checksums of the pieces that runs cut the stretches into, stretch by stretch.
        """
        kept = self._kept(context)
        kept.refuse_bad(stretches)
        if len(sums) == 1:  # A small read: plain numbers are quicker than arrays.
            first, length = stretches[0]
            is_all = self.grid.bounds(self.grid.run_of(first)) == (first, first + length)
            if is_all or context.budget is not None:
                kept.add(first, first + length, int(sums[0]), length * width)
            return
        starts, stops, runs = self.grid.pieces(stretches)
        is_whole = self.grid.are_whole(starts, stops, runs)
        if is_whole.any():
            wrong = np.flatnonzero(is_whole & (kept.expected()[runs] != sums))
            if len(wrong):
                raise kept.found_bad(int(runs[wrong[0]]))
        if context.budget is not None:
            for piece in np.flatnonzero(~is_whole).tolist():
                start, stop = int(starts[piece]), int(stops[piece])
                kept.add(start, stop, int(sums[piece]), (stop - start) * width)

    def check_spans(self, edges: Index, places: Index, memory: Array, context: Context) -> None:
        """Raise if rows that differ in size are not those that were written.

        `edges` are those of the grid for the rows that were read, and `places` the byte at which each edge is.
        """
        found = np.empty(len(edges) - 1, np.uint32)
        _native.crc32c_of_spans(memory, places, found)
        kept = self._kept(context)
        first, stop = int(edges[0]), int(edges[-1])
        kept.refuse_bad([(first, stop - first)])
        pieces = self._pieces(first, stop)
        skipped = int(any(start == first for start, _ in pieces))
        whole = found[skipped : len(found) - len(pieces) + skipped]
        if len(whole):
            begin = self.grid.run_of(int(edges[skipped]))
            wrong = np.flatnonzero(whole != kept.expected()[begin : begin + len(whole)])
            if len(wrong):
                raise kept.found_bad(begin + int(wrong[0]))
        if context.budget is not None:
            sizes = np.diff(places)
            for start, end in pieces:
                span = 0 if start == first else -1
                kept.add(start, end, int(found[span]), int(sizes[span]))

    def _pieces(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Return the rows at both ends of `start` to `stop` that are only a part of a run."""
        grid = self.grid
        begin, end = grid.bounds(grid.run_of(start))
        if (begin < start and stop <= end) or stop < end:
            return [(start, stop)]
        found = [(start, end)] if begin < start else []
        begin, end = grid.bounds(grid.run_of(stop - 1))
        return [*found, (begin, stop)] if stop < end else found

    def _kept(self, context: Context) -> "_Kept":
        return context.resources.get(("checks", self.location.url), lambda: _Kept(self))


class _Kept:
    """What a stream keeps of one file: its checksums, pieces of runs that were read, and bad runs."""

    def __init__(self, checks: RunChecks) -> None:
        self.checks = checks
        self._lock = forking.lock()
        self._loading = forking.lock()
        self._expected: Sums | None = None
        self._pending: OrderedDict[int, dict[int, tuple[int, int, int]]] = OrderedDict()
        """For each run, its pieces by their first row: the row after the last, checksum and bytes."""
        self._num_pending = 0
        self._bad: set[int] = set()

    def expected(self) -> Sums:
        """Return the checksums, which are read when they are first needed."""
        with self._loading:
            if self._expected is None:
                self._expected = _read_sums(self.checks)
            return self._expected

    def refuse_bad(self, stretches: Sequence[Stretch]) -> None:
        """Raise if some of the rows are of a run that was found to be bad: a part of it can't be told from the rest."""
        with self._lock:
            bad = sorted(self._bad)
        for run in bad:
            start, stop = self.checks.grid.bounds(run)
            if any(row < stop and start < row + length for row, length in stretches):
                raise self.found_bad(run)

    def add(self, start: int, stop: int, crc: int, nbytes: int) -> None:
        """Take the checksum of rows `start` to `stop`, of one run; raise if they complete the run and it is wrong."""
        run = self.checks.grid.run_of(start)
        first, last = self.checks.grid.bounds(run)
        if (start, stop) != (first, last):
            with self._lock:
                pieces = self._pending.setdefault(run, {})
                self._num_pending += start not in pieces
                pieces[start] = stop, crc, nbytes
                joined = _joined(pieces, first, last)
                if joined is not None:
                    self._num_pending -= len(self._pending.pop(run))
                elif self._num_pending > _MOST_PENDING:
                    self._num_pending -= len(self._pending.popitem(last=False)[1])
            if joined is None:
                return
            crc = joined
        if int(self.expected()[run]) != crc:
            raise self.found_bad(run)

    def found_bad(self, run: int) -> DataError:
        """Return the error for a run that is not what was written."""
        with self._lock:
            self._bad.add(run)
        checks = self.checks
        start, stop = checks.grid.bounds(run)
        problem = f"rows {start} to {stop} are not what was written: their checksum is another"
        return DataError(problem, file=checks.file, row=start, cure=checks.cure)

    def close(self) -> None:
        """Let go of the checksums."""
        self._expected = None


def _joined(pieces: dict[int, tuple[int, int, int]], row: int, stop: int) -> int | None:
    """Return the checksum of rows `row` to `stop` if there are pieces of all of them."""
    crc = 0
    while row < stop:
        if row not in pieces:
            return None
        row, part, nbytes = pieces[row]
        crc = _native.combined_crc(crc, part, nbytes, polynomial=CASTAGNOLI)
    return crc


def _read_sums(checks: RunChecks) -> Sums:
    def wrong(problem: str) -> DataError:
        return DataError(problem, file=str(checks.location), cure=checks.cure)

    try:
        with open_reader(checks.location) as reader:
            header = read_header(reader)
            if header.shape != (checks.grid.num_runs,) or header.dtype != np.dtype("<u4"):
                raise wrong(
                    f"must hold {checks.grid.num_runs} checksums of uint32, got "
                    f"{header.dtype} of shape {header.shape}"
                )
            sums: Sums = np.empty(header.shape, "<u4")
            reader.read_into(sums, header.data_offset)
    except MissingFileError as error:
        raise MissingFileError(
            f"the checksums of {checks.file} are missing",
            file=str(checks.location),
            cure=checks.cure,
        ) from error
    if zlib.crc32(sums.data) != checks.crc32:
        raise wrong(f"the checksums of {checks.file} are damaged themselves")
    return np.asarray(sums, np.uint32)
