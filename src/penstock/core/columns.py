"""Columns: many rows of one field, finished.

A column is one of three. `Fixed` holds rows of one size in an array; `Text` holds bytes or str, as data and
offsets; `Ragged` holds rows whose shapes differ, as flat values and where each starts.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows, spans, starts_of, typed
from penstock.core.spec import ArraySpec
from penstock.memory import Allocate


def _is_run(slots: Index) -> bool:
    """Return whether there are numbers, each one more than the one before it."""
    count = len(slots)
    if not count or slots[-1] - slots[0] != count - 1:
        return False
    return bool((slots[1:] - slots[:-1] == 1).all())


class Fixed:
    """Rows of one shape and dtype, in `grouped`: (groups, group_rows, *shape).

    Row j lives in slot `slots[j]` (or j), and slot s at `grouped[s // group_rows, s % group_rows]`.
    The groups are the batches that the rows end up in. Each starts on a multiple of 64 bytes, so there may
    be a gap between two of them. Where the rows are batches themselves and some are shorter than
    the rest, `lengths` holds the valid length of each slot.
    """

    __slots__ = ("grouped", "lengths", "slots")

    def __init__(
        self, grouped: Array, slots: Index | None = None, lengths: Index | None = None
    ) -> None:
        self.grouped = grouped
        self.slots = slots
        self.lengths = lengths

    def at(self, slots: Index) -> "Fixed":
        """Return a view of the same memory: row j of the view is the row in slot `slots[j]`."""
        return Fixed(self.grouped, slots if self.slots is None else self.slots[slots], self.lengths)

    def span(self, start: int, stop: int) -> "Fixed":
        """Return rows `start` to `stop` of this column, to be filled."""
        if self.slots is not None or len(self.grouped) != 1:
            return self.at(np.arange(start, stop))
        lengths = None if self.lengths is None else self.lengths[start:stop]
        return Fixed(self.grouped[:, start:stop], None, lengths)

    def places(self, num_rows: int) -> tuple[Index, Index]:
        """Return the group of each of the first `num_rows` rows, and the place of each row in its group."""
        slots = np.arange(num_rows) if self.slots is None else self.slots[:num_rows]
        groups, places = np.divmod(slots, self.grouped.shape[1])
        return groups, places

    def gather(self, source: Array, rows: Index, rest: Array | None = None) -> None:
        """Copy `source[rows]` here; it is uint8 (num_rows, row_nbytes), and has the rows of `rest` after its own."""
        if source.shape[1]:
            _native.gather(source, rows, raw_rows(self.grouped, 2), self.slots, rest)

    def put(self, values: Array, place: int = 0) -> None:
        """Copy an array of rows here, from row `place` on."""
        groups, group_rows = self.grouped.shape[:2]
        if self.slots is not None:
            slots = self.slots[place : place + len(values)]
            if len(slots) != len(values) or not _is_run(slots):
                self.grouped[slots // group_rows, slots % group_rows] = values
                return
            # As a part of a block in the order of its file has it: whole batches at once, not number by number.
            place = int(slots[0])
        if groups == 1:
            self.grouped[0, place : place + len(values)] = values
        else:
            group, place = divmod(place, group_rows)
            if place:  # The rest of a group.
                first, values = values[: group_rows - place], values[group_rows - place :]
                self.grouped[group, place : place + len(first)] = first
                group += 1
            whole = len(values) // group_rows
            shape = (whole, group_rows, *values.shape[1:])
            self.grouped[group : group + whole] = values[: whole * group_rows].reshape(shape)
            rest = values[whole * group_rows :]
            if len(rest):
                self.grouped[group + whole, : len(rest)] = rest

    def place(self, start: int, stop: int) -> Array | None:
        """Return rows of this column as one array to write into; None if they do not follow each other in memory."""
        if self.slots is not None:
            slots = self.slots[start:stop]
            if not _is_run(slots):
                return None
            start, stop = int(slots[0]), int(slots[-1]) + 1
        if start == stop:
            return None
        group_rows = self.grouped.shape[1]
        group, first = divmod(start, group_rows)
        if first + stop - start <= group_rows:
            found: Array = self.grouped[group, first : first + stop - start]
            return found
        strides = self.grouped.strides
        if strides[0] != group_rows * strides[1]:
            return None  # There are gaps between groups.
        return self.grouped.reshape((-1, *self.grouped.shape[2:]))[start:stop]

    def put_row(self, row: int, value: Any) -> None:
        """Copy one row here."""
        slot = row if self.slots is None else int(self.slots[row])
        self.grouped[divmod(slot, self.grouped.shape[1])] = value

    def room(self, row: int) -> Array:
        """Return the memory of one row, which is an array, to be filled in place."""
        slot = row if self.slots is None else int(self.slots[row])
        array: Array = self.grouped[divmod(slot, self.grouped.shape[1])]
        return array

    def put_lengths(self, lengths: Index) -> None:
        """Set how much of each row is valid, for rows that are batches."""
        assert self.lengths is not None
        self.lengths[slice(len(lengths)) if self.slots is None else self.slots] = lengths

    def copy_from(self, column: "Column", rows: Index | slice) -> None:
        """Copy the given rows of a finished column here."""
        assert isinstance(column, Fixed)
        assert column.slots is None
        if isinstance(rows, slice):
            self.put(column.rows[rows])
        else:
            self.gather(raw_rows(column.rows, 1), rows)
        if self.lengths is not None:
            full = self.grouped.shape[2]
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            self.put_lengths(
                np.full(count, full) if column.lengths is None else column.lengths[rows]
            )

    def gather_from(self, first: "Column", rest: "Column", rows: Index) -> None:
        """Copy rows of two finished columns here, as if `rest` followed `first`."""
        assert isinstance(first, Fixed)
        assert isinstance(rest, Fixed)
        self.gather(raw_rows(first.rows, 1), rows, raw_rows(rest.rows, 1))
        if self.lengths is not None:
            full = self.grouped.shape[2]
            lengths = [
                np.full(len(one.rows), full) if one.lengths is None else one.lengths
                for one in (first, rest)
            ]
            self.put_lengths(np.concatenate(lengths)[rows])

    def beside(self, num_rows: int, allocate: Allocate) -> "Fixed":
        """Return a column for rows like these, in a single group, with memory of its own."""
        shape = (1, num_rows, *self.grouped.shape[2:])
        memory = allocate(math.prod(shape) * self.grouped.dtype.itemsize)
        lengths = None if self.lengths is None else np.zeros(num_rows, np.int64)
        return Fixed(typed(memory, 0, shape, self.grouped.dtype), None, lengths)

    @property
    def rows(self) -> Array:
        """The rows as one array; only for a column with a single group."""
        assert len(self.grouped) == 1
        array: Array = self.grouped[0]
        return array

    def value(self, row: int) -> Any:
        """Return one row, as a view."""
        value = self.rows[row]
        return value if self.lengths is None else value[: self.lengths[row]]

    def values(self, size: int) -> Iterable[Any]:
        """Return the first `size` rows, one after the other, as views."""
        if self.lengths is None:
            return self.grouped[0] if size == self.grouped.shape[1] else self.rows[:size]
        if bool((self.lengths[:size] == self.grouped.shape[2]).all()):
            return self.rows[:size]
        return (self.value(row) for row in range(size))

    @property
    def nbytes(self) -> int:
        """The bytes of all rows, gaps included."""
        return self.grouped.shape[0] * self.grouped.strides[0] if self.grouped.size else 0


class Text:
    """Rows that are bytes or str of any length: `data[offsets[i]:offsets[i + 1]]` is row i."""

    __slots__ = ("data", "kind", "offsets")

    def __init__(self, data: npt.NDArray[np.uint8], offsets: Index, kind: type) -> None:
        self.data = data
        self.offsets = offsets
        self.kind = kind

    @staticmethod
    def of(values: Sequence[Any], kind: type, allocate: Allocate) -> "Text":
        """Return the column of these bytes or str."""
        encoded = values if kind is bytes else [v.encode("utf-8", "surrogatepass") for v in values]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=offsets[1:])
        data = allocate(int(offsets[-1]))
        data[: offsets[-1]] = np.frombuffer(b"".join(encoded), np.uint8)
        return Text(data, offsets, kind)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def value(self, row: int) -> bytes | str:
        """Return one row."""
        found = self.data[self.offsets[row] : self.offsets[row + 1]].tobytes()
        return found if self.kind is bytes else found.decode("utf-8", "surrogatepass")

    def values(self, size: int) -> Iterable[Any]:
        """Return the first `size` rows, one after the other."""
        return map(self.value, range(size))

    def objects(self, start: int, stop: int) -> Array:
        """Return rows as an array of Python objects."""
        return _native.text_objects(self.data, self.offsets, start, stop, self.kind is str)

    def slices(self, starts: Index, stops: Index) -> Iterable[Array]:
        """Return rows `starts[i]` to `stops[i]`, one after the other, as arrays of Python objects."""
        return _native.TextSlices(self.data, self.offsets, starts, stops, self.kind is str)

    def take(self, rows: Index, allocate: Allocate, *, aligned: bool = False) -> "Text":
        """Return a copy of the given rows; `aligned` is ignored, as text becomes Python objects in the end."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = allocate(int(offsets[-1]))
        _native.gather_spans(self.data, starts, lengths, data, offsets[:-1].copy())
        return Text(data, offsets, self.kind)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return int(self.offsets[-1]) + self.offsets.nbytes


class Ragged:
    """Rows whose shapes differ: row i begins at `values[starts[i]]`, and has shape `shapes[i]`."""

    __slots__ = ("shapes", "starts", "values_")

    def __init__(self, values: "Array | Text", starts: Index, shapes: Index) -> None:
        self.values_ = values
        self.starts = starts
        self.shapes = shapes

    @staticmethod
    def of(
        values: Sequence[Any], spec: ArraySpec, allocate: Allocate, *, aligned: bool
    ) -> "Ragged":
        """Return the column of these arrays: packed, or each starting on a multiple of 64 bytes."""
        shapes = np.array([np.shape(value) for value in values], np.int64)
        shapes = shapes.reshape(len(values), len(spec.shape))
        sizes = shapes.prod(axis=1)
        if not isinstance(spec.dtype, np.dtype):
            flat = [item for value in values for item in np.asarray(value, object).flat]
            starts = starts_of(sizes, 1, aligned=False)
            return Ragged(Text.of(flat, spec.dtype, allocate), starts, shapes)
        starts = starts_of(sizes, spec.dtype.itemsize, aligned=aligned)
        total = int(starts[-1] + sizes[-1]) if len(values) else 0
        memory = typed(allocate(total * spec.dtype.itemsize), 0, (total,), spec.dtype)
        for start, size, value in zip(starts.tolist(), sizes.tolist(), values, strict=True):
            memory[start : start + size] = np.asarray(value).reshape(-1)
        return Ragged(memory, starts, shapes)

    def __len__(self) -> int:
        return len(self.starts)

    def value(self, row: int) -> Array:
        """Return one row, as a view (text: as an array of objects)."""
        start = int(self.starts[row])
        shape = tuple(self.shapes[row].tolist())
        stop = start + math.prod(shape)
        if isinstance(self.values_, Text):
            return self.values_.objects(start, stop).reshape(shape)
        return self.values_[start:stop].reshape(shape)

    def values(self, size: int) -> Iterable[Any]:
        """Return the first `size` rows, one after the other."""
        if isinstance(self.values_, Text) and self.shapes.shape[1] == 1:
            # Batches of text are made natively, without Python between them.
            starts = self.starts[:size]
            return self.values_.slices(starts, starts + self.shapes[:size, 0])
        return map(self.value, range(size))

    def inner(self, rows: Index, offsets: Index) -> "Ragged":
        """Return element `offsets[j]` of row `rows[j]`, over the same values."""
        shapes = self.shapes[rows, 1:]
        starts = self.starts[rows] + offsets * shapes.prod(axis=1)
        return Ragged(self.values_, starts, shapes)

    def take(self, rows: Index, allocate: Allocate, *, aligned: bool = False) -> "Ragged":
        """Return a copy of the given rows."""
        shapes = self.shapes[rows]
        sizes = shapes.prod(axis=1)
        if isinstance(self.values_, Text):
            items = self.values_.take(spans(self.starts[rows], sizes), allocate)
            return Ragged(items, starts_of(sizes, 1, aligned=False), shapes)
        width = self.values_.dtype.itemsize
        starts = starts_of(sizes, width, aligned=aligned)
        total = int(starts[-1] + sizes[-1]) if len(rows) else 0
        memory = allocate(total * width)
        flat = raw_rows(self.values_, 0)
        _native.gather_spans(flat, self.starts[rows] * width, sizes * width, memory, starts * width)
        return Ragged(typed(memory, 0, (total,), self.values_.dtype), starts, shapes)

    @property
    def nbytes(self) -> int:
        """The bytes of all rows."""
        return self.values_.nbytes + self.starts.nbytes + self.shapes.nbytes


Column = Fixed | Text | Ragged


def column_of(
    values: Sequence[Any], spec: ArraySpec, allocate: Allocate, *, aligned: bool
) -> Text | Ragged:
    """Return the text or ragged column of these rows."""
    if spec.shape == () and not isinstance(spec.dtype, np.dtype):
        return Text.of(values, spec.dtype, allocate)
    return Ragged.of(values, spec, allocate, aligned=aligned)


def merge(columns: Sequence[Text | Ragged], allocate: Allocate) -> Text | Ragged:
    """Return one column with the rows of several columns of one kind, one after the other."""
    first = columns[0]
    if len(columns) == 1:
        return first
    if isinstance(first, Text):
        texts = [c for c in columns if isinstance(c, Text)]
        ends = np.cumsum([int(c.offsets[-1]) for c in texts])
        offsets = [texts[0].offsets[:1]]
        offsets += [c.offsets[1:] + (e - c.offsets[-1]) for c, e in zip(texts, ends, strict=True)]
        data = allocate(int(ends[-1]))
        np.concatenate([c.data[: c.offsets[-1]] for c in texts], out=data[: ends[-1]])
        return Text(data, np.concatenate(offsets), first.kind)
    ragged = [c for c in columns if isinstance(c, Ragged)]
    sizes = [len(c.values_) for c in ragged]
    shift = np.repeat(np.cumsum([0, *sizes[:-1]]), [len(c) for c in ragged])
    starts = np.concatenate([c.starts for c in ragged]) + shift
    shapes = np.concatenate([c.shapes for c in ragged])
    if isinstance(first.values_, Text):
        items = merge([c.values_ for c in ragged if isinstance(c.values_, Text)], allocate)
        assert isinstance(items, Text)
        return Ragged(items, starts, shapes)
    dtype = first.values_.dtype
    memory = typed(allocate(sum(sizes) * dtype.itemsize), 0, (sum(sizes),), dtype)
    np.concatenate([c.values_ for c in ragged if not isinstance(c.values_, Text)], out=memory)
    return Ragged(memory, starts, shapes)


def collect(
    columns: Sequence[Text | Ragged],
    owners: Index,
    rows: Index,
    allocate: Allocate,
    *,
    aligned: bool,
) -> Text | Ragged:
    """Return a copy of rows of several columns of one kind: row j is row `rows[j]` of column `owners[j]`."""
    slots = [np.flatnonzero(owners == number) for number in range(len(columns))]
    places = [rows[some] for some in slots]
    first = columns[0]
    if isinstance(first, Ragged) and isinstance(first.values_, Text):
        taken = [c.take(some, allocate) for c, some in zip(columns, places, strict=True)]
        merged = merge(taken, allocate)
        return merged.take(np.argsort(np.concatenate(slots), kind="stable"), allocate)
    # Text is bytes in rows of one dimension.
    parts = [_flat(column) for column in columns]
    dtype = parts[0][0].dtype
    shapes = np.empty((len(rows), parts[0][2].shape[1]), np.int64)
    begins = np.empty(len(rows), np.int64)
    for (_, begin, shape), some, where in zip(parts, slots, places, strict=True):
        begins[some] = begin[where]
        shapes[some] = shape[where]
    sizes = shapes.prod(axis=1)
    starts = starts_of(sizes, dtype.itemsize, aligned=aligned and isinstance(first, Ragged))
    total = int(starts[-1] + sizes[-1]) if len(rows) else 0
    memory = allocate(total * dtype.itemsize)
    begins, lengths, targets = (one * dtype.itemsize for one in (begins, sizes, starts))
    for (values, _, _), some in zip(parts, slots, strict=True):
        if len(some):
            source = raw_rows(values, 0)
            _native.gather_spans(source, begins[some], lengths[some], memory, targets[some])
    if isinstance(first, Text):
        return Text(memory, np.append(starts, total), first.kind)
    return Ragged(typed(memory, 0, (total,), dtype), starts, shapes)


def _flat(column: Text | Ragged) -> tuple[Array, Index, Index]:
    """Return the values of all rows, where each row starts, and their shapes."""
    if isinstance(column, Text):
        return column.data, column.offsets[:-1], np.diff(column.offsets)[:, None]
    assert isinstance(column.values_, np.ndarray)
    return column.values_, column.starts, column.shapes
