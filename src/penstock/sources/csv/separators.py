"""What stands between the cells of a CSV file, found in its first rows."""

import csv
import io
from itertools import islice

from penstock.sources.csv.cells import has_decimal_comma

SEPARATORS = (",", ";", "\t", "|")
"""Those that are looked for; of two that fit as well, the first is taken."""
_NUM_ROWS = 100


def check_separator(separator: object) -> str:
    """Return what a user gave as separator, or raise."""
    if not isinstance(separator, str) or len(separator) != 1 or not separator.isascii():
        raise ValueError(f"separator must be one ASCII character, such as ';', got {separator!r}.")
    if separator.isalnum() or separator in '".+-\r\n\0':
        raise ValueError(
            f"separator must not be part of numbers, quotes or lines, got {separator!r}."
        )
    return separator


def check_decimal(decimal: object, separator: str | None) -> str:
    """Return what a user gave as decimal mark, or raise."""
    if decimal not in (".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}.")
    if decimal == separator:
        raise ValueError(f"separator and decimal must differ, got {decimal!r} for both.")
    return str(decimal)


def found_separator(text: str, *, is_whole: bool, decimal: str = ".") -> str:
    """Return the separator of a file that begins with `text`: that by which most rows have the cells of the first.

    >>> [found_separator(text, is_whole=True) for text in ("a;b", "a,b", "one")]
    [';', ',', ',']
    """
    found = [one for one in SEPARATORS if one in text and one != decimal]
    if not found:
        return SEPARATORS[0] if decimal != "," else SEPARATORS[1]
    scores = {one: _score(text, one, is_whole=is_whole) for one in found}
    best = max(found, key=lambda one: scores[one])
    if best == "," and ";" in found and scores[";"][0] == 1 and _is_between_decimals(text):
        return ";"
    return best


def is_between_cells(text: str, decimal: str) -> bool:
    """Return whether the decimal mark stands between names in the first row, and no other separator does."""
    if decimal == ".":
        return False
    first = next(iter(text.lstrip("\ufeff\r\n").splitlines()), "")
    return decimal in first and not any(one in first for one in SEPARATORS if one != decimal)


def num_cells(text: str, separator: str, *, is_whole: bool) -> int:
    r"""Return how many cells each of the first rows of a file that begins with `text` has; 0 if they differ.

    >>> [num_cells(text, ",", is_whole=True) for text in ("a,b", "a,b\n1", "one")]
    [2, 0, 0]
    """
    share, number = _score(text, separator, is_whole=is_whole)
    return number if share == 1 else 0


def _rows(text: str, separator: str) -> list[list[str]]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        return [row for row in islice(rows, _NUM_ROWS + 1) if row]
    except csv.Error:  # A cell that is longer than Python's csv takes.
        return []


def _score(text: str, separator: str, *, is_whole: bool) -> tuple[float, int]:
    """Return how many of the first rows have as many cells as the very first, from 0 to 1; and how many these are."""
    rows = _rows(text, separator)
    if len(rows) > 1 and (not is_whole or len(rows) > _NUM_ROWS):
        rows.pop()  # It may be cut.
    number = len(rows[0]) if rows else 0
    if number < 2:
        return -1.0, 0
    # A quote that is left over tells that a quoted cell was cut.
    good = [row for row in rows if len(row) == number and not any(c.count('"') % 2 for c in row)]
    return len(good) / len(rows), number


def _is_between_decimals(text: str) -> bool:
    """Return whether each comma is one of a number between semicolons: '1,5;2,5'."""
    cells = [cell for row in _rows(text, ";")[:-1] for cell in row if "," in cell]
    return bool(cells) and all(map(has_decimal_comma, cells))
