"""The rows of CSV files, read forward."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.core.rows import Context
from penstock.errors import DataError
from penstock.io.formats.lines import TEXT_NBYTES, Piece
from penstock.io.location import Location
from penstock.sources.csv.cells import LineOf, column_values
from penstock.sources.csv.parsing import Parser, UnreadableError
from penstock.sources.csv.table import Table
from penstock.sources.reading.line_flow import LineFlow
from penstock.sources.reading.line_index import facts_of
from penstock.sources.reading.parts import skipped_words

_MOST_NBYTES = 2 * TEXT_NBYTES  # Under `skip`, a longer row is an unclosed quote.
PYTHON_NBYTES = 64
"""Bytes that a byte of text takes at most while its cells are Python objects."""


class CsvFlow(LineFlow):
    """Rows of CSV files, a field a column."""

    kind = "CSV"
    copies = PYTHON_NBYTES
    most_skipped = _MOST_NBYTES

    def __init__(
        self,
        locations: Sequence[Location],
        table: Table,
        names: Sequence[str],
        structure: Structure,
        fields: tuple[Field, ...],
        *,
        direct: bool,
    ) -> None:
        super().__init__(locations, direct=direct)
        self.table = table
        self.dialect = table.dialect
        self.names = names
        places = {name: column for column, name in enumerate(table.columns)}
        self.columns = [places[name] for name in names]
        self.structure = structure
        self.fields = fields
        self.parser = Parser(table, self.columns, fields)

    def rows_of(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Block, Index | None]:
        """Return the good rows as a block; what pyarrow does not read, Python looks at, row by row if one is bad."""
        try:
            return self._fast(piece, used, context), None
        except UnreadableError:
            pass
        try:
            rows = self.table.rows(piece, file)[used:]
            line_of = partial(self._line_of, piece, used, file)
            return self._block(rows, line_of, file, context), None
        except DataError:
            if not self.skip:
                raise
        rows, places = self._good_rows(piece, used, file, context)
        return self._block(rows, lambda _: piece.line, file, context), places

    def _fast(self, piece: Piece, used: int, context: Context) -> Block:
        """Return the rows of a piece as pyarrow reads them."""
        data = np.frombuffer(piece.data, np.uint8)
        flags, num_rows = facts_of(data, self.dialect)
        passed = used + (self.table.has_header and piece.line == 1)
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
            self.parser.put(text, block.num_rows, block.sinks, flags)
        return block

    def _line_of(self, piece: Piece, used: int, file: str, row: int) -> int:
        return self.table.line_of(piece, row + used, file)

    def _block(
        self, rows: Sequence[Sequence[str]], line_of: LineOf, file: str, context: Context
    ) -> Block:
        """Return a block of the values of cells."""
        block = context.block(self, len(rows))
        columns = list(zip(*rows, strict=True))
        for name, column, field, sink in zip(
            self.names, self.columns, self.fields, block.sinks, strict=True
        ):
            if rows:
                found = column_values(
                    columns[column], field.spec, name, line_of, file, self.table.decimal
                )
                sink.put(found)
        return block

    def _good_rows(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[list[list[str]], Index]:
        """Return the good rows of a piece after the first `used`, and their places; the others are skipped."""

        def check(cells: list[str], line: int) -> None:
            for name, column, field in zip(self.names, self.columns, self.fields, strict=True):
                column_values(
                    [cells[column]], field.spec, name, lambda _: line, file, self.table.decimal
                )

        found = self.table.parse_each(piece, file, check)[used:]
        for row in found:
            if row.error is not None:
                self.skip_bad(row.error, context)
        good = [place for place, row in enumerate(found) if row.error is None]
        return [found[place].cells for place in good], np.array([*good, len(found)], np.int64)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way, and of the text and cells of one piece."""
        rows = max(1, TEXT_NBYTES // max(1, len(self.table.columns)) // 2)
        block = min(self.block_nbytes(rows), 8 * TEXT_NBYTES)
        text = PYTHON_NBYTES * (_MOST_NBYTES if self.skip else TEXT_NBYTES)
        return (ahead + 2) * block + text + self.unpacking_nbytes

    def choice(self) -> str:
        """Return what was found in the files."""
        return f"{self.found_words()}{skipped_words(self)}"

    def found_words(self) -> str:
        """Return where names and types come from."""
        head = (
            "names from the first line" if self.table.has_header else "no header: numbers as names"
        )
        types = f"types from the first {TEXT_NBYTES >> 10} KB, then fixed"
        commas = ", decimal commas" if self.table.decimal == "," else ""
        return f"{head}; separator {self.table.delimiter!r}{commas}; {types}"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files, and the fields."""
        files = [[location.name, location.size] for location in self.locations]
        specs = [field.spec.to_json() for field in self.fields]
        return ["csv", files, list(self.names), specs, self.skip, *self.table.unusual()]
