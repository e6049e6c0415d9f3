"""Lines that are parsed to fields, with random access: runs are found by an index, and parsed many at a time."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fields import Field
from penstock.core.rows import Context, RowSet, as_index
from penstock.errors import DataError
from penstock.io.formats.lines import Piece
from penstock.io.reader import Bytes
from penstock.sources.reading.line_index import LineIndex, length_sums
from penstock.sources.reading.line_rows import LineRows, Loaded
from penstock.sources.reading.parsed_flow import PYTHON_NBYTES, ParsedFlow, UnreadableError

_SLOW_NBYTES = 1 << 14  # Of text that is parsed by Python at once.
_VALUE_NBYTES = 16  # Of each value while it is parsed: where it begins, and what it is.


class ParsedRows(LineRows):
    """Rows of several fields, each made of a line."""

    flow: ParsedFlow
    text_copies = 3
    """The bytes that pyarrow takes for a byte of text, besides the values."""

    def __init__(self, flow: ParsedFlow, indexes: Sequence[LineIndex]) -> None:
        super().__init__(flow, indexes)
        counts = np.sum([one.lengths for one in indexes], axis=0)
        self.tops = length_sums(counts)
        """The bytes of the 1, 2, 4, ... longest rows in the files, and of all."""
        self.fields = tuple(self._sized(field) for field in flow.fields)
        self.flags = 0
        for one in indexes:
            self.flags |= one.flags

    def _sized(self, field: Field) -> Field:
        """Return the field with what is known of its size: any value may have all of what makes a row a long one."""
        if field.storage_shape is not None:
            return field
        sums = []
        for power, nbytes in enumerate(self.tops):
            num_rows = min(self.num_rows, 1 << power)
            usual = 2 * field.estimate * num_rows
            more = max(0, nbytes - 2 * self.mean_nbytes * num_rows)
            sums.append(usual + self.value_nbytes(field, more))
        return replace(field, tops=tuple(itertools.accumulate(sums, max)))

    def value_nbytes(self, field: Field, text_nbytes: int) -> int:
        """Return the most bytes that values of a field take in a block, given the bytes of their text."""
        return text_nbytes

    def put_rows(self, loaded: Loaded, rows: RowSet, out: Block, context: Context) -> None:
        """Parse rows; what pyarrow does not read is looked at in Python, which knows what is wrong with it."""
        if isinstance(rows, slice):
            start, stop = self.cut(loaded, rows)
            text = loaded.buffer[start - 1 : stop]  # Before any row, there is a line end.
        else:
            text = self._gathered(loaded, rows, context)
        try:
            self.flow.parse(text, out.num_rows, out.sinks, self.flags)
        except UnreadableError:
            self._put_slowly(text, as_index(rows), out, loaded, context)

    def _gathered(self, loaded: Loaded, rows: Index, context: Context) -> Bytes:
        """Return the text of rows in their order, with a line end before each."""
        starts, stops = self.spans(loaded)
        local = self.local(loaded, rows)
        # With the line end before it: that of another row, or the one that the buffer begins with.
        starts, stops = starts[local] - 1, stops[local]
        lengths = stops - starts
        ends = np.cumsum(lengths)
        text = context.allocate(int(ends[-1]) + 1)[: int(ends[-1]) + 1]
        _native.gather_spans(loaded.buffer, starts, lengths, text, ends - lengths)
        text[-1] = ord("\n")
        return text

    def _put_slowly(
        self, text: Bytes, numbers: Index, out: Block, loaded: Loaded, context: Context
    ) -> None:
        """Parse rows in Python, a little text at a time; raise for the first bad one."""
        starts, stops = self.split(text, len(numbers), loaded)
        cells = (stops - starts[0]) // _SLOW_NBYTES
        edges = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(numbers)]
        for first, last in itertools.pairwise(edges):
            data = text[int(starts[first]) : int(stops[last - 1])].tobytes()
            with context.hold(PYTHON_NBYTES * len(data)):
                try:
                    columns = self._values(Piece(0, 2, data), "")
                except DataError:
                    for row in range(first, last):
                        data = text[int(starts[row]) : int(stops[row])].tobytes()
                        self._check(data, int(numbers[row]), context)
                    raise
                part = out.span(first, last)
                for sink, values in zip(part.sinks, columns, strict=True):
                    sink.put(values)

    def _values(self, piece: Piece, file: str) -> list[Any]:
        """Return the values of the rows of a piece, which is not the first of its file."""
        rows = self.flow.raw_rows(piece, file)
        return self.flow.columns_of(rows, lambda _: piece.line, file)

    def _check(self, data: bytes, row: int, context: Context) -> None:
        """Raise if a row is bad, with its file and line."""
        try:
            self._values(Piece(0, 2, data), "")
        except DataError:
            file, offset, line = self.place(row, context)
            # A quoted line end may stand in it: messages name the line that it ends on.
            self._values(Piece(offset, line, data), file)
            raise

    def making_nbytes(self, num_rows: int, text_nbytes: int) -> int:
        """Return the bytes of the text of rows in their order, of what parsing it takes, and of text on its way."""
        rows = max(1, min(num_rows, int(text_nbytes * self.densest) + 1))
        text = min(text_nbytes, self.row_tops(rows))
        moving = 2 * self.block_nbytes(num_rows) if self.is_varying else 0
        values = _VALUE_NBYTES * rows * (self.flow.num_columns + 1)
        return (1 + self.text_copies) * text + values + moving

    def row_tops(self, num_rows: int) -> int:
        """Return the most bytes that so many rows have in the file."""
        power = min((num_rows - 1).bit_length(), len(self.tops) - 1) if self.tops else 0
        return self.tops[power] + num_rows if self.tops else 0

    def names_of_fields(self) -> list[str]:
        """Return the names of the fields."""
        return list(self.flow.names)
