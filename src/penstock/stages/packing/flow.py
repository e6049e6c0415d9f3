"""Packed rows: values go to the bin that their row was given, and a bin that closes is handed on."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows
from penstock.core.blocks import Block
from penstock.core.columns import Column, Fixed, Ragged
from penstock.core.fields import Field, allocate_block
from penstock.core.nest import Structure, field_names
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import ENDLESS, Context, Flow
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.errors import SpecMismatchError
from penstock.stages.base.held_rows import Arrival, HeldInput, Place, place_of
from penstock.stages.base.segment import Segment
from penstock.stages.base.stage import Stage, StageFlow
from penstock.stages.map import locate
from penstock.stages.packing.pieces import (
    Bins,
    Opened,
    Pieces,
    bins_from,
    cut,
    fills_of,
    fitted,
    joined,
)
from penstock.stages.unbatch import column_lengths

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Packing:
    """How rows are packed, and what a packed row is made of."""

    length: int
    bins: int
    method: str
    long: str
    pads: tuple[Any, ...]
    drop_remainder: bool
    structure: Structure
    fields: tuple[Field, ...]
    packed: tuple[Field, ...]
    """The fields of the values, in the order of the input's: without segment ids and positions."""
    order: tuple[int, ...]
    """For each field the number of the input's that it packs; the next number is the segment ids, then positions."""


class PackedFlow(StageFlow):
    """Packed rows.

    The cursor is [the pieces of rows in each open bin, values used of the next row, rows that came, the row that the
    next part stands before, cursor of the input there].
    """

    def __init__(self, stage: Stage, flow: Flow, packing: Packing) -> None:
        super().__init__(stage, flow)
        self.packing = packing
        self.fields = packing.fields
        self.structure = packing.structure
        self.is_batched = False
        self.direct = flow.rows if isinstance(flow, Segment) else None
        self.num_rows = flow.num_rows if flow.num_rows in (0, ENDLESS) else None

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield bins in the order in which they close, those that are left at the end."""
        bins, used, place = self._begin(cursor)
        source = HeldInput(self, self.input, self.direct, place, context)
        store = _Store(self.packing.packed, self.packing.bins, context)
        store.numbers, store.bins = list(range(len(bins))), bins
        stop = place.passed

        def put_back(numbers: Index, block: Block, places: Index) -> None:
            if not store.put_back(bins, numbers, block, places):
                raise wrong_cursor(self, cursor)

        for arrival in source.arrivals(put_back, store.held):
            pieces = self._placed(arrival, bins, used, context)
            used = 0
            stop = arrival.first + arrival.parcel.size
            closed = tuple(pieces.closed.tolist())
            opened = Opened(bins, pieces, closed, stop, source.anchors, source.is_direct)
            copied = _Copied(arrival.parcel.block, arrival.first, self.packing.packed)
            yield from self._closed(opened, copied, store, context)
            bins = store.bins = store.after(opened, copied)
            del arrival, copied
        if bins and not self.packing.drop_remainder:
            none = Pieces(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE)
            left = tuple(range(len(bins)))
            opened = Opened(bins, none, left, stop, source.anchors, source.is_direct)
            yield from self._closed(opened, None, store, context)

    def _begin(self, cursor: Cursor) -> tuple[Bins, int, Place]:
        found, used, *rest = cursor_parts(self, cursor, ([], 0, 0, 0, None))
        bins = bins_from(found)
        length = self.packing.length
        if bins is None or len(bins) > self.packing.bins or not all(bins):
            raise wrong_cursor(self, cursor)
        if (fills_of(bins) >= length).any():
            raise wrong_cursor(self, cursor)
        groups = [[row for row, _, _ in one] for one in bins]
        return bins, used, place_of(self, groups, self.direct, rest)

    def _placed(self, arrival: Arrival, bins: Bins, used: int, context: Context) -> Pieces:
        """Return which piece of each new row goes where."""
        how, numbers = self.packing, arrival.numbers
        lengths = self._lengths(arrival, context)
        if used and used >= lengths[0]:
            raise wrong_cursor(self, [used])
        if how.method == "concat":
            return joined(numbers, lengths, used, bins, how.length)
        if how.long == "truncate":
            lengths = np.minimum(lengths, how.length)
        elif how.long == "error" and len(lengths) and lengths.max() > how.length:
            at = int(np.argmax(lengths > how.length))
            raise SpecMismatchError(
                f"{self.describe()}: {self._where(int(numbers[at]), context)} has {int(lengths[at])} values, which "
                f"don't fit into {how.length}."
                f' Say what becomes of such rows: long="split" or long="truncate".'
            )
        pieces = cut(numbers, lengths, used, how.length)
        return fitted(pieces, bins, how.length, how.bins)

    def _where(self, row: int, context: Context) -> str:
        return locate(self.input if self.direct is None else self.direct, row, context.epoch)

    def _lengths(self, arrival: Arrival, context: Context) -> Index:
        """Return the lengths of the new rows, which all fields must share."""
        found: Index | None = None
        names = field_names(self.input.structure)
        for column, name in zip(arrival.parcel.block.columns, names, strict=True):
            lengths = column_lengths(column, arrival.parcel.size)[arrival.start :]
            if found is not None and bool((lengths != found).any()):
                at = int(np.argmax(lengths != found))
                row = arrival.first + arrival.start + at
                raise SpecMismatchError(
                    f"{self.describe()} needs fields of one length in each row, and {self._where(row, context)} has "
                    f"{int(found[at])} values in {names[0]!r} and {int(lengths[at])} in {name!r}."
                )
            found = lengths if found is None else found
        assert found is not None
        return found

    def _closed(
        self, opened: Opened, copied: "_Copied | None", store: "_Store", context: Context
    ) -> Iterator[Parcel]:
        """Yield the bins that closed, about as many at a time as a block has."""
        step = context.rows_per_block(self)
        for first in range(0, len(opened.closed), step):
            numbers = np.array(opened.closed[first : first + step], np.int64)
            block = context.block(self, len(numbers))
            by_field = dict(zip(self.packing.order, block.sinks, strict=True))
            packed = [_rows(by_field[at]) for at in range(len(self.packing.packed))]
            for rows, pad in zip(packed, self.packing.pads, strict=True):
                rows[:] = pad
            store.copy_to(opened, numbers, packed)
            chosen, targets = _members(numbers, opened.pieces.bins)
            if copied is not None:
                copied.copy(opened.pieces, chosen, targets, packed)
            count = len(packed)
            fills = _ids(
                opened, numbers, chosen, targets, _rows(by_field[count]), _rows(by_field[count + 1])
            )
            context.padding.add(self, int(fills.sum()), len(numbers) * self.packing.length)
            yield Parcel(block.finish(), len(numbers), partial(_further, opened, first))
            del block, by_field, packed

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, the open bins, and the rows made of closed ones, with what making them takes."""
        made = max(block_nbytes, self.block_nbytes(1))
        bins = sum(self.packing.bins * field.nbytes + 64 for field in self.packing.packed)
        return 4 * made + bins + self.input.holds_nbytes(block_nbytes, ahead)

    def choice(self) -> str:
        """Return how rows are packed, and how those in open bins are found again after a resume."""
        how = "rows one after the other, cut where a row is full"
        if self.packing.method == "first_fit":
            how = f"first fit, {self.packing.bins} open bins"
        again = "their numbers" if self.direct is not None else "reading from the oldest of them on"
        return f"{how}; a resume finds the rows in open bins by {again}"


def _further(opened: Opened, first: int, offset: int) -> Any:
    return opened(first + offset)


def _rows(sink: Any) -> Array:
    assert isinstance(sink, Fixed)
    return sink.rows


def _members(numbers: Index, bins: Index) -> tuple[Index, Index]:
    """Return which pieces are in bins `numbers`, and the place that the bin of each has among these."""
    if not len(numbers):
        return _NONE, _NONE
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers[order], bins)
    at[at == len(numbers)] = 0
    chosen = np.flatnonzero(numbers[order][at] == bins)
    return chosen, order[at[chosen]]


def _ids(
    opened: Opened, numbers: Index, chosen: Index, targets: Index, segments: Array, positions: Array
) -> Index:
    """Write segment ids and positions of the bins `numbers`; return how much of each is used."""
    pieces, length = opened.pieces, segments.shape[1]
    rows, offsets, sizes = (
        [targets],
        [pieces.offsets[chosen]],
        [(pieces.ends - pieces.begins)[chosen]],
    )
    for place, number in enumerate(numbers.tolist()):
        if number < len(opened.before):
            own = np.array([end - begin for _, begin, end in opened.before[number]], np.int64)
            rows.append(np.full(len(own), place))
            offsets.append(np.cumsum(own) - own)
            sizes.append(own)
    row, offset, size = (np.concatenate(one) for one in (rows, offsets, sizes))
    fills = np.bincount(row, size, len(numbers)).astype(np.int64)
    segments[:], positions[:] = 0, 0
    segments[row, offset] = 1
    positions[row, offset] = offset
    np.cumsum(segments, axis=1, out=segments)
    np.maximum.accumulate(positions, axis=1, out=positions)
    within = np.arange(length, dtype=np.int32)
    np.subtract(within, positions, out=positions)
    is_padding = within >= fills[:, None]
    segments[is_padding] = 0
    positions[is_padding] = 0
    return fills


class _Copied:
    """The values of a block of rows, flat: pieces are copied from there."""

    def __init__(self, block: Block, first: int, fields: tuple[Field, ...]) -> None:
        self.first = first
        self.flat = [_flat(column) for column in block.columns]
        self.inner = [int(np.prod(field.spec.fixed_shape[1:])) for field in fields]

    def copy(self, pieces: Pieces, chosen: Index, targets: Index, out: list[Array]) -> None:
        """Copy pieces to rows `targets` of `out`, each to its place there."""
        places = pieces.rows[chosen] - self.first
        begins, sizes = pieces.begins[chosen], (pieces.ends - pieces.begins)[chosen]
        for (values, starts), inner, rows in zip(self.flat, self.inner, out, strict=True):
            width = values.dtype.itemsize
            if not width * inner or not len(chosen):
                continue
            length = rows.shape[1]
            _native.gather_spans(
                raw_rows(values, 0),
                (starts[places] + begins * inner) * width,
                sizes * inner * width,
                raw_rows(rows, 0),
                (targets * length + pieces.offsets[chosen]) * inner * width,
            )


def _flat(column: Column) -> tuple[Array, Index]:
    """Return the values of a column, flat, and where each row starts."""
    if isinstance(column, Ragged):
        assert isinstance(column.values_, np.ndarray)
        return column.values_, column.starts
    assert isinstance(column, Fixed)
    rows = np.ascontiguousarray(column.rows)
    size = int(np.prod(rows.shape[1:]))
    return rows.reshape(-1), np.arange(len(rows)) * size


class _Store:
    """The values in open bins: a row of the store for each."""

    def __init__(self, fields: tuple[Field, ...], num_bins: int, context: Context) -> None:
        self.fields = fields
        self._context = context
        self._rows: list[Array] = []
        self.numbers: list[int] = []
        """The row of the store that each open bin has."""
        self.num_bins = num_bins
        self.bins: Bins = ()
        """The pieces in the open bins."""

    @property
    def rows(self) -> list[Array]:
        """A row for each bin that may be open, of every field; they get their room when they are first needed."""
        if not self._rows:
            allocate = self._context.allocate
            block = allocate_block(self.fields, self.num_bins, allocate, aligned=False)
            self._rows = [_rows(sink) for sink in block.sinks]
        return self._rows

    def held(self) -> Index:
        """Return the numbers of the rows in open bins, in ascending order."""
        return np.array(sorted(row for one in self.bins for row, _, _ in one), np.int64)

    def put_back(self, bins: Bins, numbers: Index, block: Block, places: Index) -> bool:
        """Copy the pieces of rows that were in bins when the state was saved; return whether rows have such pieces."""
        where = dict(zip(numbers.tolist(), places.tolist(), strict=True))
        found: list[tuple[int, int, int, int, int]] = []
        for number, one in enumerate(bins):
            offset = 0
            for row, begin, end in one:
                if row in where:
                    found.append((where[row], begin, end, self.numbers[number], offset))
                offset += end - begin
        table = np.array(found, np.int64).reshape(-1, 5).T
        rows, begins, ends, slots, offsets = (column.copy() for column in table)
        for column in block.columns:
            if (ends > column_lengths(column, block.num_rows)[rows]).any():
                return False
        pieces = Pieces(rows, begins, ends, slots, offsets, _NONE, _NONE)
        _Copied(block, 0, self.fields).copy(pieces, np.arange(len(rows)), slots, self.rows)
        return True

    def copy_to(self, opened: Opened, numbers: Index, out: list[Array]) -> None:
        """Copy what bins `numbers` had before to rows 0, 1, ... of `out`."""
        fills = fills_of(opened.before)
        for place, number in enumerate(numbers.tolist()):
            if number < len(opened.before):
                slot, fill = self.numbers[number], int(fills[number])
                for mine, theirs in zip(self.rows, out, strict=True):
                    theirs[place, :fill] = mine[slot, :fill]

    def after(self, opened: Opened, copied: _Copied) -> Bins:
        """Copy the pieces that stay in open bins; return these bins."""
        pieces = opened.pieces
        bins = opened.bins_after(len(pieces.rows), len(opened.closed))
        gone = set(opened.closed)
        before = [n for n in range(len(opened.before)) if n not in gone]
        new = [
            n for n in np.unique(pieces.bins).tolist() if n not in gone and n >= len(opened.before)
        ]
        slots = {number: self.numbers[number] for number in before}
        free = iter(sorted(set(range(self.num_bins)) - set(slots.values())))
        slots |= {number: next(free) for number in new}
        numbers = np.array(sorted(slots), np.int64)
        self.numbers = [slots[number] for number in numbers.tolist()]
        chosen, targets = _members(numbers, pieces.bins)
        copied.copy(pieces, chosen, np.array(self.numbers, np.int64)[targets], self.rows)
        return bins
