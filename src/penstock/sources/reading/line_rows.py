"""Files of lines with random access: runs of lines are found by an index, and read many at a time."""

import copy
import itertools
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fields import round_up
from penstock.core.grains import Grain
from penstock.core.rows import Context, Node, Rows, RowSet, Runs, count, run_rows
from penstock.errors import FileChangedError
from penstock.io.location import Location
from penstock.io.open import describe_reading
from penstock.io.reader import Bytes, Range
from penstock.io.sizes import PIECE_NBYTES
from penstock.memory import allocate_plain, format_nbytes
from penstock.sources.reading.line_flow import LineFlow
from penstock.sources.reading.line_index import RUN_NBYTES, LineIndex
from penstock.sources.reading.open_files import reader_of
from penstock.sources.reading.parts import skipped_words
from penstock.sources.reading.read_blocks import block_rows, grain_words

# Sizes of buffers are multiples of this, so that they can be reused: reads differ by a few lines.
_GRAIN_NBYTES = 1 << 16
_SPAN_NBYTES = 16  # Of a row: where it begins and ends in a buffer.
_DENSE = 4  # Reads are as large as usual up to so many bytes in all for each byte of text.


@dataclass(frozen=True, slots=True)
class Loaded:
    """Runs in memory, each with its line ends: `buffer[starts[k]:]` begins with row `firsts[k]`.

    Before the first run there is a line end, too.
    """

    buffer: Bytes
    starts: Index
    runs: Index
    firsts: Index
    bases: Index
    """How many rows stand before each run in the buffer; last, how many there are."""


class LineRows(Rows):
    """Rows made of lines, with random access; `flow` reads the same rows forward, and can skip bad ones."""

    locations: Sequence[Location]

    def __init__(self, flow: LineFlow, indexes: Sequence[LineIndex]) -> None:
        self.flow = flow
        self.dialect = flow.dialect
        self.locations = flow.locations
        self.structure = flow.structure
        self.fields = flow.fields
        self.starts = np.cumsum([0] + [one.num_rows for one in indexes])
        """The first row of each file."""
        self.inner_starts: list[int] = self.starts[1:-1].tolist()
        self.num_rows = int(self.starts[-1])
        firsts = [
            one.rows[:-1] + int(first) for one, first in zip(indexes, self.starts[:-1], strict=True)
        ]
        self.edges = np.concatenate([*firsts, self.starts[-1:]])
        """The first row of each run, and the number of rows."""
        self.offsets = np.concatenate([one.edges[:-1] for one in indexes])
        self.sizes = np.concatenate([np.diff(one.edges) for one in indexes])
        self.owners = np.repeat(np.arange(len(indexes)), [len(one.rows) - 1 for one in indexes])
        self.is_open = np.zeros(len(self.sizes), np.bool_)
        lasts = np.cumsum([len(one.rows) - 1 for one in indexes]) - 1
        self.is_open[
            [last for last, one in zip(lasts, indexes, strict=True) if one.is_open and one.num_rows]
        ] = True
        self.widest = int(self.sizes.max(initial=0))
        total = int(self.sizes.sum())
        self.mean_nbytes = -(-total // max(1, self.num_rows))
        self.grains = (Grain(1, self.mean_nbytes),)
        densities = np.diff(self.edges) / np.maximum(self.sizes, 1)
        self.densest = float(densities.max(initial=0.0))
        """Rows for each byte, where lines are shortest."""
        dense = 1 + _SPAN_NBYTES * self.densest
        self.piece_nbytes = max(RUN_NBYTES, int(PIECE_NBYTES * min(1, _DENSE / dense)))

    # -- reading --------------------------------------------------------------------------------

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the runs that have the rows, a few MB at a time, and make rows of their lines."""
        if not count(rows):
            return
        if isinstance(rows, slice):
            first, last = (
                np.searchsorted(self.edges, [rows.start, rows.stop - 1], "right") - 1
            ).tolist()
            runs = np.arange(first, last + 1)
            for begin, end in self._groups(runs):
                start = max(rows.start, int(self.edges[runs[begin]]))
                stop = min(rows.stop, int(self.edges[runs[end - 1] + 1]))
                is_all = (start, stop) == (rows.start, rows.stop)
                part = out if is_all else out.span(start - rows.start, stop - rows.start)
                self.put_rows(
                    self._loaded(runs[begin:end], context), slice(start, stop), part, context
                )
            return
        runs, which = np.unique(np.searchsorted(self.edges, rows, "right") - 1, return_inverse=True)
        for begin, end in self._groups(runs):
            slots = np.flatnonzero((which >= begin) & (which < end))
            is_all = len(slots) == len(rows)
            loaded = self._loaded(runs[begin:end], context)
            self.put_rows(
                loaded, rows if is_all else rows[slots], out if is_all else out.at(slots), context
            )
            del loaded  # Frees the memory for the next piece.

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read runs of rows; one alone is parsed where it lies, others are put together first."""
        if len(runs) == 1:
            first, length = runs[0]
            self.fill(slice(first, first + length), out, context)
        else:
            self.fill(run_rows(runs), out, context)

    @abstractmethod
    def put_rows(self, loaded: Loaded, rows: RowSet, out: Block, context: Context) -> None:
        """Put rows, all of which are loaded, into a block."""

    def _groups(self, runs: Index) -> Iterator[tuple[int, int]]:
        """Yield the runs to read at once: from the first to the one after the last."""
        cells = (np.cumsum(self.sizes[runs]) - 1) // self.piece_nbytes
        edges = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(runs)]
        yield from itertools.pairwise(edges)

    def _loaded(self, runs: Index, context: Context) -> Loaded:
        """Read runs, those that follow each other in a file as one range."""
        is_open = self.is_open[runs]
        stops = np.cumsum(self.sizes[runs] + is_open) + 1
        starts = stops - self.sizes[runs] - is_open
        buffer = context.allocate(round_up(int(stops[-1]), _GRAIN_NBYTES))[: int(stops[-1])]
        buffer[0] = ord("\n")
        owners = self.owners[runs]
        breaks = (np.diff(runs) != 1) | (np.diff(owners) != 0)
        cuts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(runs)]
        ranges: dict[int, list[Range]] = {}
        for begin, end in itertools.pairwise(cuts):
            part = buffer[int(starts[begin]) : int(stops[end - 1]) - int(is_open[end - 1])]
            one = Range(int(self.offsets[runs[begin]]), part)
            ranges.setdefault(int(owners[begin]), []).append(one)
        for number, mine in ranges.items():
            reader = reader_of(self.locations[number], context, direct=self.flow.direct)
            reader.read_ranges(mine)
        buffer[stops[is_open] - 1] = ord("\n")
        firsts = self.edges[runs]
        bases = np.concatenate([[0], np.cumsum(self.edges[runs + 1] - firsts)])
        return Loaded(buffer, starts, runs, firsts, bases)

    def spans(self, loaded: Loaded) -> tuple[Index, Index]:
        """Return where each row that is loaded begins and ends in the buffer."""
        text = loaded.buffer[1:]
        starts, stops = self.split(text, int(loaded.bases[-1]), loaded)
        starts += 1
        stops += 1
        return starts, stops

    def split(self, text: Bytes, num_rows: int, loaded: Loaded) -> tuple[Index, Index]:
        """Return where each of so many rows begins and ends in a text."""
        starts, stops = np.empty((2, num_rows), np.int64)
        found = _native.split_lines(text, self.dialect.separator, self.dialect.quote, starts, stops)
        if found != num_rows:
            raise self.changed(loaded)
        return starts, stops

    def local(self, loaded: Loaded, rows: Index) -> Index:
        """Return the places of rows among those that are loaded."""
        run = np.searchsorted(loaded.firsts, rows, "right") - 1
        return rows - loaded.firsts[run] + loaded.bases[run]

    def cut(self, loaded: Loaded, rows: slice) -> tuple[int, int]:
        """Return where the text of rows that follow each other begins and ends in the buffer, line ends included."""
        edges = [0, len(loaded.buffer)]
        skipped = rows.start - int(loaded.firsts[0])
        if skipped:
            edges[0] = self._start_in_run(loaded, 0, skipped)
        else:
            edges[0] = int(loaded.starts[0])
        last = len(loaded.runs) - 1
        kept = rows.stop - int(loaded.firsts[last])
        if kept < int(loaded.bases[-1] - loaded.bases[-2]):
            edges[1] = self._start_in_run(loaded, last, kept)
        return edges[0], edges[1]

    def _start_in_run(self, loaded: Loaded, number: int, row: int) -> int:
        start = int(loaded.starts[number])
        stop = (
            int(loaded.starts[number + 1]) if number + 1 < len(loaded.runs) else len(loaded.buffer)
        )
        num_rows = int(loaded.bases[number + 1] - loaded.bases[number])
        starts, _ = self.split(loaded.buffer[start:stop], num_rows, loaded)
        return start + int(starts[row])

    def changed(self, loaded: Loaded) -> FileChangedError:
        """Return the error for runs that have other rows than the index says."""
        location = self.locations[int(self.owners[loaded.runs[0]])]
        return FileChangedError(
            "its lines are not where they were when it was opened",
            file=str(location),
            cure="Wait until whatever writes it has finished, then start again.",
        )

    def place(self, row: int, context: Context) -> tuple[str, int, int]:
        """Return the file of a row, the byte where it begins, and its line; reads the file up to there."""
        run = int(np.searchsorted(self.edges, row, "right")) - 1
        loaded = self._loaded(np.array([run]), context)
        starts, _ = self.spans(loaded)
        number = int(self.owners[run])
        offset = int(self.offsets[run] + starts[row - int(self.edges[run])] - loaded.starts[0])
        reader = reader_of(self.locations[number], context, direct=self.flow.direct)
        buffer = allocate_plain(min(RUN_NBYTES, max(1, offset)))
        line = 1
        for start in range(0, offset, RUN_NBYTES):
            piece = buffer[: offset - start]
            reader.read_into(piece, start)
            line += int(np.count_nonzero(piece == ord("\n")))
        return str(self.locations[number]), offset, line

    # -- what it is -----------------------------------------------------------------------------

    def with_errors(self, on_error: str) -> Node:
        """Return the rows, or the flow that skips bad ones: it knows its number of rows only at its end."""
        if on_error != "skip":
            return self
        flow = copy.copy(self.flow)
        flow.skip, flow.strict, flow.skipped_files = True, self, self.skipped_files
        return flow

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the runs that are read at once, and of what making rows of them takes."""
        runs = min(self.piece_nbytes + self.widest, max(1, num_rows) * (self.widest + 1))
        runs = min(runs, int(self.sizes.sum())) + 2
        spans = int(_SPAN_NBYTES * runs * self.densest) + (1 << 12)
        return round_up(runs, _GRAIN_NBYTES) + spans + self.making_nbytes(num_rows, runs)

    @abstractmethod
    def making_nbytes(self, num_rows: int, text_nbytes: int) -> int:
        """Return the bytes that making rows of so much text takes, besides the text and the block."""

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of the index."""
        arrays = (self.edges, self.offsets, self.sizes, self.owners, self.is_open)
        return sum(int(one.nbytes) for one in arrays)

    def heaviest(self) -> str:
        """Return the longest line, if it is longer than runs usually are."""
        if self.widest <= RUN_NBYTES:
            return ""
        run = int(self.sizes.argmax())
        row = self.locate(int(self.edges[run]), 0)
        return f"{row}, byte {self.offsets[run]}, has {format_nbytes(self.widest)}"

    def locate(self, row: int, epoch: int) -> str:
        """Return the file, and the number of the row in it."""
        number = bisect_right(self.inner_starts, row)
        return f"row {row - int(self.starts[number])} of {self.locations[number]}"

    def describe(self) -> str:
        """Return the call that made it."""
        return self.flow.describe()

    def fingerprint(self) -> Any:
        """Return names and lengths of the files, the fields, and the sizes that a shuffle's windows depend on."""
        counts = np.diff(self.starts).tolist()
        files = [[one.name, size] for one, size in zip(self.locations, counts, strict=True)]
        specs = [field.spec.to_json() for field in self.fields]
        return ["lines", self.flow.kind, files, self.names_of_fields(), specs, grain_words(self)]

    def names_of_fields(self) -> list[str]:
        """Return the names of the columns that the fields are."""
        return []

    def found_words(self) -> str:
        """Return what was found in the files, for `explain()`."""
        return ""

    def choice(self) -> str:
        """Return how the files are read."""
        how = describe_reading(self.locations[0], direct=self.flow.direct)
        nbytes = self.retained_nbytes(0)
        return (
            f"{self.found_words()}{how}; {block_rows(self)} rows make a read; "
            f"the index takes {nbytes} bytes{skipped_words(self)}"
        )
