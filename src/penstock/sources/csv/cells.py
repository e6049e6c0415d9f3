"""From the cells of a CSV column to an array: which type they have, and which cell is bad."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import DataError

LineOf = Callable[[int], int]
"""The line that a row is on, by the number of the row."""


def kind_of_cells(cells: Sequence[str], name: str, line_of: LineOf, file: str) -> ArraySpec:
    """Return int64, float64 or str: the first that can hold all cells."""
    filled = [cell for cell in cells if cell.strip()]
    if not filled:
        return ArraySpec((), str)
    for dtype in (np.int64, np.float64):
        try:
            np.asarray(filled, dtype="U").astype(dtype)
        except (ValueError, OverflowError):
            continue
        if len(filled) != len(cells):
            row = next(row for row, cell in enumerate(cells) if not cell.strip())
            raise DataError(
                f"line {line_of(row)}: column {name!r} has numbers, and this cell is empty",
                file=file,
                cure=f"Fill it (nan is a number), or read the column as text: spec={{{name!r}: str}}.",
            )
        return ArraySpec((), dtype)
    return ArraySpec((), str)


def column_values(
    cells: Sequence[str], spec: ArraySpec, name: str, line_of: LineOf, file: str
) -> Any:
    """Return cells as values of the spec, or raise a DataError with the line of the first bad cell."""
    if spec.dtype is str:
        return cells
    if spec.dtype is bytes:
        return [cell.encode() for cell in cells]
    try:
        return _converted(cells, spec.numpy_dtype)
    except (ValueError, OverflowError, TypeError):
        pass
    for row, cell in enumerate(cells):
        try:
            _converted([cell], spec.numpy_dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise DataError(
                f"line {line_of(row)}: column {name!r} is {dtype_name(spec.dtype)}, got {cell[:40]!r}",
                file=file,
                cure=f"Correct it, or read the column as something else: spec={{{name!r}: str}} or "
                f'{{{name!r}: "float64"}}.',
            ) from error
    raise AssertionError("cells that fail together fail alone")


def _converted(cells: Sequence[str], dtype: np.dtype[Any]) -> Any:
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
    return np.asarray(cells, "U").astype(dtype)
