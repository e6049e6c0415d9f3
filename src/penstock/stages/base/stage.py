"""What every stage is: a frozen declaration that makes a node from the node before it."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.rows import Context, Flow, Node, Rows, RowSet
from penstock.stages.base.segment import Segment, as_flow


class Stage(ABC):
    """One declaration of a chain. It checks whether it can follow a node, and makes a node from that one."""

    __slots__ = ()
    may_follow_distribute: ClassVar[bool] = False
    """Whether it leaves the parts of all ranks as they are: of one batch each, and equally many."""

    makes_batches: ClassVar[bool] = False
    moves_rows: ClassVar[bool] = False
    """Whether rows come in another order than they had, though nothing is shuffled."""

    def build(self, node: Node) -> Node:
        """Return the node that this stage makes of `node`; raise if it can't follow that node."""
        self.refuse_after(node)
        self.check(node)
        return self.of_rows(node) if isinstance(node, Rows) else self.of_flow(as_flow(node))

    def refuse_after(self, node: Node) -> None:
        """Raise if `node` is one rank's part of a dataset, and this stage needs all of it."""
        if node.share is not None and not self.may_follow_distribute:
            call = self.describe()
            before = call if self.makes_batches else f"{call}.batch(64)"
            raise ValueError(
                f"{call} can't follow distribute, which comes last: it would see the rows of one rank alone.\n"
                f"  wrong: ds.batch(64).distribute().{call}\n  right: ds.{before}.distribute()"
            )

    def check(self, node: Node) -> None:  # noqa: B027  # Most stages can follow any node.
        """Raise if it can't follow `node`."""

    @abstractmethod
    def of_rows(self, rows: Rows) -> Node:
        """Return the node that it makes of rows with random access."""

    @abstractmethod
    def of_flow(self, flow: Flow) -> Node:
        """Return the node that it makes of rows that can only be read forward."""

    @abstractmethod
    def describe(self) -> str:
        """Return the call that made it: 'batch(32)'."""

    @abstractmethod
    def fingerprint(self) -> Any:
        """Return what the rows and their order depend on, as JSON: its name and its arguments."""

    def evidence(self) -> Iterator[Evidence]:
        """Yield what proves that another run has the same: the user's functions. Most stages have none."""
        yield from ()

    def notes(self, node: Node) -> tuple[str, ...]:
        """Return what a user should know of the node that it made, for `explain()`."""
        return ()

    def anew(self) -> "Stage":
        """Return the same declaration for other rows: itself, unless it stores rows."""
        return self


class StageNode(Node):
    """A node that a stage makes of one other node."""

    stage: Stage

    def describe(self) -> str:
        """Return the call that made it."""
        return self.stage.describe()

    def fingerprint(self) -> Any:
        """Return what the order depends on."""
        return self.stage.fingerprint()

    def evidence(self) -> Iterator[Evidence]:
        """Yield the functions of the stage."""
        return self.stage.evidence()

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know before running it."""
        return self.stage.notes(self)

    def rebuilt(self, inputs: Sequence[Node]) -> Node:
        """Return what the stage makes of another input."""
        return self.stage.anew().build(inputs[0])


class StageRows(StageNode, Rows):
    """Rows that a stage makes of one other node: row i is made of row i of that one, if nothing is overridden."""

    input: Rows

    def __init__(self, stage: Stage, node: Rows) -> None:
        self.like(node)
        self.stage = stage
        self.input = node

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows from the input, under the numbers they have there."""
        self.input.read(self.input_rows(rows, context.epoch), out, context)

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the numbers that rows of this node have in the input."""
        return rows

    def over(self, node: Rows) -> Rows:
        """Return the same node over an input that differs in what it loads, not in its rows."""
        if node is self.input:
            return self
        made = copy.copy(self)
        made.input = node
        made.inputs = (node,)
        return made

    def only(self, number: int) -> Rows | None:
        """Return the rows with a single field, where all that this stage does is to number them anew."""
        if type(self).fill is not StageRows.fill or self.fields is not self.input.fields:
            return None
        node = self.input.only(number)
        if node is None:
            return None
        made = self.over(node)
        made.fields, made.structure, made.grains = node.fields, node.structure, ()
        return made

    def locate(self, row: int, epoch: int) -> str:
        """Return where a row comes from."""
        rows = self.input_rows(slice(row, row + 1), epoch)
        first = rows.start if isinstance(rows, slice) else int(rows[0])
        return self.input.locate(first, epoch)


class StageFlow(StageNode, Flow):
    """A flow that a stage makes of one other flow."""

    input: Flow

    def __init__(self, stage: Stage, flow: Flow) -> None:
        self.like(flow)
        self.stage = stage
        self.input = flow
        if isinstance(flow, Segment):
            self.inputs = (flow.rows,)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds: this stage passes its blocks on."""
        return self.input.holds_nbytes(block_nbytes, ahead)


class CopyingFlow(StageFlow):
    """A flow made from one other by a stage that copies the rows it hands on, a parcel at a time."""

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, and the copies: the one that is made, and the one before it."""
        own = 2 * max(block_nbytes, self.block_nbytes(1))
        return own + self.input.holds_nbytes(block_nbytes, ahead)
