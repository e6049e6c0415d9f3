"""shard: every num_shards-th row of the stage before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.grains import grouped
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.route import Route
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index
from penstock.core.state import cursor_parts
from penstock.stages.base.stage import CopyingFlow, Stage, StageRows


@dataclass(frozen=True, slots=True)
class Shard(Stage):
    """Rows index, index + num_shards, index + 2 * num_shards, and so on."""

    num_shards: int
    index: int

    def __post_init__(self) -> None:
        """Raise unless `index` is one of the `num_shards` shards."""
        if not 0 <= self.index < self.num_shards:
            raise ValueError(
                "shard(num_shards, index) needs 0 <= index < num_shards, "
                f"got num_shards={self.num_shards} and index={self.index}."
            )

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows of this shard."""
        return ShardedRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows of this shard."""
        return ShardedFlow(self, flow)

    def num_rows(self, total: int | None) -> int | None:
        """Return how many of `total` rows belong to this shard."""
        if total is None or total == ENDLESS:
            return total
        return max(0, -(-(total - self.index) // self.num_shards))

    def describe(self) -> str:
        """Return the call that made it."""
        return f"shard({self.num_shards}, {self.index})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["shard", self.num_shards, self.index]


class ShardedRows(StageRows):
    """Row i is row index + i * num_shards of the input."""

    stage: Shard

    def __init__(self, stage: Shard, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = stage.num_rows(node.num_rows) or 0
        self.grains = grouped(node.grains, stage.num_shards)

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the strided row numbers."""
        return as_index(rows) * self.stage.num_shards + self.stage.index

    def route(self, epoch: int) -> Route | None:
        """Return the route of every `num_shards`-th row."""
        route = self.input.route(epoch)
        return None if route is None else route.strided(self.stage.num_shards, self.stage.index)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over an input of which the rows between them are not read, either."""
        inner = wanted.dealt(self.stage.num_shards, self.stage.index)
        return self.over(self.input.narrowed(inner))


class ShardedFlow(CopyingFlow):
    """The rows of a flow that belong to the shard; the cursor is [input rows so far, cursor of the input]."""

    stage: Shard

    def __init__(self, stage: Shard, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = stage.num_rows(flow.num_rows)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of this shard from each parcel."""
        passed, inner = cursor_parts(self, cursor, (0, None))
        for parcel in self.input.parcels(inner, context):
            first = (self.stage.index - passed) % self.stage.num_shards
            rows = np.arange(first, parcel.size, self.stage.num_shards)
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
