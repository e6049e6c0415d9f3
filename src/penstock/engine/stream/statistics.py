"""statistics(): count, mean, variance, extremes and classes of every field, in one pass."""

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, raw_rows, spans
from penstock.core.columns import Column, Fixed, Ragged, Text
from penstock.core.nest import unflatten
from penstock.core.progress import begin
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.engine.stream.stream import Stream
from penstock.stages.batch import Batch
from penstock.stages.shuffle import Shuffle

MOST_CLASSES = 1000
"""Fields with more different values have no classes: they are numbers, names or texts."""
_SMALL_RANGE = 1 << 16  # Numbers that lie so close together are counted in a table.


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """What one pass found for a field, at each place of a row; None where a figure has no meaning.

    After `batch` the statistics are still those of rows. Fields whose shapes differ from row to
    row count every value as a row of its own. A NaN makes all figures of its place NaN.
    """

    count: int
    mean: Array | None
    variance: Array | None
    minimum: Array | None
    maximum: Array | None
    classes: dict[Any, int] | None = None
    """How many rows have each value, in order of the values: of whole numbers, bools and text, one a row."""
    has_many_classes: bool = False
    """Whether `classes` is None because there are more than 1,000 values."""


class _Moments:
    """The statistics of numbers of one kind that a native pass knows, joined over blocks."""

    def __init__(self, kind: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.kind = kind
        self.dtype = dtype
        self.shape = shape
        width = math.prod(shape)
        wide = np.dtype(dtype if dtype.itemsize >= 4 else "f4" if kind in ("f2", "bf") else "i4")
        self.count = 0
        self.mean, self.squares = np.zeros(width), np.zeros(width)
        self.low, self.high = np.zeros(width, wide), np.zeros(width, wide)

    def add(self, rows: Array, lead: int) -> None:
        """Add an array of rows, or of batches of rows (`lead` is 2)."""
        raw = raw_rows(rows, lead)
        low, high = self.low.view(np.uint8), self.high.view(np.uint8)
        source = raw[None] if lead == 1 else raw
        _native.add_moments(source, self.kind, self.count, self.mean, self.squares, low, high)
        self.count += math.prod(rows.shape[:lead])

    def result(self) -> tuple[Array, Array, Array, Array]:
        """Return mean, variance, minimum and maximum."""
        low, high = (
            one.astype(self.dtype).reshape(self.shape)[()] for one in (self.low, self.high)
        )
        mean, variance = self.mean.reshape(self.shape), self.squares.reshape(self.shape)
        return mean[()], (variance / self.count)[()], low, high


class _Others:
    """The same for numbers of other kinds, by NumPy: complex and long ones, dates."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: Array | None = None
        self.squares: Array | None = None
        self.minimum: Array | None = None
        self.maximum: Array | None = None

    def add(self, rows: Array, lead: int) -> None:
        """Merge the statistics of a block, by the method of Chan and others: exact to rounding."""
        rows = rows.reshape(-1, *rows.shape[lead:])
        before, self.count = self.count, self.count + len(rows)
        if rows.dtype.kind in "fc":
            # Infinity less infinity is not a number, and NumPy would warn of it.
            with np.errstate(invalid="ignore"):
                self._join(rows, before)
        if rows.dtype.kind in "fmM":
            low, high = rows.min(axis=0), rows.max(axis=0)
            self.minimum = low if self.minimum is None else np.minimum(self.minimum, low)
            self.maximum = high if self.maximum is None else np.maximum(self.maximum, high)

    def _join(self, rows: Array, before: int) -> None:
        exact = rows.astype(np.complex128 if rows.dtype.kind == "c" else np.float64)
        mean = exact.mean(axis=0)
        squares = (np.abs(exact - mean) ** 2).sum(axis=0)
        if self.mean is None or self.squares is None:
            self.mean, self.squares = mean, squares
            return
        delta = mean - self.mean
        # As the native code has it: the mean with an infinity is that one, unless there are both.
        is_infinite = np.isinf(mean) | np.isinf(self.mean)
        self.mean = self.mean + np.where(is_infinite, mean, delta * (len(rows) / self.count))
        self.squares = (
            self.squares + squares + np.abs(delta) ** 2 * (before * len(rows) / self.count)
        )

    def result(self) -> tuple[Array | None, Array | None, Array | None, Array | None]:
        """Return mean, variance, minimum and maximum."""
        variance = None if self.squares is None else self.squares / self.count
        return self.mean, variance, self.minimum, self.maximum


class _Counting:
    """How many rows have each value, as long as there are few values."""

    def __init__(self) -> None:
        self.counts: dict[Hashable, int] = {}
        self.is_full = False

    def add(self, values: Array) -> None:
        """Count the values of a block."""
        if self.is_full or not values.size:
            return
        values = values.reshape(-1)
        if values.dtype == object:
            self._put(Counter(values.tolist()).items())
        elif values.dtype.kind in "biu" and int(values.max()) - int(values.min()) < _SMALL_RANGE:
            kind, low = type(values[0].item()), int(values.min())
            # Both wrap around, and so their difference is right: of bools and narrow numbers, too.
            table = np.bincount(values.astype(np.uint16) - np.uint16(low % _SMALL_RANGE))
            found = np.flatnonzero(table)
            names = [kind(low + number) for number in found.tolist()]
            self._put(zip(names, table[found].tolist(), strict=True))
        else:
            found, counts = np.unique(values, return_counts=True)
            self._put(zip(found.tolist(), counts.tolist(), strict=True))

    def _put(self, found: Any) -> None:
        for value, count in found:
            self.counts[value] = self.counts.get(value, 0) + count
        if len(self.counts) > MOST_CLASSES:
            self.is_full = True
            self.counts = {}


@dataclass(slots=True)
class _Running:
    """What was found of a field so far."""

    spec: ArraySpec
    is_batched: bool
    count: int = 0
    moments: "_Moments | _Others | None" = None
    counting: _Counting | None = None

    def add(self, column: Column, size: int) -> None:
        """Add the rows of a block."""
        if isinstance(column, Fixed):
            rows = column.rows[:size]
            lead = 2 if self.is_batched and rows.ndim > 1 else 1
            if lead == 2 and column.lengths is not None:
                whole = column.lengths[:size] == rows.shape[1]
                if not whole.all():
                    for row in range(size):
                        self._add(column.value(row), 1)
                    return
            self._add(rows, lead)
        elif isinstance(column, Text):
            self._add_text(column.objects(0, size))
        elif isinstance(column.values_, Text):
            self._add_text(
                np.concatenate([value.reshape(-1) for value in column.values(size)])
                if size
                else None
            )
        else:
            self._add(self._flat(column, size), 1)

    def _flat(self, column: Ragged, size: int) -> Array:
        """Return all values; where only batches differ in size, the rows in them."""
        assert isinstance(column.values_, np.ndarray)
        sizes = column.shapes[:size].prod(axis=1)
        values = column.values_[spans(column.starts[:size], sizes)]
        if self.is_batched and None not in self.spec.shape[1:]:
            inner = tuple(one for one in self.spec.shape[1:] if one is not None)
            return values.reshape(int(column.shapes[:size, 0].sum()), *inner)
        return values

    def _add_text(self, values: Array | None) -> None:
        if values is not None and len(values):
            self.count += len(values)
            self._count_classes(values, ())

    def _add(self, rows: Array, lead: int) -> None:
        num_rows = math.prod(rows.shape[:lead])
        if not num_rows:
            return
        self.count += num_rows
        shape = rows.shape[lead:]
        dtype = rows.dtype
        if not dtype.isnative:
            rows, dtype = rows.astype(dtype.newbyteorder("=")), dtype.newbyteorder("=")
        if self.moments is None:
            kind = _kind(dtype)
            self.moments = _Moments(kind, dtype, shape) if kind else _Others()
        self.moments.add(rows, lead)
        if dtype.kind in "biuSU":
            self._count_classes(rows, shape)

    def _count_classes(self, values: Array, shape: tuple[int, ...]) -> None:
        if shape == () and len(self.spec.shape) <= (1 if self.is_batched else 0):
            self.counting = self.counting or _Counting()
            self.counting.add(values)

    def result(self) -> FieldStatistics:
        """Return what was found."""
        found = (None, None, None, None) if self.moments is None else self.moments.result()
        counting = self.counting
        if counting is None or counting.is_full:
            return FieldStatistics(self.count, *found, None, counting is not None)
        return FieldStatistics(self.count, *found, dict(sorted(counting.counts.items())))


def _kind(dtype: np.dtype[Any]) -> str:
    """Return what the native pass calls a dtype; '' if it does not know it."""
    if dtype.name == "bfloat16":
        return "bf"
    if dtype.kind == "b":
        return "u1"
    return f"{dtype.kind}{dtype.itemsize}" if dtype.kind in "iuf" and dtype.itemsize <= 8 else ""


def in_any_order(node: Node) -> Node:
    """Return a node with the same rows, if they can be had without putting them in order, or into batches."""
    while node.share is None:
        stage, inputs = getattr(node, "stage", None), node.inputs
        # Not padded batches: their padding counts.
        is_batching = type(stage) is Batch and not stage.drop_remainder
        if not (isinstance(stage, Shuffle) or (is_batching and not inputs[0].is_batched)):
            break
        node = inputs[0]
    return node


def statistics(stream: Stream, node: Node) -> Any:
    """Return a nest of `FieldStatistics`, like a row; takes the memory of a few blocks, and of a few rows."""
    running = [_Running(one.spec, node.is_batched) for one in node.fields]
    with begin("counting", total=None if node.is_endless else node.num_rows) as step, stream:
        for block, size in stream.blocks():
            for column, one in zip(block.columns, running, strict=True):
                one.add(column, size)
            step.advance(size, block.nbytes)
    return unflatten(node.structure, [one.result() for one in running])
