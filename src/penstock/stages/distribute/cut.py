"""Whole global batches, made on every rank, and cut there: where rows can't be picked before they are batches."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block, Sink
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.nest import field_names
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node, Rows, RowSet, count
from penstock.core.share import Share
from penstock.core.spec import ArraySpec
from penstock.errors import SpecMismatchError
from penstock.stages.base.stage import CopyingFlow, Stage, StageRows
from penstock.stages.distribute.rank_rows import add_weight

Rests = frozenset[int] | None
"""How many rows batches may have that are short; None if nobody knows."""


def _cut_field(field: Field, share: Share, rests: Rests) -> Field:
    """Return the field of one rank's part of a batch."""
    tops = field.tops
    if share.static and rests and tops:
        # One of them, a short one, may be there so often.
        times = -(-share.local_size // min(rests))
        tops = tuple(nbytes + (times - 1) * tops[0] for nbytes in tops)
    first, *rest = field.spec.shape
    size = share.local_size if first is not None or share.static else None
    spec = ArraySpec((size, *rest), field.spec.dtype)
    most = None
    if size is None and field.most is not None:
        most = max(share.local_size, share.size(1))
    nbytes = -(-field.estimate // share.world) + 16
    return Field(
        spec,
        most,
        nbytes,
        planned=None if field.planned is None else min(field.planned, nbytes),
        tops=tops,
    )


def check_cuttable(node: Node, share: Share) -> None:
    """Raise if a field of a batch is not one of rows: a function on batches may have made that."""
    for name, field in zip(field_names(node.structure), node.fields, strict=True):
        shape = field.spec.shape
        if not shape or shape[0] not in (None, share.batch_size):
            raise ValueError(
                f"distribute cuts batches of {share.batch_size} rows, and field {name!r} of {node.describe()} is "
                f"{field.spec}: its first axis is not that of the rows. Make it of each rank's part: "
                ".distribute().map(...)."
            )


def _prepare(node: Node, share: Share, rests: Rests) -> None:
    whole = [field for field in node.fields if field.spec.shape[0] is not None]
    node.fields = tuple(_cut_field(field, share, rests) for field in node.fields)
    if share.is_weighted:
        is_whole = bool(whole) or share.static
        size = share.local_size if is_whole else None
        most = None if is_whole else max(share.local_size, share.size(1))
        add_weight(node, Field(ArraySpec((size,), np.float32), most, estimate=4 * share.local_size))


def _batch_rows(block: Block, size: int, node: Node) -> Index:
    """Return how many rows each of the first `size` batches of a block has."""
    found: Index | None = None
    for name, column in zip(field_names(node.structure), block.columns, strict=True):
        if isinstance(column, Fixed):
            full = column.grouped.shape[2]
            rows = np.full(size, full) if column.lengths is None else column.lengths[:size]
        else:
            rows = column.shapes[:size, 0]  # type: ignore[union-attr]  # A batch is never text.
        if found is not None and bool((rows != found).any()):
            raise SpecMismatchError(
                f"{node.describe()} gave a batch whose fields differ in their number of rows (see {name!r}), so "
                "that distribute can't cut it: every field of a batch must have all of its rows."
            )
        found = rows
    assert found is not None
    return found


def cut_batches(
    source: Block, size: int, node: Node, share: Share, rests: Rests, out: Block
) -> None:
    """Copy this rank's part of the first `size` batches of a block of `node` to `out`."""
    rows = _batch_rows(source, size, node)
    is_odd = rows != share.batch_size
    if share.is_weighted:
        is_short = (rows > 0) & (rows < share.batch_size)
        is_odd &= ~(is_short if rests is None else np.isin(rows, list(rests)))
    odd = np.flatnonzero(is_odd)
    if len(odd):
        raise SpecMismatchError(
            f"{node.describe()} gave a batch of {rows[odd[0]]} rows, and distribute cuts batches of "
            f"{share.batch_size}: functions on batches must keep the number of rows."
        )
    is_whole = bool((rows == share.batch_size).all())
    lengths = np.array([share.size(int(number)) for number in rows.tolist()], np.int64)
    places = {number: share.places(number) for number in np.unique(rows).tolist()}
    sinks = out.sinks[: len(source.columns)]
    for column, sink in zip(source.columns, sinks, strict=True):
        if isinstance(column, Fixed) and isinstance(sink, Fixed) and is_whole:
            sink.put(column.rows[:size, share.rank :: share.world])
            if sink.lengths is not None:
                sink.put_lengths(lengths)
            continue
        whole: Iterable[Any] = column.values(size)
        values = [one[places[len(one)]] for one in whole]
        _put(sink, values, lengths)
    if share.is_weighted:
        _put(out.sinks[-1], [share.weights(int(number)) for number in rows.tolist()], lengths)


def _put(sink: Sink, values: Sequence[Any], lengths: Index) -> None:
    """Put batches, some of them shorter, into a column."""
    if not isinstance(sink, Fixed):
        sink.put(values)
        return
    if sink.lengths is not None:
        sink.put_lengths(lengths)
    for place, value in enumerate(values):
        slot = place if sink.slots is None else int(sink.slots[place])
        sink.grouped[divmod(slot, sink.grouped.shape[1])][: len(value)] = value


class CutRows(StageRows):
    """Batches with random access, of which this rank's part is handed on."""

    def __init__(self, stage: Stage, node: Rows, share: Share, rests: Rests) -> None:
        super().__init__(stage, node)
        self.part = share
        self.rests = rests
        _prepare(self, share, rests)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read whole batches, and cut them."""
        block = context.block(self.input, count(rows))
        self.input.read(rows, block, context)
        cut_batches(block.finish(), count(rows), self.input, self.part, self.rests, out)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the whole batches, and of what reading them takes."""
        return self.input.block_nbytes(num_rows) + self.input.staging_nbytes(num_rows)

    def describe(self) -> str:
        """Return whose part it is."""
        return f"rank {self.part.rank} of {self.part.world}"


class CutFlow(CopyingFlow):
    """Batches that come forward, of which this rank's part is handed on; cursors are those of the whole batches."""

    def __init__(self, stage: Stage, flow: Flow, share: Share, rests: Rests) -> None:
        super().__init__(stage, flow)
        self.part = share
        self.rests = rests
        _prepare(self, share, rests)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield this rank's part of each batch."""
        for parcel in self.input.parcels(cursor, context):
            block = context.block(self, parcel.size)
            cut_batches(parcel.block, parcel.size, self.inputs[0], self.part, self.rests, block)
            yield Parcel(block.finish(), parcel.size, parcel.cursor_after)

    def describe(self) -> str:
        """Return whose part it is."""
        return f"rank {self.part.rank} of {self.part.world}"
