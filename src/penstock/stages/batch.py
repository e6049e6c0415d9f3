"""batch: consecutive rows stacked along a new first axis."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.columns import Ragged, Text
from penstock.core.fields import Field
from penstock.core.grains import grouped
from penstock.core.nest import Structure, field_names
from penstock.core.parcels import Cursor, Parcel
from penstock.core.route import Batches, Route
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index, rows_per_block
from penstock.core.spec import ArraySpec
from penstock.memory import Allocate
from penstock.stages.base.grouping import (
    Grouping,
    batch_field,
    batch_lengths,
    check_batchable,
    group,
    longest_batch,
)
from penstock.stages.base.pending import Pending
from penstock.stages.base.stage import Stage, StageFlow, StageRows


@dataclass(frozen=True, slots=True)
class Batch(Stage):
    """Batches of `batch_size` rows; the last may be shorter unless it is dropped."""

    makes_batches: ClassVar[bool] = True
    batch_size: int
    drop_remainder: bool = False

    def check(self, node: Node) -> None:
        """Raise if rows differ in shape."""
        check_batchable(node.fields, field_names(node.structure), f"batch({self.batch_size})")

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows in batches."""
        return BatchedRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows in batches."""
        return BatchedFlow(self, flow)

    def num_batches(self, num_rows: int | None) -> int | None:
        """Return how many batches `num_rows` rows make."""
        if num_rows is None or num_rows == ENDLESS:
            return num_rows
        if self.drop_remainder:
            return num_rows // self.batch_size
        return -(-num_rows // self.batch_size)

    def is_whole(self, num_rows: int | None) -> bool:
        """Whether no batch is cut short, which makes the first dimension known."""
        if self.drop_remainder or num_rows == ENDLESS:
            return True
        return num_rows is not None and num_rows % self.batch_size == 0

    def rest(self, num_rows: int | None) -> int | None:
        """Return how many rows the last batch has if it is cut short, else 0; None if nobody knows."""
        if self.is_whole(num_rows):
            return 0
        return None if num_rows is None else num_rows % self.batch_size

    def field(self, field: Field, num_rows: int | None) -> Field:
        """Return the field of a batch of rows."""
        is_whole = self.is_whole(num_rows)
        tops = self.tops(field, longest_batch(self.batch_size, num_rows))
        return batch_field(field, self.batch_size, is_whole=is_whole, num_rows=num_rows, tops=tops)

    def tops(self, field: Field, size: int) -> tuple[int, ...]:
        """Return the bytes of the 1, 2, 4, ... largest batches of `size` rows that rows of a field could make."""
        batches = [1 << power for power in range(len(field.tops))]
        return tuple(field.most_nbytes(size * count) + 16 * count for count in batches)

    def fields(self, node: Node) -> tuple[Field, ...]:
        """Return the fields of a batch of rows of `node`."""
        return tuple(self.field(field, node.num_rows) for field in node.fields)

    def structure(self, node: Node) -> Structure:
        """Return the nest of a batch: that of a row."""
        return node.structure

    def portions(self, pending: Pending, count: int, nbytes: int) -> Iterable[int]:
        """Yield how many of the next `count` batches are made at once: all, they are no larger than their rows."""
        if count:
            yield count

    def finish(self, grouping: Grouping, out: Block) -> None:  # PaddedBatch uses `out`.
        """Make batches of the rows that were read."""
        grouping.finish(self.group)

    def group(
        self, number: int, rows: Text | Ragged, lengths: Index, spec: ArraySpec, allocate: Allocate
    ) -> Ragged:
        """Return batches of text."""
        return group(rows, lengths, spec)

    def describe(self) -> str:
        """Return the call that made it."""
        rest = ", drop_remainder=True" if self.drop_remainder else ""
        return f"batch({self.batch_size}{rest})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["batch", self.batch_size, self.drop_remainder]


class BatchedRows(StageRows):
    """Row i is rows i * batch_size to (i + 1) * batch_size of the input."""

    stage: Batch

    def __init__(self, stage: Batch, node: Rows) -> None:
        super().__init__(stage, node)
        self.is_batched = True
        self.num_rows = stage.num_batches(node.num_rows) or 0
        self.batch_size = longest_batch(stage.batch_size, node.num_rows)
        self.grains = grouped(node.grains, self.batch_size)
        self.fields = stage.fields(node)
        self.structure = stage.structure(node)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of all batches at once, into the batches."""
        size, total = self.batch_size, self.input.num_rows
        batches = as_index(rows)
        lengths = batch_lengths(batches, size, total)
        part = out.part(0, len(self.input.fields))
        grouping = Grouping(self.input, part, lengths, size, context)
        self.input.read(_rows_of(rows, size, total), grouping.rows, context)
        self.stage.finish(grouping, out)
        context.padding.add(self, grouping.num_values, grouping.room)

    def route(self, epoch: int) -> Route | None:
        """Return the route of the rows, in batches; padding and batches of batches are no arithmetic."""
        if type(self.stage) is not Batch or self.input.is_batched:
            return None
        route = self.input.route(epoch)
        if route is None:
            return None
        num_rows = self.input.num_rows
        return Batches(route, self.batch_size, num_rows, is_whole=self.stage.is_whole(num_rows))

    def defers(self, rows: slice) -> bool:
        """Return whether the rows of these batches are read in one native job, straight into the batches."""
        if type(self.stage) is not Batch or self.input.is_batched:
            return False
        inner = _rows_of(rows, self.batch_size, self.input.num_rows)
        return isinstance(inner, slice) and self.input.defers(inner)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that reading the rows of the batches takes."""
        nested = 2 * num_rows * self.row_nbytes if self.input.is_batched else 0
        return nested + self.input.staging_nbytes(num_rows * self.batch_size)

    def locate(self, row: int, epoch: int) -> str:
        """Return the batch, and where its first row comes from."""
        first = self.input.locate(row * self.stage.batch_size, epoch)
        return f"batch {row}, which starts with {first}"


def _rows_of(batches: RowSet, size: int, total: int) -> RowSet:
    if isinstance(batches, slice):
        return slice(batches.start * size, min(total, batches.stop * size))
    rows = (batches[:, None] * size + np.arange(size)).reshape(-1)
    return rows[rows < total] if rows.size and rows.max() >= total else rows


class BatchedFlow(StageFlow):
    """Batches of a flow; the cursor is that of the input after the last row of a batch."""

    stage: Batch

    def __init__(self, stage: Batch, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.is_batched = True
        self.num_rows = stage.num_batches(flow.num_rows)
        self.batch_size = longest_batch(stage.batch_size, flow.num_rows)
        self.fields = stage.fields(flow)
        self.structure = stage.structure(flow)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield as many whole batches as there are rows for, the remainder at the end."""
        pending = Pending(self.input, context)
        for parcel in self.input.parcels(cursor, context):
            pending.add(parcel)
            whole = pending.num_rows // self.stage.batch_size
            for count in self.stage.portions(pending, whole, context.block_nbytes):
                yield self._batches(pending, np.full(count, self.stage.batch_size), context)
        if pending.num_rows and not self.stage.drop_remainder:
            yield self._batches(pending, np.array([pending.num_rows]), context)

    def _batches(self, pending: Pending, lengths: Index, context: Context) -> Parcel:
        block = context.block(self, len(lengths))
        part = block.part(0, len(self.input.fields))
        grouping = Grouping(self.input, part, lengths, self.batch_size, context)
        cursors = pending.move(grouping.rows, lengths)
        self.stage.finish(grouping, block)
        context.padding.add(self, grouping.num_values, grouping.room)
        return Parcel(block.finish(), len(lengths), cursors)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, the rows of an unfinished batch, and the batches made."""
        rows = rows_per_block(self.input, block_nbytes)
        made = self.block_nbytes(rows // self.batch_size + 1)
        # Text and ragged rows are joined before they are batches.
        is_varying = any(field.storage_shape is None for field in self.fields)
        own = (4 if is_varying else 2) * made + self.input.block_nbytes(rows)
        is_unknown = any(field.planned is not None for field in self.fields)
        waiting = made if is_unknown else self.input.block_nbytes(self.batch_size)
        return own + waiting + self.input.holds_nbytes(block_nbytes, ahead)
