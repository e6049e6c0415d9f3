"""shard: every count-th row, where it stands in the chain."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.core.rows import (
    ENDLESS,
    Context,
    Cursor,
    CursorAfter,
    Flow,
    Index,
    Node,
    Parcel,
    Rows,
    RowSet,
    as_index,
)
from penstock.stages.base.stage import Stage, StageFlow, StageRows


@dataclass(frozen=True, slots=True)
class Shard(Stage):
    """Rows index, index + count, index + 2 * count, and so on."""

    index: int
    count: int

    def __post_init__(self) -> None:
        """Check that the shard is one of those there are."""
        if not 0 <= self.index < self.count:
            raise ValueError(
                f"shard(index, count) needs 0 <= index < count, got index {self.index} and count "
                f"{self.count}; tf.data has the two the other way round."
            )

    def build(self, node: Node) -> Node:
        """Return every count-th row."""
        if isinstance(node, Rows):
            return ShardedRows(self, node)
        assert isinstance(node, Flow)
        return ShardedFlow(self, node)

    def num_rows(self, total: int | None) -> int | None:
        """Return how many of `total` rows belong to this shard."""
        if total is None or total == ENDLESS:
            return total
        return max(0, -(-(total - self.index) // self.count))

    def describe(self) -> str:
        """Return the call."""
        return f"shard({self.index}, {self.count})"


class ShardedRows(StageRows):
    """Row i is row index + i * count of the input."""

    stage: Shard

    def __init__(self, stage: Shard, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = stage.num_rows(node.num_rows) or 0
        if node.chunk_rows is not None:
            self.chunk_rows = max(1, node.chunk_rows // stage.count)

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the strided row numbers."""
        return as_index(rows) * self.stage.count + self.stage.index


class ShardedFlow(StageFlow):
    """Every count-th row of a flow; the cursor is how many went by, and that of the input."""

    stage: Shard

    def __init__(self, stage: Shard, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = stage.num_rows(flow.num_rows)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of this shard from each parcel."""
        passed, inner = (0, None) if cursor is None else cursor
        for parcel in self.input.parcels(inner, context):
            first = (self.stage.index - passed) % self.stage.count
            rows = np.arange(first, parcel.size, self.stage.count)
            if len(rows):
                block = context.block(self, len(rows))
                block.copy_from(parcel.block, rows)
                yield Parcel(
                    block.finish(), len(rows), partial(_after, passed, rows, parcel.cursor_after)
                )
            passed += parcel.size


def _after(passed: int, rows: Index, cursor_after: CursorAfter, offset: int) -> Cursor:
    used = int(rows[offset - 1]) + 1 if offset else 0
    return [passed + used, cursor_after(used)]
