"""The rows of JSON Lines files, read forward."""

from collections.abc import Sequence
from typing import Any

from penstock.core.blocks import Sink
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.errors import DataError
from penstock.io.formats.lines import TEXT_NBYTES, Piece
from penstock.io.location import Location
from penstock.io.reader import Bytes
from penstock.sources.jsonl.parsing import JSON_LINES, Parser
from penstock.sources.jsonl.values import Path, check_exact, field_values, lines_of, parse_line
from penstock.sources.reading.parsed_flow import LineOf, ParsedFlow, ParsedLine
from penstock.sources.reading.parts import skipped_words


class JsonFlow(ParsedFlow):
    """Rows of JSON Lines files, a field a key."""

    kind = "JSON Lines"
    dialect = JSON_LINES

    def __init__(
        self,
        locations: Sequence[Location],
        paths: Sequence[Path],
        structure: Structure,
        fields: tuple[Field, ...],
        *,
        exact: frozenset[str] = frozenset(),
        direct: bool,
    ) -> None:
        super().__init__(locations, direct=direct)
        self.paths = paths
        self.names = [".".join(path) for path in paths]
        self.num_columns = len(paths)
        self.structure = structure
        self.fields = fields
        self.exact = exact
        """Fields of whole numbers with gaps: floats in which none may be rounded."""
        self.parser = Parser(paths, fields, [name in exact for name in self.names])

    def parse(
        self, text: Bytes, num_rows: int, sinks: Sequence[Sink], flags: int
    ) -> None:  # Those of CSV.
        """Put rows of text into columns by pyarrow. Raises UnreadableError."""
        self.parser.put(text, num_rows, sinks)

    def raw_rows(self, piece: Piece, file: str) -> list[Any]:
        """Return the objects of a piece; raises a DataError for the first line that is none."""
        return [parse_line(data, line, file) for line, data in lines_of(piece)]

    def line_of(self, piece: Piece, row: int, file: str) -> int:  # Quotes do not matter here.
        """Return the line of a row of a piece: for messages."""
        return lines_of(piece)[row][0]

    def columns_of(self, rows: Sequence[Any], line_of: LineOf, file: str) -> list[Any]:
        """Return the values of each field of rows; raises a DataError with the line of the first bad one."""
        for path, name in zip(self.paths, self.names, strict=True):
            if name in self.exact:
                check_exact(rows, path, line_of, file)
        return [
            field_values(rows, path, field.spec, line_of, file)
            for path, field in zip(self.paths, self.fields, strict=True)
        ]

    def each_row(self, piece: Piece, file: str) -> list[ParsedLine]:
        """Return all rows of a piece, each checked by itself."""
        found = []
        for line, data in lines_of(piece):
            try:
                row = parse_line(data, line, file)
                self.columns_of([row], lambda _, line=line: line, file)  # type: ignore[misc]
            except DataError as error:
                found.append(ParsedLine(None, error.with_traceback(None)))
            else:
                found.append(ParsedLine(row))
        return found

    def choice(self) -> str:
        """Return what was found in the files."""
        return f"{self.found_words()}{skipped_words(self)}"

    def found_words(self) -> str:
        """Return where fields and types come from."""
        return f"fields and types from the first {TEXT_NBYTES >> 10} KB, then fixed"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files, and the fields."""
        files = [[location.name, location.size] for location in self.locations]
        specs = [field.spec.to_json() for field in self.fields]
        return ["jsonl", files, list(self.names), specs, self.skip]
