"""skip: all rows but the first."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.route import Route
from penstock.core.rows import Context, Flow, Node, Rows, RowSet, shifted
from penstock.core.state import cursor_parts
from penstock.stages.base.stage import CopyingFlow, Stage, StageRows


@dataclass(frozen=True, slots=True)
class Skip(Stage):
    """All rows but the first `count`; -1, as in tf.data, skips all of them."""

    may_follow_distribute: ClassVar[bool] = True
    count: int

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows after the first ones."""
        return RowsAfterSkip(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows after the first ones."""
        return FlowAfterSkip(self, flow)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"skip({self.count})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["skip", self.count]


class RowsAfterSkip(StageRows):
    """The rows of the input from a number on."""

    def __init__(self, stage: Skip, node: Rows) -> None:
        super().__init__(stage, node)
        self.picks = node.picks
        self.first = node.num_rows if stage.count < 0 else min(stage.count, node.num_rows)
        if not node.is_endless:
            self.num_rows = node.num_rows - self.first
        elif stage.count < 0:
            self.num_rows = 0

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return row numbers past the skipped ones."""
        return shifted(rows, self.first)

    def route(self, epoch: int) -> Route | None:
        """Return the route of the rows past the skipped ones."""
        route = self.input.route(epoch)
        return None if route is None else route.strided(1, self.first)

    def defers(self, rows: slice) -> bool:
        """Return whether the input can read these rows in one native job."""
        return self.input.defers(slice(rows.start + self.first, rows.stop + self.first))

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over an input that is narrowed to those."""
        return self.over(self.input.narrowed(wanted.shifted(self.first)))


class FlowAfterSkip(CopyingFlow):
    """A flow without its first rows; the cursor is [rows skipped so far, cursor of the input]."""

    stage: Skip

    def __init__(self, stage: Skip, flow: Flow) -> None:
        super().__init__(stage, flow)
        if stage.count < 0:
            self.num_rows = 0
        elif flow.num_rows is not None and not flow.is_endless:
            self.num_rows = max(0, flow.num_rows - stage.count)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows after the first `count`."""
        most = None if self.stage.count < 0 else self.stage.count
        skipped, inner = cursor_parts(self, cursor, (0, None), most=(most, None))
        if self.stage.count < 0:
            return
        for parcel in self.input.parcels(inner, context):
            drop = min(parcel.size, self.stage.count - skipped)
            skipped += drop
            if drop == 0:
                yield Parcel(
                    parcel.block, parcel.size, partial(_skipped, skipped, parcel.cursor_after, 0)
                )
            elif drop < parcel.size:
                block = context.block(self, parcel.size - drop)
                block.copy_from(parcel.block, np.arange(drop, parcel.size))
                after = partial(_skipped, skipped, parcel.cursor_after, drop)
                yield Parcel(block.finish(), parcel.size - drop, after)


def _skipped(skipped: int, cursor_after: CursorAfter, drop: int, offset: int) -> Cursor:
    return [skipped, cursor_after(drop + offset)]
