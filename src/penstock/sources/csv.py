"""CSV files: columns as fields. Types are found in the first piece of the first file, then fixed."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from penstock.errors import SpecMismatchError
from penstock.fields import Field
from penstock.io.errors import DataError
from penstock.io.lines import PIECE_NBYTES, Piece, read_pieces
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.nest import Structure
from penstock.rows import Context, Cursor, Flow, Parcel
from penstock.sources.csv_cells import column_values, kind_of_cells
from penstock.sources.file_rows import chosen_fields
from penstock.sources.parts import Request, check_names
from penstock.spec import ArraySpec

_PYTHON = 64  # Bytes that a byte of text takes at most while its cells are Python objects.


@dataclass(frozen=True, slots=True)
class Table:
    """How the files of a dataset are written: what stands between cells, and the columns."""

    delimiter: str
    has_header: bool
    columns: tuple[str, ...]

    def reader(self, piece: Piece, file: str) -> Any:
        """Return the reader of a piece of text; not of splitlines(), which cuts at more than lines."""
        text = io.StringIO(piece.text(file), newline="")
        return csv.reader(text, delimiter=self.delimiter, strict=True)

    def rows(self, piece: Piece, file: str) -> list[list[str]]:
        """Return the cells of a piece of text, after checking that all rows have as many."""
        try:
            rows = list(self.reader(piece, file))
        except csv.Error as error:
            raise DataError(
                f"near line {piece.line}: {error}",
                file=file,
                offset=piece.offset,
                cure="Look for a quote that is never closed or stands within a cell.",
            ) from error
        if self.has_header and piece.line == 1:
            del rows[0]
        if set(map(len, rows)) <= {len(self.columns)}:
            return rows
        rows = [row for row in rows if row]  # Empty lines are nobody's rows.
        for number, row in enumerate(rows):
            if len(row) != len(self.columns):
                raise DataError(
                    f"line {self.line_of(piece, number, file)} has {len(row)} columns, and the header has "
                    f"{len(self.columns)} ({', '.join(self.columns[:5])}{', ...' if len(self.columns) > 5 else ''})",
                    file=file,
                    cure="Add what is missing, or quote a cell that holds the separator.",
                )
        return rows

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


def open_format(locations: Sequence[Location], request: Request) -> "CsvFlow":
    """Return the columns of files; reads the beginning of each."""
    delimiter = "\t" if locations[0].suffix == ".tsv" else ","
    first = _first_piece(locations[0])
    table = _table(first, delimiter, str(locations[0]))
    for location in locations[1:]:
        other = _table(_first_piece(location), delimiter, str(location))
        if other != table:
            raise SpecMismatchError(
                f"the files of a dataset must have the same columns, got {', '.join(table.columns)} in "
                f"{locations[0]} and {', '.join(other.columns)} in {location}."
            )
    names, structure = chosen_fields(str(locations[0]), table.columns, request)
    check_names(str(locations[0]), names, dict.fromkeys(table.columns))
    specs = _given(request.spec, table)
    rows = table.rows(first, str(locations[0]))
    fields = []
    for name in names:
        column = table.columns.index(name)
        cells = [row[column] for row in rows]
        spec = specs.get(name)
        if spec is None:
            spec = kind_of_cells(
                cells,
                name,
                lambda row: table.line_of(first, row, str(locations[0])),
                str(locations[0]),
            )
        mean = sum(map(len, cells)) // max(1, len(cells))
        fields.append(Field(spec, estimate=mean + 8))
    return CsvFlow(locations, table, names, structure, tuple(fields), direct=request.direct)


def _first_piece(location: Location) -> Piece:
    with open_reader(location) as reader:
        piece = next(read_pieces(reader, quote=b'"'), None)
    if piece is None or not piece.data.strip():
        raise DataError("is empty", file=str(location), cure="Leave it out, or write its header.")
    return piece


def _table(piece: Piece, delimiter: str, file: str) -> Table:
    text = io.StringIO(piece.text(file), newline="")
    head = next(csv.reader(text, delimiter=delimiter), [])
    if all(_is_number(cell) for cell in head) and head:
        return Table(delimiter, has_header=False, columns=tuple(map(str, range(len(head)))))
    columns = tuple(cell.strip() for cell in head)
    twice = [name for name in columns if columns.count(name) > 1]
    if twice or not columns:
        what = f"two columns called {twice[0]!r}" if twice else "no header"
        raise DataError(
            f"line {piece.line}: has {what}", file=file, cure="Give each a name of its own."
        )
    return Table(delimiter, has_header=True, columns=columns)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _given(spec: Any, table: Table) -> dict[str, ArraySpec]:
    """Return the specs that the user gave: {column: ArraySpec or dtype}."""
    if spec is None:
        return {}
    if not isinstance(spec, dict):
        raise TypeError(
            f"spec of a CSV file must be a dict of columns, got {spec!r}.\n"
            '  right: from_files("x.csv", spec={"price": "float32", "name": str})'
        )
    found = {
        name: one if isinstance(one, ArraySpec) else ArraySpec((), one)
        for name, one in spec.items()
    }
    for name, one in found.items():
        if name not in table.columns:
            raise ValueError(
                f"spec names {name!r}, and the columns are {', '.join(table.columns)}."
            )
        if one.shape != ():
            raise ValueError(f"a cell of a CSV file is one value, got {one} for column {name!r}.")
    return found


class CsvFlow(Flow):
    """Rows of CSV; the cursor is (file, offset of a piece, its first line, rows of it used)."""

    num_rows = None

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
        self.locations = locations
        self.table = table
        self.names = names
        self.structure = structure
        self.fields = fields
        self.direct = direct

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of each piece of text."""
        number, offset, line, used = (0, 0, 1, 0) if cursor is None else cursor
        for at in range(number, len(self.locations)):
            location = self.locations[at]
            with open_reader(location, direct=self.direct, access="sequential") as reader:
                for piece in read_pieces(reader, offset, line, quote=b'"'):
                    yield from self._parcel(at, piece, used, context)
                    used = 0
            offset, line = 0, 1

    def _parcel(self, at: int, piece: Piece, used: int, context: Context) -> Iterator[Parcel]:
        file = str(self.locations[at])
        rows = self.table.rows(piece, file)[used:]
        if not rows:
            return
        columns = list(zip(*rows, strict=True))
        size = len(rows)
        block = context.block(self, size)
        for name, field, sink in zip(self.names, self.fields, block.sinks, strict=True):
            cells = columns[self.table.columns.index(name)]
            sink.put(
                column_values(
                    cells,
                    field.spec,
                    name,
                    lambda row: self.table.line_of(piece, row + used, file),
                    file,
                )
            )
        yield Parcel(block.finish(), size, partial(_after, at, piece.offset, piece.line, used))

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way, and of the text and cells of one piece."""
        rows = max(1, PIECE_NBYTES // max(1, len(self.table.columns)) // 2)
        block = min(self.block_nbytes(rows), 8 * PIECE_NBYTES)
        return (ahead + 2) * block + _PYTHON * PIECE_NBYTES

    def notes(self) -> tuple[str, ...]:
        """Return that the rows can't be had by number."""
        return ("CSV can only be read forward. cache() keeps its rows, and makes shuffle exact.",)

    def choice(self) -> str:
        """Return what was found in the files."""
        head = (
            "names from the first line" if self.table.has_header else "no header: numbers as names"
        )
        return f"{head}; types from the first {PIECE_NBYTES >> 10} KB, then fixed"

    def describe(self) -> str:
        """Return the call that made it."""
        count = len(self.locations)
        return f"from_files({self.locations[0].name if count == 1 else f'{count} CSV files'})"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files, and the fields."""
        files = [[location.name, location.size] for location in self.locations]
        return ["csv", files, list(self.names), [repr(field.spec) for field in self.fields]]


def _after(number: int, offset: int, line: int, used: int, count: int) -> Cursor:
    return [number, offset, line, used + count]
