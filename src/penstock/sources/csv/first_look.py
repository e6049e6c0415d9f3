"""The first look at CSV files: their columns, and types, which are found in the first piece and then fixed."""

import csv
import io
import itertools
import operator
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from penstock import _native
from penstock.core.fields import Field
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, SpecMismatchError, warn_user
from penstock.io.formats.lines import Dialect, Piece, mark_nbytes, read_pieces
from penstock.io.location import Location
from penstock.io.unpacked import is_packed, open_text, read_some
from penstock.memory import default_budget
from penstock.sources.csv.cells import (
    are_whole,
    has_decimal_comma,
    is_missing,
    is_number,
    is_whole,
    kind_of_cells,
    kind_of_most,
)
from penstock.sources.csv.flow import CsvFlow
from penstock.sources.csv.rows import CsvRows
from penstock.sources.csv.separators import (
    SEPARATORS,
    check_decimal,
    check_separator,
    found_separator,
    is_between_cells,
    num_cells,
)
from penstock.sources.csv.table import Table
from penstock.sources.reading.file_rows import chosen_fields
from penstock.sources.reading.line_index import index_lines
from penstock.sources.reading.parts import Request, attempt_each, check_names, given_specs
from penstock.sources.reading.times import check_unit

_SEPARATOR_NBYTES = 1 << 16  # Of the beginning of a file, in which its separator is found.
_GZIP = b"\x1f\x8b"
_TOLD = re.compile(r'"?sep=[^\w\s"]"?[\r\n]|"?sep=\t"?[\r\n]', re.IGNORECASE)
_NAMES_SHOWN = 3
_COLUMNS_SHOWN = 20
_LEAST_NBYTES = 1 << 20  # That the first line may have in any case.
_NOTE = (
    "from_files(..., on_error='skip') finds columns and types in the other rows, and "
    "with_options(on_error='skip') skips this one."
)


def open_format(locations: Sequence[Location], request: Request) -> CsvFlow | CsvRows:
    """Return the columns of files; rows are found by one scan of each, packed and remote ones are read forward."""
    locations, table, starts = _tables(locations, request)
    file = str(locations[0])
    names, structure = chosen_fields(file, table.columns, request)
    check_names(file, names, table.columns)
    specs = given_specs(request.spec, table.columns, file)
    file, first, rows = _first_file(locations, table, request)
    places = {name: column for column, name in enumerate(table.columns)}
    cells_of = [[row[places[name]] for row in rows] for name in names]
    is_one = _warn_of_separator(table, first, file)
    if not is_one and request.decimal is None and table.delimiter != ",":
        _warn_of_commas(
            [
                name
                for name, cells in zip(names, cells_of, strict=True)
                if name not in specs and _has_commas(cells)
            ],
            file,
        )
    if table.has_header:
        _warn_of_numbers(table.columns, rows, file)
    fields = []
    exact = []
    for name, cells in zip(names, cells_of, strict=True):
        spec = specs.get(name)
        if spec is None:
            try:
                spec = kind_of_cells(
                    cells, name, lambda row: table.line_of(first, row, file), file, table.decimal
                )
            except DataError:
                kind = kind_of_most(cells) if request.skip else None
                if kind is None:
                    raise
                spec = ArraySpec((), kind)  # A row without such a number will be skipped.
        elif spec.shape != ():
            raise ValueError(f"a cell of a CSV file is one value, got {spec} for column {name!r}.")
        else:
            check_unit(spec.dtype, name)
        if name not in specs and spec.dtype == np.float64 and are_whole(cells):
            exact.append(name)
        mean = sum(map(len, cells)) // max(1, len(cells))
        fields.append(Field(spec, estimate=mean + 8))
    flow = CsvFlow(
        locations,
        table,
        names,
        structure,
        tuple(fields),
        exact=frozenset(exact),
        direct=request.direct,
    )
    if flow.is_packed or any(location.is_remote for location in locations) or min(starts) < 0:
        return flow
    indexes = index_lines(locations, starts, table.dialect, direct=request.direct)
    return flow if indexes is None else CsvRows(flow, indexes)


def _has_commas(cells: Sequence[str]) -> bool:
    """Return whether cells are numbers with decimal commas, as far as they are not missing."""
    filled = [cell for cell in cells if not is_missing(cell)]
    return any(map(has_decimal_comma, filled)) and all(
        has_decimal_comma(cell) or is_whole(cell) for cell in filled
    )


def _warn_of_commas(names: Sequence[str], file: str) -> None:
    if names:
        shown = ", ".join(map(repr, names[:_NAMES_SHOWN])) + (
            ", ..." if names[_NAMES_SHOWN:] else ""
        )
        warn_user(
            f"{file}: the numbers of column {shown} have commas, and are read as text; decimal=',' reads them as "
            "numbers with decimal commas, and decimal='.' leaves them text without this warning."
        )


def _warn_of_separator(table: Table, piece: Piece, file: str) -> bool:
    """Warn if the only column of a file is several, by another separator than the one that was given."""
    name = table.columns[0]
    if len(table.columns) > 1 or not any(one in name for one in SEPARATORS):
        return False
    text = piece.data[:_SEPARATOR_NBYTES].decode("utf-8", "replace")
    is_whole = len(piece.data) <= _SEPARATOR_NBYTES
    own = found_separator(text, is_whole=is_whole)
    number = 0 if own == table.delimiter else num_cells(text, own, is_whole=is_whole)
    if number:
        warn_user(
            f"{file}: {table.delimiter!r} is the separator, and there is one column, {name!r:.80}; separator={own!r} "
            f"would find {number}."
        )
    return bool(number)


def _warn_of_numbers(columns: Sequence[str], rows: Sequence[Sequence[str]], file: str) -> None:
    """Warn if the line that was taken for the header may be a row: a cell is a number, as those below it are.

    Years and the like (`city,2019,2020`) are names: whole numbers, each as far from the next one.
    """
    numbers = [place for place, name in enumerate(columns) if _has_digits(name)]
    if len(numbers) > 1 and all(is_whole(columns[place]) for place in numbers):
        values = [float(columns[place]) for place in numbers]
        steps = {after - before for before, after in itertools.pairwise(values)}
        if len(steps) == 1 and steps != {0}:
            return
    for place in numbers:
        below = [row[place] for row in rows if not is_missing(row[place])]
        if below and all(map(_has_digits, below)):
            warn_user(
                f"{file}: the first line was taken for the names of the columns, and has the number "
                f"{columns[place]!r}, as the lines below it have numbers there. If it is a row, put a line with the "
                "names above it; if these are the names, nothing is wrong."
            )
            return


def _has_digits(cell: str) -> bool:
    """Return whether a cell is a number that is written in digits: `nan` may be a name."""
    return any("0" <= letter <= "9" for letter in cell) and is_number(cell)


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
    asked = None if request.separator is None else check_separator(request.separator)
    decimal = "." if request.decimal is None else check_decimal(request.decimal, asked)
    first: list[tuple[Location, Table]] = []

    def look(location: Location) -> int:
        delimiter = asked or (first[0][1].delimiter if first else _separator(location, decimal))
        piece = _first_piece(location, Dialect(ord(delimiter)))
        table = replace(_table(piece, delimiter, str(location), skip=request.skip), decimal=decimal)
        if not first:
            first.append((location, table))
        known = first[0][1]
        if table != known:
            own = asked or _separator(location, decimal)
            other = "" if own == delimiter else f", whose separator seems to be {own!r}"
            raise SpecMismatchError(
                f"the files of a dataset must have the same columns, got {_shown(known.columns)} in "
                f"{first[0][0]} and {_shown(table.columns)} in {location}{other}. "
                f"{_columns_cure(known.columns, table.columns, is_cut=own == delimiter)}"
            )
        return _first_row(piece, table, location)

    good, starts = attempt_each(locations, look, request)
    return good, first[0][1], starts


def _columns_cure(known: Sequence[str], others: Sequence[str], *, is_cut: bool) -> str:
    """Return how files with these columns are read together; `is_cut` if the separator is right."""
    if not is_cut:
        return "Read the files apart, and join them: ps.concatenate(a, b)."
    if set(known) == set(others):
        return (
            "They stand in another order: write them in the same one, or read the files apart with the same "
            "fields=(...), and join them: ps.concatenate(a, b)."
        )
    missing = [name for name in known if name not in set(others)]
    more = [name for name in others if name not in set(known)]
    words = [
        f"{what} {_shown(names)}" for what, names in (("lacks", missing), ("adds", more)) if names
    ]
    return (
        f"The second {' and '.join(words)}: give both the same columns, or read the files apart with fields=(...) "
        "that both have, and join them: ps.concatenate(a, b)."
    )


def _shown(columns: Sequence[str]) -> str:
    return ", ".join(columns[:_COLUMNS_SHOWN]) + (", ..." if columns[_COLUMNS_SHOWN:] else "")


def _separator(location: Location, decimal: str) -> str:
    """Return what stands between the cells of a file, by its name and its first rows."""
    if location.name.lower().removesuffix(".gz").endswith(".tsv"):
        return "\t"
    with open_text(location) as reader:
        data = read_some(reader, mark_nbytes(reader), _SEPARATOR_NBYTES)
        if data.startswith(_GZIP) and not is_packed(location):
            raise DataError(
                "is packed by gzip, which its name does not say",
                file=str(location),
                cure="Give it a name that ends in .gz, such as .csv.gz.",
            )
        is_whole = len(data) >= reader.size
    text = data.decode("utf-8", "replace")
    if is_between_cells(text, decimal):
        raise DataError(
            f"has {decimal!r} between its cells, which is the decimal mark that was given",
            file=str(location),
            cure="Leave decimal out if its numbers have points. If they have commas, and quotes around them, write it "
            f"anew: pandas.read_csv(file, decimal={decimal!r}).to_csv(file, index=False).",
        )
    return found_separator(text, is_whole=is_whole, decimal=decimal)


def _first_file(
    locations: Sequence[Location], table: Table, request: Request
) -> tuple[str, Piece, list[list[str]]]:
    """Return the first file that has rows, its start, and the rows there; the first of all if none has any."""
    for location in locations:
        piece = _first_piece(location, table.dialect)
        rows = _first_rows(table, piece, str(location), request)
        if rows:
            return str(location), piece, rows
    return str(locations[0]), _first_piece(locations[0], table.dialect), []


def _first_rows(table: Table, piece: Piece, file: str, request: Request) -> list[list[str]]:
    """Return the rows in which types are found; if the request says so, bad rows are skipped."""
    try:
        return table.rows(piece, file)
    except DataError as error:
        if not request.skip:
            error.add_note(_NOTE)
            raise
    return [row.raw for row in table.parse_each(piece, file, lambda *_: None) if row.error is None]


def _text(piece: Piece, file: str) -> str:
    try:
        return piece.text(file)
    except DataError as error:
        error.add_note(_NOTE)
        raise


def _first_piece(location: Location, dialect: Dialect) -> Piece:
    with open_text(location) as reader:
        # No budget is known yet: a first line that would not fit the default one is taken for damage.
        most = max(_LEAST_NBYTES, default_budget() // CsvFlow.copies)
        piece = next(read_pieces(reader, dialect=dialect, most=most), None)
    if piece is None or not piece.data.strip():
        raise DataError("is empty", file=str(location), cure="Leave it out, or write its header.")
    return piece


def _table(piece: Piece, delimiter: str, file: str, *, skip: bool) -> Table:
    # Under `skip` a line that is not UTF-8 is skipped later: the file may still have a header.
    text = piece.data.decode("utf-8", "replace") if skip else _text(piece, file)
    told = _TOLD.match(text)
    if told is not None:
        raise DataError(
            f"line {piece.line} tells the separator, {told[0].strip()!r}, which spreadsheets alone understand",
            file=file,
            cure="Remove this line: the separator is found without it.",
        )
    head = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    numbers = [is_number(cell) or (delimiter != "," and has_decimal_comma(cell)) for cell in head]
    if any(numbers) and all(map(operator.or_, numbers, map(is_missing, head))):
        return Table(delimiter, has_header=False, columns=tuple(map(str, range(len(head)))))
    columns = tuple(cell.strip() for cell in head)
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if not columns:
        raise DataError(
            f"line {piece.line} is blank, and should be the header or the first row",
            file=file,
            cure="Remove the blank lines that it begins with.",
        )
    if twice:
        raise DataError(
            f"line {piece.line}: has two columns called {twice[0]!r}",
            file=file,
            cure="If this line is a row, put a line with the names above it."
            if _has_digits(twice[0])
            else "Give each a name of its own.",
        )
    return Table(delimiter, has_header=True, columns=columns)
