"""Lines that are parsed to fields, read forward: by pyarrow, or in Python, which knows what is wrong with them."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block, Sink
from penstock.core.rows import Context
from penstock.errors import DataError
from penstock.io.formats.lines import TEXT_NBYTES, Piece
from penstock.io.reader import Bytes
from penstock.sources.reading.line_flow import LineFlow
from penstock.sources.reading.line_index import facts_of

LineOf = Callable[[int], int]
"""The line that a row is on, by the number of the row."""
_MOST_NBYTES = 2 * TEXT_NBYTES  # Under `skip`, a longer row has no end.
PYTHON_NBYTES = 64
"""Bytes that a byte of text takes at most while its values are Python objects."""


class UnreadableError(ValueError):
    """Pyarrow can't read these rows: they are bad, or written in a way that only Python's own functions read."""


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """One row of a piece, as Python objects: cells, or a dict; or its error if it is bad."""

    raw: Any
    error: DataError | None = None


class ParsedFlow(LineFlow):
    """Rows of several fields, each made of a line."""

    copies = PYTHON_NBYTES
    most_skipped = _MOST_NBYTES
    names: Sequence[str]
    """The names of its fields."""
    num_columns: int
    """How many values a line has."""

    @abstractmethod
    def parse(self, text: Bytes, num_rows: int, sinks: Sequence[Sink], flags: int) -> None:
        """Put rows of text into columns by pyarrow; the text begins with a line end. Raises UnreadableError."""

    @abstractmethod
    def raw_rows(self, piece: Piece, file: str) -> list[Any]:
        """Return the rows of a piece as Python objects; raises a DataError for the first bad one."""

    @abstractmethod
    def each_row(self, piece: Piece, file: str) -> list[ParsedLine]:
        """Return all rows of a piece, each checked by itself."""

    @abstractmethod
    def line_of(self, piece: Piece, row: int, file: str) -> int:
        """Return the line of a row of a piece: for messages."""

    @abstractmethod
    def columns_of(self, rows: Sequence[Any], line_of: LineOf, file: str) -> list[Any]:
        """Return the values of each field of rows; raises a DataError with the line of the first bad one."""

    def num_heads(self, piece: Piece) -> int:
        """Return how many lines at the beginning of a piece are no rows."""
        return 0

    def rows_of(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Block, Index | None]:
        """Return the good rows as a block; what pyarrow does not read, Python looks at, row by row if one is bad."""
        try:
            return self._fast(piece, used, context), None
        except UnreadableError:
            pass
        try:
            rows = self.raw_rows(piece, file)[used:]
            line_of = partial(self._line_of, piece, used, file)
            return self._block(rows, line_of, file, context), None
        except DataError:
            if not self.skip:
                raise
        found = self.each_row(piece, file)[used:]
        for one in found:
            if one.error is not None:
                self.skip_bad(one.error, context)
        good = [place for place, one in enumerate(found) if one.error is None]
        rows = [found[place].raw for place in good]
        places = np.array([*good, len(found)], np.int64)
        return self._block(rows, lambda _: piece.line, file, context), places

    def _line_of(self, piece: Piece, used: int, file: str, row: int) -> int:
        return self.line_of(piece, row + used, file)

    def _fast(self, piece: Piece, used: int, context: Context) -> Block:
        """Return the rows of a piece as pyarrow reads them."""
        data = np.frombuffer(piece.data, np.uint8)
        flags, num_rows = facts_of(data, self.dialect)
        passed = used + self.num_heads(piece)
        if flags is None or num_rows < passed:
            raise UnreadableError
        start = 0
        if passed and passed < num_rows:
            starts, stops = np.empty((2, num_rows), np.int64)
            _native.split_lines(data, self.dialect.separator, self.dialect.quote, starts, stops)
            start = int(starts[passed])
        block = context.block(self, num_rows - passed)
        if block.num_rows:
            text = np.empty(len(data) - start + 1, np.uint8)
            text[0] = ord("\n")
            text[1:] = data[start:]
            self.parse(text, block.num_rows, block.sinks, flags)
        return block

    def _block(self, rows: Sequence[Any], line_of: LineOf, file: str, context: Context) -> Block:
        """Return a block of the values of rows."""
        block = context.block(self, len(rows))
        if rows:
            columns = self.columns_of(rows, line_of, file)
            for sink, values in zip(block.sinks, columns, strict=True):
                sink.put(values)
        return block

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way, and of the text and values of one piece."""
        rows = max(1, TEXT_NBYTES // max(1, self.num_columns) // 2)
        block = min(self.block_nbytes(rows), 8 * TEXT_NBYTES)
        text = PYTHON_NBYTES * (_MOST_NBYTES if self.skip else TEXT_NBYTES)
        return (ahead + 2) * block + text + self.unpacking_nbytes
