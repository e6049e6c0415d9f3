"""The batches of bucket_by_sequence_length: rows wait in the bucket of their length until it has a batch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.errors import SpecMismatchError
from penstock.stages.base.grouping import Grouping
from penstock.stages.base.held_rows import (
    MOST_BLOCKS,
    Anchors,
    Arrival,
    HeldInput,
    HeldRows,
    Place,
    place_of,
    saved,
)
from penstock.stages.base.segment import Segment
from penstock.stages.batch import BatchedFlow
from penstock.stages.bucket_by_sequence_length.buckets import Buckets
from penstock.stages.bucket_by_sequence_length.lengths import MeasuredFlow, measured_field
from penstock.stages.map import locate
from penstock.stages.unbatch import column_lengths

_PAGE_NBYTES = 1 << 13  # A block takes whole pages, however small it is.


@dataclass(frozen=True, slots=True)
class _Opened:
    """The buckets when some batches were made: gives the cursor after each of these."""

    before: tuple[tuple[int, ...], ...]
    """The rows in each bucket before."""
    first: int
    """The number of the first new row."""
    buckets: Index
    """The bucket of each new row."""
    closed: tuple[tuple[int, int, int], ...]
    """Of each batch its bucket, how many rows it has, and how many new rows had come."""
    anchors: Anchors
    is_direct: bool

    def __call__(self, offset: int) -> Cursor:
        """Return the cursor after `offset` batches."""
        closed = self.closed[:offset]
        came = closed[-1][2] if closed else 0
        groups = self.groups(came)
        for bucket, size, _ in closed:
            groups[bucket] = groups[bucket][size:]
        held = [number for group in groups for number in group]
        passed = self.first + came
        return [groups, *saved(self.anchors, passed, held, is_direct=self.is_direct)]

    def groups(self, came: int) -> list[list[int]]:
        """Return the rows of each bucket after so many new rows, if no batch was made of them."""
        new = self.buckets[:came]
        return [
            [*rows, *(np.flatnonzero(new == bucket) + self.first).tolist()]
            for bucket, rows in enumerate(self.before)
        ]


class BucketedFlow(BatchedFlow):
    """Batches of rows of about one length.

    The cursor is [the numbers of the rows in each bucket, rows that came, the row that the next part stands before,
    cursor of the input there].
    """

    stage: Buckets

    def __init__(self, stage: Buckets, flow: Flow) -> None:
        super().__init__(stage, flow)
        measured = flow if isinstance(flow, MeasuredFlow) else None
        self.rows = flow if measured is None else measured.input
        """The flow of the rows alone, without their lengths."""
        self.direct = self.rows.rows if isinstance(self.rows, Segment) else None
        if measured is not None and measured.stage.skip:
            self.direct = None  # Rows that are skipped have no number here.
        self.measured = -1 if stage.name is None else measured_field(flow, stage.name)
        """The field whose first axis is the length of a row."""

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield batches in the order in which they are full, what is left in the buckets at the end."""
        groups, place = self._begin(cursor)
        source = HeldInput(self, self.input, self.direct, place, context)
        held = HeldRows(self.rows, context)
        passed = place.passed

        def put_back(numbers: Index, block: Block, places: Index) -> None:
            held.add(numbers, self._rows_of(block), places)

        for arrival in source.arrivals(put_back, lambda: held.numbers):
            numbers = arrival.numbers
            held.add(numbers, self._rows_of(arrival.parcel.block), numbers - arrival.first)
            buckets = self._buckets(arrival, context)
            closed = self._closed(groups, buckets)
            opened = _Opened(
                groups, int(numbers[0]), buckets, closed, source.anchors, source.is_direct
            )
            after = opened.groups(len(buckets))
            yield from self._made(opened, after, held, context)
            for bucket, size, _ in closed:
                after[bucket] = after[bucket][size:]
            groups = tuple(map(tuple, after))
            held.keep(np.array(sorted(row for rows in after for row in rows), np.int64))
            passed = int(numbers[-1]) + 1
            del arrival
        if not self.stage.drop_remainder:
            rest = tuple((b, len(rows), 0) for b, rows in enumerate(groups) if rows)
            none = np.empty(0, np.int64)
            opened = _Opened(groups, passed, none, rest, source.anchors, source.is_direct)
            yield from self._made(opened, opened.groups(0), held, context)

    def _begin(self, cursor: Cursor) -> tuple[tuple[tuple[int, ...], ...], Place]:
        count = len(self.stage.sizes)
        parts = cursor_parts(self, cursor, ([], 0, 0, None))
        groups = parts[0] or [[]] * count
        if len(groups) != count or not all(isinstance(one, list) for one in groups):
            raise wrong_cursor(self, cursor)
        if any(len(one) >= self.stage.bucket_size(b) for b, one in enumerate(groups) if one):
            raise wrong_cursor(self, cursor)
        place = place_of(self, groups, self.direct, parts[1:])
        return tuple(map(tuple, groups)), place

    def _rows_of(self, block: Block) -> Block:
        """Return a block without the lengths."""
        rows = Block([], block.num_rows, block.leases)
        rows.columns = block.columns[: len(self.rows.fields)]
        return rows

    def _buckets(self, arrival: Arrival, context: Context) -> Index:
        """Return the bucket of each new row."""
        parcel = arrival.parcel
        if self.stage.name is None:
            column = parcel.block.columns[-1]
            assert isinstance(column, Fixed)
            lengths = column.rows[: parcel.size]
        else:
            lengths = column_lengths(parcel.block.columns[self.measured], parcel.size)
        found: Index = np.searchsorted(
            np.array(self.stage.boundaries), lengths[arrival.start :], side="right"
        )
        last = len(self.stage.boundaries)
        if self.stage.to_boundary and last in found:
            at = int(np.argmax(found == last))
            row = arrival.first + arrival.start + at
            node = self.direct if self.direct is not None else self.rows
            raise SpecMismatchError(
                f"{self.describe()} pads to the boundaries, so that rows must be shorter than the last of them, "
                f"{self.stage.boundaries[-1]}; {locate(node, row, context.epoch)} has length "
                f"{int(lengths[arrival.start + at])}. Add a boundary, or leave pad_to_bucket_boundary out."
            )
        return found

    def _closed(
        self, groups: tuple[tuple[int, ...], ...], buckets: Index
    ) -> tuple[tuple[int, int, int], ...]:
        """Return the batches that new rows of these buckets make, in the order in which they are full."""
        closed: list[tuple[int, int, int]] = []
        for bucket in np.unique(buckets).tolist():
            size = self.stage.bucket_size(bucket)
            # The row that makes a batch full, and every `size`-th after it.
            filling = np.flatnonzero(buckets == bucket)[size - 1 - len(groups[bucket]) :: size]
            closed += [(bucket, size, came + 1) for came in filling.tolist()]
        return tuple(sorted(closed, key=lambda one: one[2]))

    def _made(
        self, opened: _Opened, groups: list[list[int]], held: HeldRows, context: Context
    ) -> Iterator[Parcel]:
        """Yield the batches that were closed, about as many bytes at a time as a block has."""
        used = [0] * len(groups)
        numbers: list[Index] = []
        for bucket, size, _ in opened.closed:
            start = used[bucket]
            used[bucket] = start + size
            numbers.append(np.array(groups[bucket][start : start + size], np.int64))
        first = 0
        while first < len(numbers):
            stop, nbytes = first, 0
            while stop < len(numbers) and (stop == first or nbytes < context.block_nbytes):
                nbytes += int(held.sizes(numbers[stop]).max()) * len(numbers[stop])
                nbytes += self.fixed_nbytes * len(numbers[stop])
                stop += 1
            block = self._batches(opened, numbers, first, stop, held, context)
            yield Parcel(block, stop - first, partial(_further, opened, first))
            del block
            first = stop

    def _batches(  # type: ignore[override]  # Batches of other batch sizes each.
        self,
        opened: _Opened,
        numbers: list[Index],
        first: int,
        stop: int,
        held: HeldRows,
        context: Context,
    ) -> Block:
        some = numbers[first:stop]
        block = context.block(self, len(some))
        lengths = np.array([len(one) for one in some], np.int64)
        grouping = Grouping(self.rows, block, lengths, self.batch_size, context)
        held.copy_to(grouping.rows, np.concatenate(some))
        buckets = np.array([one[0] for one in opened.closed[first:stop]], np.int64)
        grouping.finish(partial(self.stage.group_in, buckets))
        context.padding.add(self, grouping.num_values, grouping.room)
        return block.finish()

    @property
    def fixed_nbytes(self) -> int:
        """The bytes of a row in fields of one size."""
        return sum(field.nbytes for field in self.rows.fields if field.storage_shape is not None)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, the rows in the buckets, twice while they are moved, and the batches made."""
        made = max(block_nbytes, self.block_nbytes(1)) + self.block_nbytes(1)
        waiting = 2 * self.stage.open_nbytes(self.input) + block_nbytes
        pages = MOST_BLOCKS * _PAGE_NBYTES * (1 + len(self.fields))
        return 4 * made + waiting + pages + self.input.holds_nbytes(block_nbytes, ahead)

    def choice(self) -> str:
        """Return the buckets, and how held rows are found again after a resume."""
        sizes = [self.stage.bucket_size(bucket) for bucket in range(len(self.stage.sizes))]
        again = "their numbers" if self.direct is not None else "reading from the oldest of them on"
        count = f"{len(sizes)} buckets, of {min(sizes)} to {max(sizes)} rows a batch"
        return f"{count}; a resume finds the rows in them by {again}"


def _further(opened: _Opened, first: int, offset: int) -> Any:
    return opened(first + offset)
