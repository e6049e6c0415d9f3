"""How the CSV files of a dataset are written, and the rows of a piece of text."""

import csv
import io
from dataclasses import dataclass
from typing import Any

from penstock.errors import DataError
from penstock.io.formats.lines import Dialect, Piece
from penstock.sources.csv.bad_lines import Check, parse_lines
from penstock.sources.reading.parsed_flow import ParsedLine


@dataclass(frozen=True, slots=True)
class Table:
    """How the CSV files of a dataset are written: the delimiter, the header, the columns, the decimal mark."""

    delimiter: str
    has_header: bool
    columns: tuple[str, ...]
    decimal: str = "."

    @property
    def dialect(self) -> Dialect:
        """Where its rows end."""
        return Dialect(ord(self.delimiter))

    def unusual(self) -> list[str]:
        """Return what the values depend on besides columns and types: nothing for the decimal point that most have."""
        return [] if self.decimal == "." else [self.decimal]

    def reader(self, piece: Piece, file: str) -> Any:
        """Return the reader of a piece of text; splitlines() won't do, since it also cuts within lines."""
        text = io.StringIO(piece.text(file), newline="")
        return csv.reader(text, delimiter=self.delimiter, strict=True)

    def rows(self, piece: Piece, file: str) -> list[list[str]]:
        """Return the cells of a piece of text, after checking that each row has one for each column."""
        try:
            rows = list(self.reader(piece, file))
        except csv.Error as error:
            raise DataError(
                f"line {self._last_line(piece, file)}: {error}",
                file=file,
                cure="Look for a quote that is never closed or stands within a cell.",
            ) from error
        if self.has_header and piece.line == 1:
            del rows[0]
        if set(map(len, rows)) <= {len(self.columns)}:
            return rows
        rows = [row for row in rows if row]  # Empty lines are not rows.
        for number, row in enumerate(rows):
            if len(row) != len(self.columns):
                raise self.wrong_length(row, self.line_of(piece, number, file), file)
        return rows

    def _last_line(self, piece: Piece, file: str) -> int:
        """Return the line on which the row begins that can't be parsed."""
        reader = self.reader(piece, file)
        passed = 0
        try:
            for _ in reader:
                passed = int(reader.line_num)
        except csv.Error:
            pass
        return piece.line + passed

    def wrong_length(self, cells: list[str], line: int, file: str) -> DataError:
        """Return the error for a row that has more or fewer cells than there are columns."""
        return DataError(
            f"line {line} has {len(cells)} columns, and the header has "
            f"{len(self.columns)} ({', '.join(self.columns[:5])}{', ...' if len(self.columns) > 5 else ''})",
            file=file,
            cure="Add what is missing, or quote a cell that holds the separator, which is "
            f"{self.delimiter!r}: separator=... sets another.",
        )

    def parse_each(self, piece: Piece, file: str, check: Check) -> list[ParsedLine]:
        """Return the rows of a piece one by one: good ones have all cells, and pass `check`."""

        def both(cells: list[str], line: int) -> None:
            if len(cells) != len(self.columns):
                raise self.wrong_length(cells, line, file)
            check(cells, line)

        has_head = self.has_header and piece.line == 1
        return parse_lines(piece, file, self.delimiter, both, has_head=has_head)

    def line_of(self, piece: Piece, row: int, file: str) -> int:
        """Return the line that a row of a piece ends on: for messages."""
        reader = self.reader(piece, file)
        seen = -1 if self.has_header and piece.line == 1 else 0
        for cells in reader:
            if cells or seen < 0:
                seen += 1
            if seen > row:
                break
        return piece.line + int(reader.line_num) - 1
