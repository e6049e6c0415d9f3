"""CSV files: columns as fields. Types are found in the first piece of the first file, then fixed."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.columns import Block
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.core.rows import Context, Cursor, Index, Parcel
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, SpecMismatchError
from penstock.io.formats.lines import PIECE_NBYTES, Piece, UnclosedError, next_line, read_pieces
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.sources.csv.bad_lines import Check, Sifted, sift
from penstock.sources.csv.cells import LineOf, column_values, kind_of_cells
from penstock.sources.reading.bad_rows import SkippableFlow, passed
from penstock.sources.reading.file_rows import chosen_fields
from penstock.sources.reading.parts import Request, check_names, kept, left_out_words

_MOST_NBYTES = 2 * PIECE_NBYTES  # Under `skip`, a row that is longer has a quote without an end.
_NOTE = (
    "from_files(..., on_error='skip') finds columns and types in the other rows, and "
    "with_options(on_error='skip') leaves out this one."
)
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
                raise self.wrong_length(row, self.line_of(piece, number, file), file)
        return rows

    def wrong_length(self, cells: list[str], line: int, file: str) -> DataError:
        """Return the error for a row that has not as many cells as there are columns."""
        return DataError(
            f"line {line} has {len(cells)} columns, and the header has "
            f"{len(self.columns)} ({', '.join(self.columns[:5])}{', ...' if len(self.columns) > 5 else ''})",
            file=file,
            cure="Add what is missing, or quote a cell that holds the separator.",
        )

    def sift(self, piece: Piece, file: str, check: Check) -> list[Sifted]:
        """Return the rows of a piece, good and bad: those that have all cells, and pass `check`."""

        def both(cells: list[str], line: int) -> None:
            if len(cells) != len(self.columns):
                raise self.wrong_length(cells, line, file)
            check(cells, line)

        has_head = self.has_header and piece.line == 1
        return sift(piece, file, self.delimiter, both, has_head=has_head)

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
    locations, table = _tables(locations, request)
    first = _first_piece(locations[0])
    names, structure = chosen_fields(str(locations[0]), table.columns, request)
    check_names(str(locations[0]), names, dict.fromkeys(table.columns))
    specs = _given(request.spec, table)
    rows = _first_rows(table, first, str(locations[0]), request)
    fields = []
    for name in names:
        column = table.columns.index(name)
        cells = [row[column] for row in rows]
        spec = specs.get(name)
        if spec is None:
            if request.skip:  # A row with an empty cell among numbers will be left out.
                cells = [cell for cell in cells if cell.strip()] or cells
            spec = kind_of_cells(
                cells,
                name,
                lambda row: table.line_of(first, row, str(locations[0])),
                str(locations[0]),
            )
        mean = sum(map(len, cells)) // max(1, len(cells))
        fields.append(Field(spec, estimate=mean + 8))
    return CsvFlow(locations, table, names, structure, tuple(fields), direct=request.direct)


def _tables(locations: Sequence[Location], request: Request) -> tuple[list[Location], Table]:
    """Return the files that can be read, and the columns that all of them have."""
    delimiter = "\t" if locations[0].suffix == ".tsv" else ","
    first: list[tuple[Location, Table]] = []

    def look(location: Location) -> Table:
        table = _table(_first_piece(location), delimiter, str(location), skip=request.skip)
        if not first:
            first.append((location, table))
        known = first[0][1]
        if table != known:
            raise SpecMismatchError(
                f"the files of a dataset must have the same columns, got {', '.join(known.columns)} in "
                f"{first[0][0]} and {', '.join(table.columns)} in {location}."
            )
        return table

    good, tables = kept(locations, look, request)
    return good, tables[0]


def _first_rows(table: Table, piece: Piece, file: str, request: Request) -> list[list[str]]:
    """Return the cells that types are found in; bad rows among them may be left out."""
    try:
        return table.rows(piece, file)
    except DataError as error:
        if not request.skip:
            error.add_note(_NOTE)
            raise
    return [row.cells for row in table.sift(piece, file, lambda *_: None) if row.error is None]


def _text(piece: Piece, file: str) -> str:
    try:
        return piece.text(file)
    except DataError as error:
        error.add_note(_NOTE)
        raise


def _first_piece(location: Location) -> Piece:
    with open_reader(location) as reader:
        piece = next(read_pieces(reader, quote=b'"'), None)
    if piece is None or not piece.data.strip():
        raise DataError("is empty", file=str(location), cure="Leave it out, or write its header.")
    return piece


def _table(piece: Piece, delimiter: str, file: str, *, skip: bool) -> Table:
    # Under `skip` a line that is no text is left out later: the file may still have a header.
    text = piece.data.decode("utf-8", "replace") if skip else _text(piece, file)
    head = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
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


class CsvFlow(SkippableFlow):
    """Rows of CSV; the cursor is (file, offset of a piece, its first line, rows of it used).

    Under `skip` the rows used of a piece with bad ones count those, too.
    """

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

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of each piece of text."""
        number, offset, line, used = (0, 0, 1, 0) if cursor is None else cursor
        for at in range(number, len(self.locations)):
            location = self.locations[at]
            try:
                with open_reader(location, direct=self.direct, access="sequential") as reader:
                    for piece in self._pieces(reader, offset, line, context):
                        yield from self._parcel(at, piece, used, context)
                        used = 0
            except DataError as error:
                self.leave_out(error, context)
            offset, line, used = 0, 1, 0

    def _pieces(self, reader: Reader, offset: int, line: int, context: Context) -> Iterator[Piece]:
        """Yield the text of a file; under `skip` a quote that is never closed costs its line only."""
        if not self.skip:
            yield from read_pieces(reader, offset, line, quote=b'"')
            return
        while offset < reader.size:
            try:
                for piece in read_pieces(reader, offset, line, quote=b'"', most=_MOST_NBYTES):
                    yield piece
                    offset, line = piece.end, piece.line + piece.data.count(b"\n")
            except UnclosedError as error:
                self.leave_out(error, context)
                offset, line = next_line(reader, offset), line + 1
            else:
                return

    def _parcel(self, at: int, piece: Piece, used: int, context: Context) -> Iterator[Parcel]:
        file = str(self.locations[at])
        places: Index | None = None
        try:
            rows = self.table.rows(piece, file)[used:]
            block = self._block(
                rows, lambda row: self.table.line_of(piece, row + used, file), file, context
            )
        except DataError:
            if not self.skip:
                raise
            rows, places = self._sifted(piece, used, file, context)
            block = self._block(rows, lambda _: piece.line, file, context)
        size = len(rows)
        del rows
        if size:
            after = partial(_after, at, piece.offset, piece.line, used, places)
            yield Parcel(block.finish(), size, after)

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

    def _sifted(
        self, piece: Piece, used: int, file: str, context: Context
    ) -> tuple[list[list[str]], Index]:
        """Return the good rows of a piece after the first `used`, and their places; tell of the others."""

        def check(cells: list[str], line: int) -> None:
            for name, field in zip(self.names, self.fields, strict=True):
                cell = cells[self.table.columns.index(name)]
                column_values([cell], field.spec, name, lambda _: line, file)

        found = self.table.sift(piece, file, check)[used:]
        for row in found:
            if row.error is not None:
                self.leave_out(row.error, context)
        good = [place for place, row in enumerate(found) if row.error is None]
        return [found[place].cells for place in good], np.array([*good, len(found)], np.int64)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way, and of the text and cells of one piece."""
        rows = max(1, PIECE_NBYTES // max(1, len(self.table.columns)) // 2)
        block = min(self.block_nbytes(rows), 8 * PIECE_NBYTES)
        return (ahead + 2) * block + _PYTHON * (_MOST_NBYTES if self.skip else PIECE_NBYTES)

    def notes(self) -> tuple[str, ...]:
        """Return that the rows can't be had by number."""
        return ("CSV can only be read forward. cache() keeps its rows, and makes shuffle exact.",)

    def choice(self) -> str:
        """Return what was found in the files."""
        head = (
            "names from the first line" if self.table.has_header else "no header: numbers as names"
        )
        types = f"types from the first {PIECE_NBYTES >> 10} KB, then fixed"
        return f"{head}; {types}{left_out_words(self)}"

    def describe(self) -> str:
        """Return the call that made it."""
        count = len(self.locations)
        name = self.locations[0].name if count == 1 else f"{count} CSV files"
        return f"from_files({name}{', skip' if self.skip else ''})"

    def fingerprint(self) -> Any:
        """Return names and sizes of the files, and the fields."""
        files = [[location.name, location.size] for location in self.locations]
        specs = [field.spec.to_json() for field in self.fields]
        return ["csv", files, list(self.names), specs, self.skip]


def _after(
    number: int, offset: int, line: int, used: int, places: Index | None, count: int
) -> Cursor:
    return [number, offset, line, used + passed(places, count)]
