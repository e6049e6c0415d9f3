"""From the cells of a CSV column to an array: which type they have, what is missing, and which cell is bad."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import DataError
from penstock.sources.reading.parsed_flow import LineOf

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None")
"""What stands for a number that is missing. In a column of text, these are text."""
_MISSING = frozenset(MISSING)
_TRUTHS = frozenset({"true", "True", "TRUE", "false", "False", "FALSE"})
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_EXACT = 1 << 53  # Up to here, every whole number is a float64.


def is_missing(cell: str) -> bool:
    """Return whether a cell of a column of numbers has none."""
    return cell.strip() in _MISSING


def has_decimal_comma(cell: str) -> bool:
    """Return whether a cell is a number with a decimal comma: '1,5'."""
    return _DECIMAL_COMMA.fullmatch(cell) is not None


def kind_of_cells(
    cells: Sequence[str], name: str, line_of: LineOf, file: str, decimal: str = "."
) -> ArraySpec:
    """Return bool, int64, float64 or str: the first that can hold all cells.

    Numbers of which some are missing are float64, since only that has a nan.
    """
    filled = [cell for cell in cells if not is_missing(cell)]
    if not filled:
        return ArraySpec((), str)
    has_gaps = len(filled) != len(cells)
    if set(filled) <= _TRUTHS:
        return ArraySpec((), str if has_gaps else np.bool_)
    try:
        whole = np.asarray(filled, dtype="U").astype(np.int64)
    except (ValueError, OverflowError):
        pass
    else:
        if not has_gaps:
            return ArraySpec((), np.int64)
        if int(whole.min()) < -_EXACT or int(whole.max()) > _EXACT:
            row = next(row for row, cell in enumerate(cells) if is_missing(cell))
            raise DataError(
                f"line {line_of(row)}: column {name!r} has whole numbers beyond 2**53, which float64 can't "
                "hold, and this cell is empty",
                file=file,
                cure=f"Fill it, or read the column as text: spec={{{name!r}: str}}, or as rounded numbers: "
                f'spec={{{name!r}: "float64"}}.',
            )
        return ArraySpec((), np.float64)
    try:
        _floats(filled, np.dtype(np.float64), decimal)
    except (ValueError, OverflowError):
        return ArraySpec((), str)
    return ArraySpec((), np.float64)


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
        is_number = is_missing(cell)
        if not is_number:
            try:
                _floats([cell], np.dtype(np.float64), decimal)
                is_number = True
            except (ValueError, OverflowError):
                pass
        if is_number:
            return (
                f'spec={{{name!r}: "float32"}} (or "float64") reads decimals, and missing numbers as nan; '
                f"{as_text}."
            )
    if spec.numpy_dtype.kind == "b" and is_missing(cell):
        return f"Fill it: a truth can't be missing; {as_text}."
    return f"Correct it, or read the column as something else: {as_text}."


def _converted(cells: Sequence[str], dtype: np.dtype[Any], decimal: str) -> Any:
    if dtype.kind == "b":
        words = {"true": True, "1": True, "false": False, "0": False}
        try:
            return np.array([words[cell.strip().lower()] for cell in cells])
        except KeyError as error:
            raise ValueError(*error.args) from error
    if dtype.kind in "iu":
        # Through the widest integer: astype to a narrow one would wrap numbers that do not fit.
        wide = np.asarray(cells, "U").astype(np.int64 if dtype.kind == "i" else np.uint64)
        limits = np.iinfo(dtype)
        if len(wide) and (wide.min() < limits.min or wide.max() > limits.max):
            raise OverflowError(f"out of range for {dtype}")
        if dtype.kind == "u" and any("-" in cell for cell in cells):
            raise OverflowError("negative")
        return wide.astype(dtype)
    if dtype.kind in "fc":
        return _floats(cells, dtype, decimal)
    if dtype.kind in "mM":
        cells = ["NaT" if is_missing(cell) else cell for cell in cells]
    return np.asarray(cells, "U").astype(dtype)


def _floats(cells: Sequence[str], dtype: np.dtype[Any], decimal: str) -> Any:
    """Return numbers, with nan for those that are missing."""
    if decimal != ".":
        if any("." in cell for cell in cells):
            raise ValueError(f"a point, where the decimal mark is {decimal!r}")
        cells = [cell.replace(decimal, ".") for cell in cells]
    try:
        return np.asarray(cells, "U").astype(dtype)
    except ValueError:
        if not any(map(is_missing, cells)):
            raise
    return np.asarray(["nan" if is_missing(cell) else cell for cell in cells], "U").astype(dtype)
