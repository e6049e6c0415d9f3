"""repeat: several passes over the rows, each an epoch of its own for the stages before it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from penstock.core.blocks import Block
from penstock.core.fields import repeated
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.route import Passes, Route
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index
from penstock.core.state import cursor_parts
from penstock.stages.base.stage import Stage, StageFlow, StageRows

_PASSES = 1 << 40  # Epochs set aside for the passes of one endless repeat.


@dataclass(frozen=True, slots=True)
class Repeat(Stage):
    """`count` passes, or passes without end (None; -1 as in tf.data)."""

    may_follow_distribute: ClassVar[bool] = True
    count: int | None

    def of_rows(self, rows: Rows) -> Node:
        """Return the passes one after the other."""
        return RepeatedRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the passes one after the other."""
        return RepeatedFlow(self, flow)

    def num_rows(self, rows: int | None) -> int | None:
        """Return how many rows all passes have together."""
        if rows is None or rows == 0 or rows == ENDLESS:
            return rows if self.count != 0 else 0
        if self.count is None:
            return ENDLESS
        if rows * self.count >= ENDLESS:
            raise ValueError(f"{self.describe()} makes {rows * self.count} rows, more than 2**62.")
        return rows * self.count

    @property
    def epochs(self) -> int:
        """How many epochs of the stages before it one of its own has."""
        return _PASSES if self.count is None else self.count

    def epoch(self, epoch: int, number: int) -> int:
        """Return the epoch that pass `number` is for the stages before it."""
        return epoch * self.epochs + number

    def describe(self) -> str:
        """Return the call that made it."""
        return f"repeat({'' if self.count is None else self.count})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["repeat", self.count]


class RepeatedRows(StageRows):
    """Row i is row i % num_rows of pass i // num_rows."""

    stage: Repeat

    def __init__(self, stage: Repeat, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = stage.num_rows(node.num_rows) or 0
        # A block may reach into the next pass, and have the largest rows twice.
        self.fields = tuple(replace(f, tops=repeated(f.tops, 2)) for f in node.fields)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read pass by pass where passes differ, all rows at once where they don't."""
        length = self.input.num_rows
        if isinstance(rows, slice) and rows.start // length == (rows.stop - 1) // length:
            number = rows.start // length
            inner = context.of_epoch(self.stage.epoch(context.epoch, number))
            shift = number * length
            self.input.read(slice(rows.start - shift, rows.stop - shift), out, inner)
            return
        passes, positions = np.divmod(as_index(rows), length)
        if not self.input.follows_epoch:
            self.input.read(positions, out, context)
            return
        for number in np.unique(passes).tolist():
            slots = np.flatnonzero(passes == number)
            inner = context.of_epoch(self.stage.epoch(context.epoch, number))
            self.input.read(positions[slots], out.at(slots), inner)

    def route(self, epoch: int) -> Route | None:
        """Return the route of all passes."""
        first = self.input.route(self.stage.epoch(epoch, 0))
        # A batch that is cut short at the end of a pass is followed by others.
        if first is None or not first.is_whole or not self.input.num_rows:
            return None

        def of_pass(number: int) -> Route | None:
            return self.input.route(self.stage.epoch(epoch, number))

        return Passes(self.input.num_rows, of_pass, first.batch_size)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over an input of which the rows of each pass are read that are wanted of it."""
        passes = wanted.in_passes(self.stage.epochs, self.input.num_rows)
        return self.over(self.input.narrowed(passes))

    def locate(self, row: int, epoch: int) -> str:
        """Return where a row comes from, and in which pass."""
        number, position = divmod(row, self.input.num_rows)
        where = self.input.locate(position, self.stage.epoch(epoch, number))
        return f"{where} (pass {number})"


class RepeatedFlow(StageFlow):
    """A flow that is read again and again; the cursor is [number of the pass, cursor of the input]."""

    stage: Repeat

    def __init__(self, stage: Repeat, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = stage.num_rows(flow.num_rows)
        if stage.count is None and flow.num_rows is None:
            self.num_rows = ENDLESS

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield pass after pass; ends if a whole pass has no rows."""
        number, inner = cursor_parts(self, cursor, (0, None))
        while self.stage.count is None or number < self.stage.count:
            is_empty = inner is None
            within = context.of_epoch(self.stage.epoch(context.epoch, number))
            for parcel in self.input.parcels(inner, within):
                is_empty = False
                yield Parcel(
                    parcel.block, parcel.size, partial(_in_pass, number, parcel.cursor_after)
                )
            if is_empty:
                return
            number, inner = number + 1, None


def _in_pass(number: int, cursor_after: CursorAfter, offset: int) -> Cursor:
    return [number, cursor_after(offset)]
