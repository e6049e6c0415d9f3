"""Text files: a row is a line, as str, without its end; found by an index, or read forward."""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Text
from penstock.core.fields import Field
from penstock.core.nest import flatten
from penstock.core.read_count import count_read
from penstock.core.rows import Context, Deferred, RowSet
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.io.formats.lines import LOOKED_AT, TEXT, TEXT_NBYTES, Piece, mark_nbytes, refuse_utf16
from penstock.io.location import Location
from penstock.io.unpacked import open_text, read_some
from penstock.memory import Allocate
from penstock.sources.reading.line_flow import LineFlow
from penstock.sources.reading.line_index import RUN_NBYTES, LineIndex, index_lines, length_sums
from penstock.sources.reading.line_rows import LineRows, Loaded
from penstock.sources.reading.open_files import ROOM_NBYTES, check_file, page_cache_of, reader_of
from penstock.sources.reading.parts import Request, attempt_each, check_names, skipped_words

_OFFSET_NBYTES = 8  # Where a line begins in its column.


def open_format(locations: Sequence[Location], request: Request) -> "TextFlow | TextRows":
    """Return the lines of files, which are found by one scan of each; those behind URLs are read forward."""
    check_names(str(locations[0]), request.names or (), {"": None})
    is_remote = any(location.is_remote for location in locations)
    starts: list[int] = []
    if request.skip or not is_remote:
        locations, starts = attempt_each(locations, _first_byte, request)
    flow = TextFlow(locations, direct=request.direct)
    if is_remote or flow.is_packed:
        return flow
    indexes = index_lines(locations, starts, TEXT, direct=request.direct)
    return flow if indexes is None else TextRows(flow, indexes)


def _first_byte(location: Location) -> int:
    """Return where the first line begins."""
    with open_text(location) as reader:
        refuse_utf16(read_some(reader, 0, LOOKED_AT), str(location))
        return mark_nbytes(reader)


class TextFlow(LineFlow):
    """Lines of text, without their ends."""

    kind = "text"
    dialect = TEXT
    copies = 10  # As bytes, their cut, the search for line ends, and up to 4 while it is checked to be UTF-8.

    def __init__(self, locations: Sequence[Location], *, direct: bool) -> None:
        super().__init__(locations, direct=direct)
        self.structure = flatten("")[1]
        with open_text(locations[0]) as reader:
            first = read_some(reader, 0, TEXT_NBYTES)
        length = len(first) // max(1, first.count(b"\n"))
        self.fields = (Field(ArraySpec((), str), estimate=length + 8),)

    def rows_of(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Block, Index | None]:
        """Return the good lines of a piece, and their places if some are bad."""
        column, places = self._good_lines(piece, used, file, context)
        block = context.block(self, len(column))
        sink = block.sinks[0]
        assert isinstance(sink, Pieces)
        sink.add(column)
        return block, places

    def _good_lines(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Text, Index | None]:
        """Return the lines of a piece after the first `used`, and their places if some are bad."""
        column = _lines(piece.data, used, context.allocate)
        try:
            piece.text(file)
        except DataError:
            if not self.skip:
                raise
        else:
            return column, None
        good = []
        edges = column.offsets.tolist()
        for row, (start, stop) in enumerate(itertools.pairwise(edges)):
            line = Piece(piece.offset, piece.line + used + row, column.data[start:stop].tobytes())
            try:
                line.text(file)
            except DataError as error:
                self.skip_bad(error, context)
            else:
                good.append(row)
        index = np.array(good, np.int64)
        return column.take(index, context.allocate), np.append(index, len(column))

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the pieces under way, as they are read and as lines."""
        return (ahead + 3) * 3 * (TEXT_NBYTES + (1 << 13)) + self.unpacking_nbytes

    def choice(self) -> str:
        """Return how it is read."""
        return f"lines, as they come{skipped_words(self)}"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files."""
        files = [[location.name, location.size] for location in self.locations]
        return ["text", files, self.skip]


class TextRows(LineRows):
    """Lines of text with random access."""

    def __init__(self, flow: TextFlow, indexes: Sequence[LineIndex]) -> None:
        super().__init__(flow, indexes)
        counts = np.sum([one.lengths for one in indexes], axis=0)
        tops = tuple(
            nbytes + _OFFSET_NBYTES * min(self.num_rows, 1 << power)
            for power, nbytes in enumerate(length_sums(counts))
        )
        estimate = self.mean_nbytes + _OFFSET_NBYTES
        self.fields = (Field(ArraySpec((), str), estimate=estimate, tops=tops),)

    def defers(self, rows: slice) -> bool:
        """Return whether these lines are of one file that is read through the page cache."""
        if self.flow.direct or self.widest > ROOM_NBYTES or rows.start >= rows.stop:
            return False
        return bisect_right(self.inner_starts, rows.start) == bisect_right(
            self.inner_starts, rows.stop - 1
        )

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read lines, or leave them to a native job."""
        if context.deferred is None:
            super().fill(rows, out, context)
        else:
            assert isinstance(rows, slice), "only such rows are deferred"
            context.deferred.append(self._deferred(rows, out, context))

    def _deferred(self, rows: slice, out: Block, context: Context) -> Deferred:
        """Return the job that reads and copies lines of one file."""
        (sink,) = out.sinks
        assert isinstance(sink, Pieces)
        start, stop = np.searchsorted(self.edges, [rows.start, rows.stop - 1], "right").tolist()
        first = int(self.edges[start - 1])
        num_lines = int(self.edges[stop]) - first
        nbytes = int(self.sizes[start - 1 : stop].sum())
        memory = sink.allocate(nbytes - num_lines + bool(self.is_open[stop - 1]))
        offsets = np.empty(rows.stop - rows.start + 1, np.int64)
        location = self.locations[int(self.owners[start - 1])]
        reader = reader_of(location, context, direct=False)
        with page_cache_of(reader) as fd:
            offset = int(self.offsets[start - 1])
            job = _native.line_job(
                fd, offset, nbytes, num_lines, rows.start - first, memory, offsets
            )
        count_read(nbytes)
        sink.add(Text(memory, offsets, str))
        return Deferred(job, partial(check_file, reader))

    def put_rows(self, loaded: Loaded, rows: RowSet, out: Block, context: Context) -> None:
        """Copy lines without their ends."""
        (sink,) = out.sinks
        assert isinstance(sink, Pieces)
        if isinstance(rows, slice):
            sink.add(self._run(loaded, rows, sink, context))
            return
        starts, stops = self.spans(loaded)
        chosen = self.local(loaded, rows)
        starts, stops = starts[chosen], stops[chosen]
        # All of it with the line ends: characters of two lines must not be taken for one.
        if not _native.is_utf8(loaded.buffer):
            self._check(loaded, starts, stops, rows, context)
        lengths = stops - starts
        offsets = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        memory = sink.allocate(int(offsets[-1]))
        _native.gather_spans(loaded.buffer, starts, lengths, memory, offsets[:-1].copy())
        sink.add(Text(memory, offsets, str))

    def _run(self, loaded: Loaded, rows: slice, sink: Pieces, context: Context) -> Text:
        """Return lines that follow each other: all that were loaded, but for some of the first and last run."""
        text, num_lines = loaded.buffer[1:], int(loaded.bases[-1])
        first = rows.start - int(loaded.firsts[0])
        memory = sink.allocate(len(text) - num_lines)  # Without the line ends.
        offsets = np.empty(rows.stop - rows.start + 1, np.int64)
        found, nbytes, is_utf8 = _native.copy_lines(text, first, memory, offsets)
        if found != num_lines:
            raise self.changed(loaded)
        if not is_utf8:
            starts, stops = self.spans(loaded)
            chosen = slice(first, first + len(offsets) - 1)
            self._check(loaded, starts[chosen], stops[chosen], rows, context)
        return Text(memory[:nbytes], offsets, str)

    def _check(
        self, loaded: Loaded, starts: Index, stops: Index, rows: RowSet, context: Context
    ) -> None:
        """Raise for the first of these lines that is not UTF-8, if there is one."""
        for number, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True)):
            if not _native.is_utf8(loaded.buffer[start:stop]):
                row = rows.start + number if isinstance(rows, slice) else int(rows[number])
                file, offset, line = self.place(row, context)
                Piece(offset, line, loaded.buffer[start:stop].tobytes()).text(file)

    def making_nbytes(self, num_rows: int, text_nbytes: int) -> int:
        """Return the bytes of lines on their way to the block, and of those beside them in a run, which it keeps."""
        beside = 2 * min(text_nbytes, RUN_NBYTES)  # Of the first run and the last.
        # Twice: there may be one block more than are being made.
        return 2 * self.block_nbytes(num_rows) + 2 * beside


def _lines(data: bytes, used: int, allocate: Allocate) -> Text:
    """Return the lines of a piece after the first `used`, without their ends."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    starts = np.concatenate([[0], ends + 1])
    ends = np.concatenate([ends, [len(raw)]])
    if starts[-1] == len(raw):
        starts, ends = starts[:-1], ends[:-1]
    starts, ends = starts[used:], ends[used:]
    has_return = (
        (ends > starts) & (raw[np.maximum(ends - 1, 0)] == ord("\r")) if len(raw) else ends > 0
    )
    lengths = ends - has_return - starts
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    memory = allocate(int(offsets[-1]))
    _native.gather_spans(raw, starts, lengths, memory, offsets[:-1].copy())
    return Text(memory, offsets, str)
