"""The first look at CSV files: their columns, and types, which are found in the first piece and then fixed."""

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.fields import Field
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, SpecMismatchError
from penstock.io.formats.lines import Dialect, Piece, read_pieces
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.memory import default_budget
from penstock.sources.csv.cells import kind_of_cells
from penstock.sources.csv.flow import CsvFlow
from penstock.sources.csv.rows import CsvRows
from penstock.sources.csv.table import Table
from penstock.sources.reading.file_rows import chosen_fields
from penstock.sources.reading.line_index import index_lines
from penstock.sources.reading.parts import Request, attempt_each, check_names

_LEAST_NBYTES = 1 << 20  # That the first line may have in any case.
_NOTE = (
    "from_files(..., on_error='skip') finds columns and types in the other rows, and "
    "with_options(on_error='skip') skips this one."
)


def open_format(locations: Sequence[Location], request: Request) -> CsvFlow | CsvRows:
    """Return the columns of files, whose rows are found by one scan of each; those behind URLs are read forward."""
    locations, table, starts = _tables(locations, request)
    first = _first_piece(locations[0], table.dialect)
    names, structure = chosen_fields(str(locations[0]), table.columns, request)
    check_names(str(locations[0]), names, dict.fromkeys(table.columns))
    specs = _given(request.spec, table, str(locations[0]))
    rows = _first_rows(table, first, str(locations[0]), request)
    fields = []
    for name in names:
        column = table.columns.index(name)
        cells = [row[column] for row in rows]
        spec = specs.get(name)
        if spec is None:
            if request.skip:  # A row with an empty cell among numbers will be skipped.
                cells = [cell for cell in cells if cell.strip()] or cells
            spec = kind_of_cells(
                cells,
                name,
                lambda row: table.line_of(first, row, str(locations[0])),
                str(locations[0]),
            )
        mean = sum(map(len, cells)) // max(1, len(cells))
        fields.append(Field(spec, estimate=mean + 8))
    flow = CsvFlow(locations, table, names, structure, tuple(fields), direct=request.direct)
    if any(location.is_remote for location in locations) or min(starts) < 0:
        return flow
    indexes = index_lines(locations, starts, table.dialect, direct=request.direct)
    return flow if indexes is None else CsvRows(flow, indexes)


def _first_row(piece: Piece, table: Table, location: Location) -> int:
    """Return the byte after the header, or that of the first row if there is none; -1 for a header without an end."""
    if not table.has_header:
        return piece.offset
    place = np.zeros((2, 1), np.int64)
    dialect = table.dialect
    if not _native.split_lines(piece.data, dialect.separator, dialect.quote, *place):
        return -1
    return min(location.size, piece.offset + int(place[1, 0]) + 1)


def _tables(
    locations: Sequence[Location], request: Request
) -> tuple[list[Location], Table, list[int]]:
    """Return the good files, the columns that all of them have, and where the rows of each begin."""
    delimiter = "\t" if locations[0].suffix == ".tsv" else ","
    first: list[tuple[Location, Table]] = []

    def look(location: Location) -> int:
        piece = _first_piece(location, Dialect(ord(delimiter)))
        table = _table(piece, delimiter, str(location), skip=request.skip)
        if not first:
            first.append((location, table))
        known = first[0][1]
        if table != known:
            raise SpecMismatchError(
                f"the files of a dataset must have the same columns, got {', '.join(known.columns)} in "
                f"{first[0][0]} and {', '.join(table.columns)} in {location}."
            )
        return _first_row(piece, table, location)

    good, starts = attempt_each(locations, look, request)
    return good, first[0][1], starts


def _first_rows(table: Table, piece: Piece, file: str, request: Request) -> list[list[str]]:
    """Return the rows in which types are found; if the request says so, bad rows are skipped."""
    try:
        return table.rows(piece, file)
    except DataError as error:
        if not request.skip:
            error.add_note(_NOTE)
            raise
    return [
        row.cells for row in table.parse_each(piece, file, lambda *_: None) if row.error is None
    ]


def _text(piece: Piece, file: str) -> str:
    try:
        return piece.text(file)
    except DataError as error:
        error.add_note(_NOTE)
        raise


def _first_piece(location: Location, dialect: Dialect) -> Piece:
    with open_reader(location) as reader:
        # No budget is known yet: a first line that would not fit the default one is taken for damage.
        most = max(_LEAST_NBYTES, default_budget() // CsvFlow.copies)
        piece = next(read_pieces(reader, dialect=dialect, most=most), None)
    if piece is None or not piece.data.strip():
        raise DataError("is empty", file=str(location), cure="Leave it out, or write its header.")
    return piece


def _table(piece: Piece, delimiter: str, file: str, *, skip: bool) -> Table:
    # Under `skip` a line that is not UTF-8 is skipped later: the file may still have a header.
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


def _given(spec: Any, table: Table, file: str) -> dict[str, ArraySpec]:
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
            raise DataError(
                f"spec names {name!r}, and the columns are {', '.join(table.columns)}",
                file=file,
                cure="Check the spec, and the first line of the file.",
            )
        if one.shape != ():
            raise ValueError(f"a cell of a CSV file is one value, got {one} for column {name!r}.")
    return found
