"""take: the first rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.route import Route
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows
from penstock.core.state import cursor_parts
from penstock.stages.base.stage import Stage, StageFlow, StageRows


@dataclass(frozen=True, slots=True)
class Take(Stage):
    """The first `count` rows; -1, as in tf.data, is all of them."""

    may_follow_distribute: ClassVar[bool] = True
    count: int

    def of_rows(self, rows: Rows) -> Node:
        """Return the first rows."""
        return TakenRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the first rows."""
        return TakenFlow(self, flow)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"take({self.count})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["take", self.count]


class TakenRows(StageRows):
    """The first rows of the input."""

    def __init__(self, stage: Take, node: Rows) -> None:
        super().__init__(stage, node)
        self.picks = node.picks
        if stage.count >= 0:
            self.num_rows = min(stage.count, node.num_rows)

    def route(self, epoch: int) -> Route | None:
        """Return the route of the input, of which fewer rows are asked for."""
        return self.input.route(epoch)

    def defers(self, rows: slice) -> bool:
        """Return whether the input can read these rows in one native job."""
        return self.input.defers(rows)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over an input that is narrowed likewise."""
        return self.over(self.input.narrowed(wanted))


class TakenFlow(StageFlow):
    """A flow that ends after `count` rows; the cursor is [rows taken so far, cursor of the input]."""

    stage: Take

    def __init__(self, stage: Take, flow: Flow) -> None:
        super().__init__(stage, flow)
        if stage.count >= 0 and flow.num_rows is not None:
            self.num_rows = min(stage.count, flow.num_rows)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield parcels until `count` rows were taken."""
        wanted = ENDLESS if self.stage.count < 0 else self.stage.count
        taken, inner = cursor_parts(self, cursor, (0, None), most=(wanted, None))
        if taken >= wanted:
            return
        for parcel in self.input.parcels(inner, context):
            size = min(parcel.size, wanted - taken)
            yield Parcel(parcel.block, size, partial(_counted, taken, parcel.cursor_after))
            taken += size
            if taken >= wanted:
                return


def _counted(before: int, cursor_after: CursorAfter, offset: int) -> Cursor:
    return [before + offset, cursor_after(offset)]
