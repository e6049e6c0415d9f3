"""The rows of CSV files, read forward."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.core.rows import Context
from penstock.errors import DataError
from penstock.io.formats.lines import TEXT_NBYTES, Piece
from penstock.io.location import Location
from penstock.sources.csv.cells import LineOf, column_values
from penstock.sources.csv.table import Table
from penstock.sources.reading.line_flow import LineFlow
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
        self.structure = structure
        self.fields = fields

    def rows_of(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[Block, Index | None]:
        """Return the good rows as a block; if some are bad, each row is checked by itself."""
        try:
            rows = self.table.rows(piece, file)[used:]
            line_of = partial(self._line_of, piece, used, file)
            return self._block(rows, line_of, file, context), None
        except DataError:
            if not self.skip:
                raise
        rows, places = self._good_rows(piece, used, file, context)
        return self._block(rows, lambda _: piece.line, file, context), places

    def _line_of(self, piece: Piece, used: int, file: str, row: int) -> int:
        return self.table.line_of(piece, row + used, file)

    def _block(
        self, rows: Sequence[Sequence[str]], line_of: LineOf, file: str, context: Context
    ) -> Block:
        """Return a block of the values of cells."""
        block = context.block(self, len(rows))
        columns = list(zip(*rows, strict=True))
        for name, field, sink in zip(self.names, self.fields, block.sinks, strict=True):
            if rows:
                cells = columns[self.table.columns.index(name)]
                sink.put(column_values(cells, field.spec, name, line_of, file))
        return block

    def _good_rows(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[list[list[str]], Index]:
        """Return the good rows of a piece after the first `used`, and their places; the others are skipped."""

        def check(cells: list[str], line: int) -> None:
            for name, field in zip(self.names, self.fields, strict=True):
                cell = cells[self.table.columns.index(name)]
                column_values([cell], field.spec, name, lambda _: line, file)

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
        return (ahead + 2) * block + PYTHON_NBYTES * (_MOST_NBYTES if self.skip else TEXT_NBYTES)

    def choice(self) -> str:
        """Return what was found in the files."""
        return f"{self.found_words()}{skipped_words(self)}"

    def found_words(self) -> str:
        """Return where names and types come from."""
        head = (
            "names from the first line" if self.table.has_header else "no header: numbers as names"
        )
        types = f"types from the first {TEXT_NBYTES >> 10} KB, then fixed"
        return f"{head}; {types}"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files, and the fields."""
        files = [[location.name, location.size] for location in self.locations]
        specs = [field.spec.to_json() for field in self.fields]
        return ["csv", files, list(self.names), specs, self.skip]
