"""From the cells of a CSV column to an array: which type they have, what is missing, and which cell is bad."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import narrowed
from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import DataError
from penstock.sources.reading.fixed_texts import fixed_texts, wide_enough
from penstock.sources.reading.parsed_flow import LineOf
from penstock.sources.reading.times import time_cure, times

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None")
"""What stands for a number that is missing. In a column of text, these are text."""
_MISSING = frozenset(MISSING)
_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_DECIMAL_COMMA = re.compile(r"\s*[-+]?[0-9]*,[0-9]+([eE][-+]?[0-9]+)?\s*")
_SPACE = r"[^\S\x1c-\x1f]*"  # What NumPy takes for spaces around a number.
_WHOLE = re.compile(rf"{_SPACE}[-+]?[0-9]+{_SPACE}")
_OTHER_DIGIT = re.compile(r"(?![0-9])\d")
EXACT = 1 << 53
"""Up to here, every whole number is a float64."""


def is_missing(cell: str) -> bool:
    """Return whether a cell of a column of numbers has none."""
    return cell.strip() in _MISSING


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma: '1,5'."""
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def is_number(cell: str) -> bool:
    """Return whether a cell is a number, with a decimal point if it has one."""
    try:
        _check_plain([cell])
        float(cell)
    except ValueError:
        return False
    return True


def is_whole(cell: str) -> bool:
    """Return whether a cell is a whole number: ASCII digits, with or without a sign."""
    return _WHOLE.fullmatch(cell) is not None


def kind_of_cells(
    cells: Sequence[str], name: str, line_of: LineOf, file: str, decimal: str = "."
) -> ArraySpec:
    """Return bool, int64, uint64, float64 or str: the first that can hold all cells.

    Numbers of which some are missing are float64, since only that has a nan. Whole numbers that would be rounded are
    an error.
    """
    filled = [cell for cell in cells if not is_missing(cell)]
    if not filled:
        return ArraySpec((), str)
    has_gaps = len(filled) != len(cells)
    if set(filled) <= _TRUTHS:
        return ArraySpec((), str if has_gaps else np.bool_)
    if all(map(_WHOLE.fullmatch, filled)):
        if not has_gaps:
            return ArraySpec((), _kind_of_whole(cells, name, line_of, file))
        if not _are_exact(filled):
            raise _gap_among_large(cells, name, line_of, file)
        return ArraySpec((), np.float64)
    try:
        _floats(filled, np.dtype(np.float64), decimal)
    except (ValueError, OverflowError):
        return ArraySpec((), str)
    return ArraySpec((), np.float64)


def _kind_of_whole(cells: Sequence[str], name: str, line_of: LineOf, file: str) -> np.dtype[Any]:
    """Return int64 or uint64, whichever holds all cells, or raise a DataError for one that neither holds."""
    for dtype in (np.dtype(np.int64), np.dtype(np.uint64)):
        try:
            _integers(cells, dtype)
        except (ValueError, OverflowError):
            continue
        return dtype
    row = next(row for row, cell in enumerate(cells) if not _fits(cell, np.dtype(np.int64)))
    others = "" if _fits(cells[row], np.dtype(np.uint64)) else " or uint64"
    others = others or ", and others that are negative or beyond uint64"
    raise DataError(
        f"line {line_of(row)}: column {name!r} has whole numbers beyond int64{others}, got {cells[row][:40]!r}",
        file=file,
        cure=f"Read the column as text: {_as_spec(name, str)}, or as rounded numbers: "
        f"{_as_spec(name, 'float64')}.",
    )


def _gap_among_large(cells: Sequence[str], name: str, line_of: LineOf, file: str) -> DataError:
    row = next(row for row, cell in enumerate(cells) if is_missing(cell))
    return DataError(
        f"line {line_of(row)}: column {name!r} has whole numbers beyond 2**53, which float64 can't "
        "hold, and this cell is empty",
        file=file,
        cure=f"Fill it, or read the column as text: {_as_spec(name, str)}, or as rounded numbers: "
        f"{_as_spec(name, 'float64')}.",
    )


def kind_of_most(cells: Sequence[str]) -> np.dtype[Any] | None:
    """Return int64 or uint64, whichever holds more of the cells; None if none of them is such a number."""
    kinds = [np.dtype(np.int64), np.dtype(np.uint64)]
    counts = [sum(_fits(cell, kind) for cell in cells) for kind in kinds]
    return kinds[int(counts[1] > counts[0])] if any(counts) else None


def _as_spec(name: str, kind: type | str) -> str:
    """Return the argument that reads a column as another type."""
    return f"spec={{{name!r}: str}}" if kind is str else f'spec={{{name!r}: "{kind}"}}'


def _fits(cell: str, dtype: np.dtype[Any]) -> bool:
    """Return whether an integer type holds a cell."""
    try:
        _integers([cell], dtype)
    except (ValueError, OverflowError):
        return False
    return True


def _are_exact(cells: Sequence[str]) -> bool:
    """Return whether float64 holds whole numbers as they are, as it does all up to 2**53."""
    try:
        whole = _integers(cells, np.dtype(np.int64))
    except (ValueError, OverflowError):
        return False
    return int(whole.min()) >= -EXACT and int(whole.max()) <= EXACT


def are_whole(cells: Sequence[str]) -> bool:
    """Return whether all cells are whole numbers, as far as they are not missing."""
    return all(is_whole(cell) or is_missing(cell) for cell in cells)


def check_exact(cells: Sequence[str], name: str, line_of: LineOf, file: str) -> None:
    """Raise a DataError for the first whole number that float64 may not hold; decimals are rounded as ever."""
    for row, cell in enumerate(cells):
        if is_whole(cell) and not _are_exact([cell]):
            raise DataError(
                f"line {line_of(row)}: column {name!r} is float64, since it has whole numbers with gaps, and that "
                f"holds them up to 2**53, got {cell.strip()[:40]!r}",
                file=file,
                cure=f"Read the column as text: {_as_spec(name, str)}, or as rounded numbers: "
                f"{_as_spec(name, 'float64')}.",
            )


def column_values(
    cells: Sequence[str], spec: ArraySpec, name: str, line_of: LineOf, file: str, decimal: str = "."
) -> Any:
    """Return cells as values of the spec, or raise a DataError with the line of the first bad cell."""
    if spec.dtype is str:
        return cells
    if spec.dtype is bytes:
        return [cell.encode() for cell in cells]
    try:
        return _converted(cells, spec.numpy_dtype, decimal)
    except (ValueError, OverflowError, TypeError):
        pass
    for row, cell in enumerate(cells):
        try:
            _converted([cell], spec.numpy_dtype, decimal)
        except (ValueError, OverflowError, TypeError) as error:
            raise DataError(
                f"line {line_of(row)}: column {name!r} is {dtype_name(spec.dtype)}, got {cell[:40]!r}",
                file=file,
                cure=_cure(cell, spec, name, decimal),
            ) from error
    raise AssertionError("cells that fail together fail alone")


def _cure(cell: str, spec: ArraySpec, name: str, decimal: str) -> str:
    """Return what to write, so that this cell can be read."""
    as_text = f"spec={{{name!r}: str}} reads text"
    if decimal == "." and has_decimal_comma(cell):
        return f"decimal=',' reads numbers with decimal commas, and {as_text}."
    if spec.numpy_dtype.kind in "iu":
        if is_whole(cell):
            return f"{_wider(cell, spec, name)}{_as_spec(name, 'float64')} reads rounded numbers, and {as_text}."
        if is_missing(cell) or _is_float(cell, decimal):
            return (
                f'spec={{{name!r}: "float32"}} (or "float64") reads decimals, and missing numbers as nan; '
                f"{as_text}."
            )
    if spec.numpy_dtype.kind in "mM":
        return time_cure(cell, spec.numpy_dtype, name)
    if spec.numpy_dtype.kind in "SU":
        wider = wide_enough(cell, spec.numpy_dtype)
        holds = f"{_as_spec(name, wider)} holds it, and " if wider else ""
        return f"{holds}{as_text} of any length."
    if spec.numpy_dtype.kind == "f" and _is_float(cell, decimal):
        return f"{_as_spec(name, 'float64')} holds it, and {as_text}."
    if spec.numpy_dtype.kind == "b" and is_missing(cell):
        return f"Fill it: a truth can't be missing; {as_text}."
    return f"Correct it, or read the column as something else: {as_text}."


def _wider(cell: str, spec: ArraySpec, name: str) -> str:
    """Return which integers hold a whole number that the column does not, and "" if there are none."""
    if spec.dtype == np.uint64:
        return ""  # Its other numbers may need it.
    fitting = [kind for kind in ("int64", "uint64") if _fits(cell, np.dtype(kind))]
    return f"{_as_spec(name, fitting[0])} holds it, " if fitting else ""


def _is_float(cell: str, decimal: str) -> bool:
    try:
        _floats([cell], np.dtype(np.float64), decimal)
    except (ValueError, OverflowError):
        return False
    return True


def _converted(cells: Sequence[str], dtype: np.dtype[Any], decimal: str) -> Any:
    if dtype.kind == "b":
        words = {"true": True, "1": True, "false": False, "0": False}
        try:
            return np.array([words[cell.strip().lower()] for cell in cells])
        except KeyError as error:
            raise ValueError(*error.args) from error
    if dtype.kind in "iu":
        return _integers(cells, dtype)
    if dtype.kind in "fc":
        return _floats(cells, dtype, decimal)
    if dtype.kind in "mM":
        _check_plain(cells)
        return times(["NaT" if is_missing(cell) else cell for cell in cells], dtype)
    return fixed_texts(cells, dtype)


def _check_plain(cells: Sequence[str]) -> None:
    """Raise ValueError for what Python and NumPy take for numbers, and nobody else: `1_000`, digits of other scripts.

    One pass over the joined text: there may be many cells.
    """
    text = "".join(cells)
    # NumPy drops a zero byte at the end.
    if "_" in text or "\0" in text or (not text.isascii() and _OTHER_DIGIT.search(text)):
        raise ValueError("underscores or other digits than 0 to 9")


def _integers(cells: Sequence[str], dtype: np.dtype[Any]) -> Any:
    """Return whole numbers. Raises ValueError or OverflowError."""
    _check_plain(cells)
    # Through the widest integer: astype to a narrow one would wrap numbers that do not fit.
    wide = np.asarray(cells, "U").astype(np.int64 if dtype.kind == "i" else np.uint64)
    limits = np.iinfo(dtype)
    if len(wide) and (wide.min() < limits.min or wide.max() > limits.max):
        raise OverflowError(f"out of range for {dtype}")
    if dtype.kind == "u" and any("-" in cell for cell in cells):
        raise OverflowError("negative")
    return wide.astype(dtype)


def _floats(cells: Sequence[str], dtype: np.dtype[Any], decimal: str) -> Any:
    """Return numbers, with nan for those that are missing."""
    _check_plain(cells)
    if decimal != ".":
        if any("." in cell for cell in cells):
            raise ValueError(f"a point, where the decimal mark is {decimal!r}")
        cells = [cell.replace(decimal, ".") for cell in cells]
    # By way of the wide ones, as pyarrow's are read, which tell what does not fit.
    wide = np.result_type(dtype, np.float64)
    try:
        numbers = np.asarray(cells, "U").astype(wide)
    except ValueError:
        if not any(map(is_missing, cells)):
            raise
        cells = ["nan" if is_missing(cell) else cell for cell in cells]
        numbers = np.asarray(cells, "U").astype(wide)
    return narrowed(numbers, dtype)
