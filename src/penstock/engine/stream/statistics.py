"""statistics(): count, mean, variance, minimum and maximum of every field, in one pass."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.columns import Column, Fixed, Ragged
from penstock.core.nest import unflatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.engine.stream.stream import Stream


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """What one pass found for a field, at each place of a row; None where a figure has no meaning.

    After `batch` the statistics are still those of rows. Fields whose shapes differ from row to
    row count every value as a row of its own.
    """

    count: int
    mean: Array | None
    variance: Array | None
    minimum: Array | None
    maximum: Array | None


class _Running:
    """Merges the statistics of blocks, by the method of Chan and others: exact to rounding."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Array | None = None
        self.squares: Array | None = None
        self.minimum: Array | None = None
        self.maximum: Array | None = None

    def add(self, rows: Array) -> None:
        if not len(rows):
            return
        before, self.count = self.count, self.count + len(rows)
        if rows.dtype.kind in "biufc":
            exact = rows.astype(np.complex128 if rows.dtype.kind == "c" else np.float64)
            mean = exact.mean(axis=0)
            squares = (np.abs(exact - mean) ** 2).sum(axis=0)
            if self.mean is None or self.squares is None:
                self.mean, self.squares = mean, squares
            else:
                delta = mean - self.mean
                self.mean = self.mean + delta * (len(rows) / self.count)
                self.squares = (
                    self.squares + squares + np.abs(delta) ** 2 * (before * len(rows) / self.count)
                )
        if rows.dtype.kind in "biufmM":
            low, high = rows.min(axis=0), rows.max(axis=0)
            self.minimum = low if self.minimum is None else np.minimum(self.minimum, low)
            self.maximum = high if self.maximum is None else np.maximum(self.maximum, high)

    def result(self) -> FieldStatistics:
        variance = None if self.squares is None else self.squares / self.count
        return FieldStatistics(self.count, self.mean, variance, self.minimum, self.maximum)


def statistics(stream: Stream, node: Node) -> Any:
    """Return a nest of `FieldStatistics`, like a row; takes the memory of a few blocks, and of a few rows."""
    running = [_Running() for _ in node.fields]
    with stream:
        for block, size in stream.blocks():
            for column, field, one in zip(block.columns, node.fields, running, strict=True):
                one.add(_rows(column, size, field.spec, is_batched=node.is_batched))
    return unflatten(node.structure, [one.result() for one in running])


def _rows(column: Column, size: int, spec: ArraySpec, *, is_batched: bool) -> Array:
    if isinstance(column, Fixed):
        rows = column.rows[:size]
        if not is_batched or rows.ndim < 2:
            return rows
        if column.lengths is None:
            return rows.reshape(-1, *rows.shape[2:])
        return np.concatenate([column.value(row) for row in range(size)])
    if isinstance(column, Ragged) and isinstance(column.values_, np.ndarray):
        values = [column.value(row) for row in range(size)]
        if is_batched and None not in spec.shape[1:]:
            return np.concatenate(values)  # Only batches differ in size, not the rows in them.
        return np.concatenate([value.reshape(-1) for value in values])
    # Text: it can only be counted.
    return np.empty(
        int(column.shapes[:size].prod(axis=1).sum()) if isinstance(column, Ragged) else size, "V1"
    )
