"""The rows of CSV files, read forward."""

from collections.abc import Sequence
from typing import Any

from penstock.core.blocks import Sink
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.io.formats.lines import TEXT_NBYTES, Piece
from penstock.io.location import Location
from penstock.io.reader import Bytes
from penstock.sources.csv.cells import check_exact, column_values
from penstock.sources.csv.parsing import Parser
from penstock.sources.csv.table import Table
from penstock.sources.reading.parsed_flow import LineOf, ParsedFlow, ParsedLine
from penstock.sources.reading.parts import skipped_words


class CsvFlow(ParsedFlow):
    """Rows of CSV files, a field a column."""

    kind = "CSV"

    def __init__(
        self,
        locations: Sequence[Location],
        table: Table,
        names: Sequence[str],
        structure: Structure,
        fields: tuple[Field, ...],
        *,
        exact: frozenset[str] = frozenset(),
        direct: bool,
    ) -> None:
        super().__init__(locations, direct=direct)
        self.table = table
        self.dialect = table.dialect
        self.names = names
        self.num_columns = len(table.columns)
        places = {name: column for column, name in enumerate(table.columns)}
        self.columns = [places[name] for name in names]
        self.structure = structure
        self.fields = fields
        self.exact = exact
        """Columns of whole numbers with gaps: floats in which none may be rounded."""
        self.parser = Parser(table, self.columns, fields, [name in exact for name in names])

    def parse(self, text: Bytes, num_rows: int, sinks: Sequence[Sink], flags: int) -> None:
        """Put rows of text into columns by pyarrow; the text begins with a line end. Raises UnreadableError."""
        self.parser.put(text, num_rows, sinks, flags)

    def num_heads(self, piece: Piece) -> int:
        """Return 1 for the piece that begins with the header."""
        return int(self.table.has_header and piece.line == 1)

    def raw_rows(self, piece: Piece, file: str) -> list[Any]:
        """Return the cells of the rows of a piece; raises a DataError for the first bad row."""
        return self.table.rows(piece, file)

    def line_of(self, piece: Piece, row: int, file: str) -> int:
        """Return the line of a row of a piece: for messages."""
        return self.table.line_of(piece, row, file)

    def columns_of(self, rows: Sequence[Any], line_of: LineOf, file: str) -> list[Any]:
        """Return the values of each field of rows; raises a DataError with the line of the first bad cell."""
        cells = list(zip(*rows, strict=True))
        for column, name in zip(self.columns, self.names, strict=True):
            if name in self.exact and cells:
                check_exact(cells[column], name, line_of, file)
        return [
            column_values(cells[column], field.spec, name, line_of, file, self.table.decimal)
            for column, name, field in zip(self.columns, self.names, self.fields, strict=True)
        ]

    def each_row(self, piece: Piece, file: str) -> list[ParsedLine]:
        """Return all rows of a piece, each checked by itself."""

        def check(cells: list[str], line: int) -> None:
            self.columns_of([cells], lambda _: line, file)

        return self.table.parse_each(piece, file, check)

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
