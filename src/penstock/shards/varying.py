"""Reads rows of differing sizes, which lie in files as values and offsets."""

import math
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from penstock.core.arrays import Array, Index, raw_rows, typed
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Fixed, Ragged, Text
from penstock.core.fields import Field
from penstock.core.rows import Context, RowSet
from penstock.errors import DataError
from penstock.io.location import Location
from penstock.io.reader import Reader
from penstock.io.sizes import PIECE_NBYTES
from penstock.shards.layout import ArrayLayout, FieldLayout
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.near_rows import near_rows
from penstock.sources.reading.open_files import reader_of
from penstock.sources.reading.run_checks import RunChecks


class Entries(Protocol):
    """One stored array of a field; any run of its entries can be read."""

    name: str
    num_entries: int
    layout: ArrayLayout
    checks: RunChecks | None
    """What its bytes are compared with, if there is something."""

    def read(self, start: int, stop: int, context: Context) -> Array:
        """Return entries `start` to `stop`, in memory allocated by the context."""
        ...


class StoredEntries:
    """An array that lies in a file from an offset on."""

    def __init__(
        self,
        location: Location,
        offset: int,
        layout: ArrayLayout,
        num_entries: int,
        *,
        direct: bool,
    ) -> None:
        self.location = location
        self.name = str(location)
        self.offset = offset
        self.layout = layout
        self.num_entries = num_entries
        self.direct = direct
        self.checks: RunChecks | None = None

    def reader(self, context: Context) -> Reader:
        """Return the reader of the file, which the stream closes."""
        return reader_of(self.location, context, direct=self.direct)

    def read(self, start: int, stop: int, context: Context) -> Array:
        """Return entries `start` to `stop`."""
        memory, array = room_for(self.layout, stop - start, context)
        if array.nbytes:
            self.reader(context).read_into(
                memory[: array.nbytes], self.offset + start * self.layout.entry_nbytes
            )
        return array


def room_for(layout: ArrayLayout, num_entries: int, context: Context) -> tuple[Array, Array]:
    """Return memory for entries, as bytes and as an array of their dtype and shape."""
    memory = context.allocate(num_entries * layout.entry_nbytes)
    return memory, typed(memory, 0, (num_entries, *layout.shape), layout.dtype)


class VaryingRows(Leaf):
    """Text, or arrays whose shapes differ: the values of consecutive rows lie one after the other."""

    chunk_rows = 1

    def __init__(
        self,
        layout: FieldLayout,
        field: Field,
        num_rows: int,
        arrays: Mapping[str, Entries],
        how: str,
    ) -> None:
        self.layout = layout
        self.field = field
        self.num_rows = num_rows
        self.arrays = arrays
        self.how = how
        self.files = tuple(
            one.location for one in arrays.values() if isinstance(one, StoredEntries)
        )

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read a slice at once, and scattered rows in as few runs as is sensible."""
        if isinstance(rows, slice):
            self._put(self._column(rows.start, rows.stop, context), sink, context)
            return
        for first, last, slots, picked in near_rows(rows, self.field.nbytes):
            column = self._column(first, last, context).take(picked, context.allocate)
            self._put(column, sink.at(slots), context)

    def check_files(self) -> list[Location]:
        """Return the files with the checksums of its arrays."""
        checks = [one.checks for one in self.arrays.values()]
        return [one.location for one in checks if one is not None]

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the runs that have checksums; without, each row: a wrong offset makes only the two beside it bad."""
        checks = self.arrays["offsets"].checks
        if checks is not None:
            return checks.grid.cuts(start, stop)
        return zip(range(start, stop), range(start + 1, stop + 1), strict=True)

    def _put(self, column: Text | Ragged, sink: Sink, context: Context) -> None:
        if isinstance(sink, Fixed):  # Batches, some of them cut short.
            assert isinstance(column, Ragged)
            sink.put_lengths(column.shapes[:, 0])
            for row in range(len(column)):
                value = column.value(row)
                slot = row if sink.slots is None else int(sink.slots[row])
                sink.grouped[divmod(slot, sink.grouped.shape[1])][: len(value)] = value
            return
        assert isinstance(sink, Pieces)
        if sink.aligned and isinstance(column, Ragged):
            column = column.take(np.arange(len(column)), context.allocate, aligned=True)
        sink.add(column)

    def checks_nbytes(self) -> int:
        """Return the bytes of the checksums."""
        return sum(one.checks.nbytes for one in self.arrays.values() if one.checks is not None)

    def _column(self, start: int, stop: int, context: Context) -> Text | Ragged:
        """Return rows `start` to `stop`."""
        kind = self.field.spec.dtype
        edges = self._edges(start, stop)
        last = "items" if self.layout.has_items else "values"
        offsets = self._offsets("offsets", start, stop + 1, last, context)
        self._check_ends("offsets", edges, edges - start, offsets, context)
        first, end = int(offsets[0]), int(offsets[-1])
        places = offsets[edges - start] - first
        if self.layout.has_items:
            items = self._offsets("items", first, end + 1, "values", context)
            self._check_ends("items", edges, places, items, context)
            data = self.arrays["values"].read(int(items[0]), int(items[-1]), context)
            self._check("values", edges, items[places] - items[0], data, context)
            text = Text(data, items - items[0], kind if isinstance(kind, type) else bytes)
            return Ragged(text, offsets[:-1] - first, self._shapes(edges, offsets, context))
        values = self.arrays["values"].read(first, end, context)
        self._check("values", edges, places, values, context)
        if not isinstance(kind, np.dtype):
            return Text(values, offsets - first, kind)
        width = math.prod(self.layout.inner_shape or ())
        shapes = self._shapes(edges, offsets, context)
        return Ragged(values.reshape(-1), (offsets[:-1] - first) * width, shapes)

    def _edges(self, start: int, stop: int) -> Index:
        """Return `start`, the rows at which runs begin, and `stop`; without checksums the two ends alone."""
        checks = self.arrays["offsets"].checks
        return np.array([start, stop]) if checks is None else checks.grid.edges(start, stop)

    def _shapes(self, edges: Index, offsets: Index, context: Context) -> Index:
        lengths = np.diff(offsets)
        if not self.layout.has_shapes:
            inner = self.layout.inner_shape or ()
            sizes = np.array(inner, np.int64)
            return np.column_stack([lengths, np.tile(sizes, (len(lengths), 1))])
        start, stop = int(edges[0]), int(edges[-1])
        shapes = self.arrays["shapes"].read(start, stop, context)
        self._check("shapes", edges, edges - start, shapes, context)
        known = np.array([-1 if size is None else size for size in self.field.spec.shape])
        is_right = ((shapes == known) | (known == -1)).all() and (shapes >= 0).all()
        if not is_right or (shapes.prod(axis=1) != lengths).any():
            raise self._damaged("shapes", "its shapes do not fit the spec or the offsets", start)
        return shapes

    def _offsets(self, role: str, start: int, stop: int, into: str, context: Context) -> Index:
        array = self.arrays[role]
        offsets: Index = array.read(start, stop, context)
        wrong = (np.diff(offsets) < 0).any() or offsets[0] < 0
        if wrong or offsets[-1] > self.arrays[into].num_entries:
            raise self._damaged(role, "its offsets must rise, and end within the values", start)
        return offsets

    def _check(
        self, role: str, edges: Index, entries: Index, found: Array, context: Context
    ) -> None:
        """Compare what was read with its checksums; `entries` are the places in it of the rows `edges`."""
        checks = self.arrays[role].checks
        if checks is not None:
            places = entries * self.arrays[role].layout.entry_nbytes
            checks.check_spans(edges, places, raw_rows(found, 0), context)

    def _check_ends(
        self, role: str, edges: Index, entries: Index, found: Index, context: Context
    ) -> None:
        """Compare where rows end: the first entry is the end of the row before, and of no row at the very beginning."""
        entries = entries + 1
        entries[0] = min(1, int(edges[0]))
        self._check(role, edges, entries, found, context)

    def _damaged(self, role: str, problem: str, row: int) -> DataError:
        cure = "It was changed or damaged: write it again."
        return DataError(problem, file=self.arrays[role].name, row=row, cure=cure)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of offsets and shapes, and of unwanted rows that are read because they lie in between."""
        own = max(
            num_rows * self.field.nbytes, min(PIECE_NBYTES, self.num_rows * self.field.nbytes)
        )
        return own + 64 * num_rows


def average_nbytes(layout: FieldLayout, values_nbytes: int, num_rows: int) -> int:
    """Return the average bytes of a row, with those of its offset and shape in memory."""
    mean = values_nbytes // max(1, num_rows)
    return mean + (8 if layout.spec.is_text and not layout.spec.shape else 16)
