"""enumerate: each row with its number before it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.nest import flatten, tuple_of
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.rows import Context, Flow, Node, Rows, RowSet, as_index
from penstock.core.spec import ArraySpec
from penstock.core.state import cursor_parts
from penstock.errors import RangeError
from penstock.stages.base.stage import CopyingFlow, Stage, StageRows

_MOST = int(np.iinfo(np.int64).max)
_NUMBER = Field(ArraySpec((), np.int64))


@dataclass(frozen=True, slots=True)
class Enumerate(Stage):
    """(number, row), the number an int64 that starts at `start`."""

    may_follow_distribute: ClassVar[bool] = True
    start: int = 0

    def check(self, node: Node) -> None:
        """Raise if the last number would be more than an int64 holds."""
        if node.num_rows is None or node.is_endless or not node.num_rows:
            return
        last = self.start + node.num_rows - 1
        if last > _MOST:
            raise ValueError(
                f"{self.describe()} numbers {node.num_rows} rows up to {last}, and an int64 holds at most "
                f"{_MOST}; start at {_MOST - node.num_rows + 1} or below."
            )

    def numbers(self, first: int, rows: Index) -> Index:
        """Return the numbers of rows, which are counted from `first`; raise if an int64 can't hold one."""
        before = self.start + first
        if len(rows) and before + int(rows.max()) > _MOST:
            raise RangeError(
                f"{self.describe()}: row {_MOST - self.start + 1} would have the number {_MOST + 1}, and an "
                f"int64 holds at most {_MOST}; start lower, or end with .take(...) before it."
            )
        return rows + before

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows with their numbers."""
        return EnumeratedRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows with their numbers."""
        return EnumeratedFlow(self, flow)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"enumerate({self.start or ''})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["enumerate", self.start]


def _add_number(node: Node) -> None:
    node.fields = (_NUMBER, *node.fields)
    node.structure = tuple_of([flatten(0)[1], node.structure])
    node.weighs_rows = False


class EnumeratedRows(StageRows):
    """(i, row i of the input)."""

    stage: Enumerate

    def __init__(self, stage: Enumerate, node: Rows) -> None:
        super().__init__(stage, node)
        _add_number(self)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over an input that is narrowed likewise."""
        return self.over(self.input.narrowed(wanted))

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows, and write their numbers beside them."""
        numbers = out.sinks[0]
        assert isinstance(numbers, Fixed)
        numbers.put(self.stage.numbers(0, as_index(rows)))
        self.input.read(rows, out.part(1, len(out.sinks)), context)


class EnumeratedFlow(CopyingFlow):
    """A flow with numbers; the cursor is [rows so far, cursor of the input]."""

    stage: Enumerate

    def __init__(self, stage: Enumerate, flow: Flow) -> None:
        super().__init__(stage, flow)
        _add_number(self)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield each parcel with the numbers of its rows."""
        passed, inner = cursor_parts(self, cursor, (0, None))
        for parcel in self.input.parcels(inner, context):
            block = context.block(self, parcel.size)
            numbers = block.sinks[0]
            assert isinstance(numbers, Fixed)
            numbers.put(self.stage.numbers(passed, np.arange(parcel.size)))
            block.part(1, len(block.sinks)).copy_from(parcel.block, np.arange(parcel.size))
            yield Parcel(block.finish(), parcel.size, partial(_after, passed, parcel.cursor_after))
            passed += parcel.size


def _after(passed: int, cursor_after: CursorAfter, offset: int) -> Cursor:
    return [passed + offset, cursor_after(offset)]
