"""CSV with bad lines: the slow way through a piece of text, which checks every row by itself."""

import csv
import io
from collections.abc import Callable
from itertools import islice

from penstock.errors import DataError
from penstock.io.formats.lines import Piece, not_utf8
from penstock.sources.reading.parsed_flow import ParsedLine

Check = Callable[[list[str], int], None]
"""Called with the cells of a row and the line where it begins; raises a DataError if the row is bad."""


def parse_lines(
    piece: Piece, file: str, delimiter: str, check: Check, *, has_head: bool
) -> list[ParsedLine]:
    """Return all rows of a piece, good and bad; after one that can't be parsed, go on with the next line."""
    # Bytes that are not UTF-8 become surrogates, which `_checked` looks for in each row.
    text = piece.data.decode("utf-8", "surrogateescape")
    lines = list(io.StringIO(text, newline=""))
    found: list[ParsedLine] = []
    at = 0
    while at < len(lines):
        reader = csv.reader(islice(lines, at, None), delimiter=delimiter, strict=True)
        begin = at
        try:
            for cells in reader:
                if has_head and begin == 0:
                    pass
                elif cells:  # Empty lines are not rows.
                    found.append(_checked(cells, piece.line + begin, file, check))
                begin = at + reader.line_num
            at = len(lines)
        except csv.Error as error:
            cure = "Look for a quote that is never closed or stands within a cell."
            wrong = DataError(f"line {piece.line + begin}: {error}", file=file, cure=cure)
            found.append(ParsedLine([], wrong))
            at = begin + 1
    return found


def _checked(cells: list[str], line: int, file: str, check: Check) -> ParsedLine:
    try:
        "".join(cells).encode()
        check(cells, line)
    except UnicodeEncodeError:
        return ParsedLine([], not_utf8(line, file, None, "latin1"))
    except DataError as error:
        return ParsedLine([], error.with_traceback(None))
    return ParsedLine(cells)
