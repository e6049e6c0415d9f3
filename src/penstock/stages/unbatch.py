"""unbatch: the rows of batches, one after the other."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index, spans
from penstock.core.blocks import Block
from penstock.core.columns import Fixed, Ragged, Text
from penstock.core.fields import Field
from penstock.core.nest import field_names
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index, rows_per_block
from penstock.core.spec import ArraySpec
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.errors import SpecMismatchError
from penstock.stages.base.segment import as_flow
from penstock.stages.base.stage import Stage, StageFlow, StageRows
from penstock.stages.batch import Batch, BatchedRows


@dataclass(frozen=True, slots=True)
class Unbatch(Stage):
    """The rows along the first axis of every field."""

    def check(self, node: Node) -> None:
        """Raise unless every field has the same first axis."""
        names = field_names(node.structure)
        for field, name in zip(node.fields, names, strict=True):
            if not field.spec.shape:
                raise ValueError(
                    f"unbatch needs a first axis in every field, and {name!r} is {field.spec}."
                )
        if not names:
            raise ValueError("unbatch needs rows with at least one field, got none.")
        sizes = dict(zip(names, (field.spec.shape[0] for field in node.fields), strict=True))
        if len({size for size in sizes.values() if size is not None}) > 1:
            raise ValueError(f"unbatch needs the same first axis in every field, got {sizes}.")

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows of the batches; right after `batch`, no batches are made at all."""
        if isinstance(rows, BatchedRows) and type(rows.stage) is Batch:
            return FlattenedRows(self, rows)
        sizes = {field.spec.shape[0] for field in rows.fields}
        size = sizes.pop() if len(sizes) == 1 else None
        return self.of_flow(as_flow(rows)) if size is None else UnbatchedRows(self, rows, size)

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows of the batches."""
        return UnbatchedFlow(self, flow)

    def unequal(self, name: str, counts: tuple[int, int], cursor: Cursor) -> SpecMismatchError:
        """Return the error for a batch whose field `name` has not as many rows as its first field.

        `cursor` is where the input stands before that batch.
        """
        return SpecMismatchError(
            f"unbatch: field {name!r} has batches of other lengths than the first field: one has {counts[0]} rows, and "
            f"{counts[1]} in the first field. All fields of a batch must have the same number of rows."
        )

    def describe(self) -> str:
        """Return the call that made it."""
        return "unbatch()"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["unbatch"]


def _row_field(field: Field) -> Field:
    rows = field.most or field.spec.shape[0] or 1
    return Field(
        ArraySpec(field.spec.shape[1:], field.spec.dtype), estimate=field.nbytes // rows + 8
    )


class FlattenedRows(StageRows):
    """The rows that went into `batch`, read directly: no batch is made."""

    def __init__(self, stage: Unbatch, node: BatchedRows) -> None:
        super().__init__(stage, node.input)
        self.inputs = (node,)
        if node.stage.drop_remainder and not node.is_endless:
            self.num_rows = node.num_rows * node.stage.batch_size

    def choice(self) -> str:
        """Return that no batch is made."""
        return "undoes batch: no batch is made"


class UnbatchedRows(StageRows):
    """Row i is row i % batch_size of batch i // batch_size: batches of one known size."""

    def __init__(self, stage: Unbatch, node: Rows, batch_size: int) -> None:
        super().__init__(stage, node)
        self.is_batched = False
        self.batch_size = batch_size
        self.grains = tuple(grain.divided(batch_size) for grain in node.grains)
        self.fields = tuple(_row_field(field) for field in node.fields)
        self.num_rows = ENDLESS if node.is_endless and batch_size else node.num_rows * batch_size

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read each batch that has one of the rows, once, a few batches at a time."""
        batches, offsets = np.divmod(as_index(rows), self.batch_size)
        needed, places = np.unique(batches, return_inverse=True)
        step = rows_per_block(self.input, context.block_nbytes)
        for start in range(0, len(needed), step):
            some = needed[start : start + step]
            slots = np.flatnonzero((places >= start) & (places < start + step))
            block = context.block(self.input, len(some))
            self.input.read(some, block, context)
            pick(block.finish(), places[slots] - start, offsets[slots], out.at(slots))

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of a few batches, and of the rows picked from them."""
        batches = min(rows_per_block(self.input, 1 << 22), max(1, self.input.num_rows))
        return 2 * self.input.block_nbytes(batches) + self.input.staging_nbytes(batches)

    def locate(self, row: int, epoch: int) -> str:
        """Return where the batch of a row comes from."""
        batch, offset = divmod(row, self.batch_size)
        return f"row {offset} of {self.input.locate(batch, epoch)}"


class UnbatchedFlow(StageFlow):
    """The rows of each batch; the cursor is [rows used of the input's next batch, cursor of the input]."""

    stage: Unbatch

    def __init__(self, stage: Unbatch, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.is_batched = False
        self.fields = tuple(_row_field(field) for field in flow.fields)
        self.num_rows = ENDLESS if flow.is_endless else None

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of the batches of each parcel."""
        used, inner = cursor_parts(self, cursor, (0, None))
        for parcel in self.input.parcels(inner, context):
            lengths = self._lengths(parcel)
            starts = np.zeros(len(lengths), np.int64)
            if used > lengths[0]:
                raise wrong_cursor(self, cursor)
            starts[0] = used
            left = lengths - starts
            used = 0
            total = int(left.sum())
            if total:
                block = context.block(self, total)
                batches = np.repeat(np.arange(len(lengths)), left)
                pick(parcel.block, batches, spans(starts, left), block)
                after = partial(_after, np.cumsum(left), starts, parcel.cursor_after)
                yield Parcel(block.finish(), total, after)

    def _lengths(self, parcel: Parcel) -> Index:
        lengths: Index | None = None
        for column, name in zip(parcel.block.columns, field_names(self.structure), strict=True):
            found = column_lengths(column, parcel.size)
            if lengths is not None and not np.array_equal(lengths, found):
                at = int(np.flatnonzero(lengths != found)[0])
                counts = int(found[at]), int(lengths[at])
                raise self.stage.unequal(name, counts, parcel.cursor_after(at))
            lengths = found
        assert lengths is not None
        return lengths

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, and a copy of its rows."""
        own = 2 * max(block_nbytes, self.input.block_nbytes(1))
        return own + self.input.holds_nbytes(block_nbytes, ahead)


def column_lengths(column: Fixed | Text | Ragged, size: int) -> Index:
    """Return the length of the first axis of each of the first `size` rows of a column."""
    if isinstance(column, Ragged):
        return column.shapes[:size, 0]
    assert isinstance(column, Fixed)
    if column.lengths is not None:
        return column.lengths[:size]
    return np.full(size, column.grouped.shape[2])


def pick(batches: Block, places: Index, offsets: Index, out: Block) -> None:
    """Copy row `offsets[j]` of batch `places[j]` to row j of `out`."""
    for column, sink in zip(batches.columns, out.sinks, strict=True):
        if isinstance(column, Fixed):
            values = column.rows[places, offsets]
            if isinstance(sink, Fixed):
                sink.put(values)
            else:
                sink.put(list(values))
            continue
        assert isinstance(column, Ragged)
        rows = column.inner(places, offsets)
        if isinstance(sink, Fixed):
            assert not isinstance(rows.values_, Text)
            sink.put(
                rows.values_[spans(rows.starts, rows.shapes.prod(axis=1))].reshape(
                    len(places), *sink.grouped.shape[2:]
                )
            )
        elif sink.spec.shape == ():
            assert isinstance(rows.values_, Text)
            sink.add(rows.values_.take(rows.starts, sink.allocate))
        else:
            sink.add(rows.take(np.arange(len(places)), sink.allocate))


def _after(ends: Index, starts: Index, cursor_after: CursorAfter, offset: int) -> Cursor:
    batch = int(np.searchsorted(ends, offset, side="right"))
    if batch == len(ends):
        return [0, cursor_after(batch)]
    before = int(ends[batch - 1]) if batch else 0
    return [int(starts[batch]) + offset - before, cursor_after(batch)]
