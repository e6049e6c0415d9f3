"""filter: only the rows for which a function is true."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import Array, Index
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.evidence import Evidence
from penstock.core.fields import Field, allocate_block
from penstock.core.nest import Structure, flatten
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, rows_per_block
from penstock.core.spec import ArraySpec
from penstock.memory import allocate_plain
from penstock.stages.base.function_flow import Piece, applied, good_places
from penstock.stages.base.functions import BadRow, UserFunction, run_rows
from penstock.stages.base.segment import as_flow
from penstock.stages.base.stage import Stage, StageFlow
from penstock.stages.map import call, locate

ANSWERS = (Field(ArraySpec((), np.bool_)),)
"""The fields of the function's answer for a row: one bool."""
ANSWER_STRUCTURE = flatten(0)[1]


@dataclass(frozen=True, slots=True)
class Filter(Stage):
    """The rows for which `function` is true."""

    answers: ClassVar[tuple[Field, ...]] = ANSWERS
    """The fields of the function's answer for a row."""
    plain_types: ClassVar[tuple[type, ...]] = (bool, np.bool_)
    """What an answer is that need not be looked at."""
    function: UserFunction
    skip: bool = False
    """Whether rows that the function fails on are skipped."""

    def check(self, node: Node) -> None:
        """Raise if the function takes another number of arguments."""
        self.function.check_arguments(node.structure)

    def of_rows(self, rows: Rows) -> Node:
        """Return a flow: how many rows pass is only known at the end."""
        return self.of_flow(as_flow(rows))

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows that pass."""
        return FilteredFlow(self, flow)

    def describe(self) -> str:
        """Return the call that made it."""
        return self.function.describe()

    def fingerprint(self) -> Any:
        """Return the name of the function."""
        return ["filter", self.function.name, self.skip]

    def apply(
        self,
        node: Node,
        elements: Iterator[Any],
        rows: Index,
        out: Node,  # Not used: filter and map are called alike.
        into: Block,
        context: Context,
    ) -> list[BadRow]:
        """Put the function's answers for the leaves of every row into the one column of `into`."""
        column = into.sinks[0]
        assert isinstance(column, Fixed)
        answers = column.rows
        plain_types = self.plain_types

        def put(place: int, answer: Any, where: Callable[[], str]) -> None:
            if not isinstance(answer, plain_types):
                answer = self.checked(answer, where)
            answers[place] = answer

        numbers = rows.tolist()
        return run_rows(
            self.function,
            self.function.caller(node.structure),
            zip(numbers, elements, strict=True),
            put,
            lambda row: locate(node, row, context.epoch),
            executor=context.executor,
            skip=self.skip,
        )

    def checked(self, answer: Any, where: Callable[[], str]) -> Any:
        """Return an answer as what it must be; raise if it can't be that."""
        array = np.asarray(answer)
        if array.shape != () or array.dtype.kind not in "biu":
            text = f"must return one True or False, got {type(answer).__name__}: {answer!r:.60}."
            raise self.function.mismatch(where(), text)
        return bool(array)

    def call_once(self, structure: Structure, leaves: Any) -> Any:
        """Call the function with one row, as a trial."""
        return call(self.function, structure, leaves, None)

    def evidence(self) -> Iterator[Evidence]:
        """Yield the function."""
        yield self.function.evidence()


class FilteredFlow(StageFlow):
    """The rows that pass; the cursor is [number of the next input row, cursor of the input]."""

    stage: Filter
    decision: Any = None
    """Where the function runs, once that was measured."""

    def __init__(self, stage: Filter, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = flow.num_rows if flow.num_rows in (0, ENDLESS) else None

    def with_errors(self, on_error: str) -> Node:
        """Return this node for `on_error`: rows that the function fails on are skipped, or raised."""
        node = self.inputs[0].with_errors(on_error)
        stage = replace(self.stage, skip=on_error == "skip")
        is_same = node is self.inputs[0] and stage.skip == self.stage.skip
        return self if is_same else stage.build(node)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of each parcel that pass; the function is called ahead, in parallel."""

        def apply(piece: Piece) -> tuple[Parcel, list[BadRow]]:
            good, answers, bad = self.ask(piece, context)
            passing = good[answers]
            block = context.block(self, len(passing))
            block.copy_from(piece.parcel.block, piece.start + passing)
            return Parcel(block.finish(), len(passing), piece.cursor_after(passing)), bad

        return applied(self, apply, cursor, context)

    def ask(self, piece: Piece, context: Context) -> tuple[Index, Array, list[BadRow]]:
        """Return the places of the good rows of a piece, the function's answers for these, and the bad rows."""
        answers = allocate_block(self.stage.answers, piece.size, allocate_plain, aligned=False)
        remote = context.placement.get(id(self))
        if remote is not None:
            parcel = piece.parcel.block
            bad = remote.run_block(parcel, piece.start, piece.rows, answers, context)
        else:
            # A copy, as in a worker process: what the function does to its row must not reach those that pass.
            shown = context.block(self.input, piece.size)
            piece.copy_to(shown)
            elements = shown.finish().leaves(piece.size)
            bad = self.stage.apply(self.inputs[0], elements, piece.rows, self, answers, context)
        good = good_places(piece.size, bad)
        (column,) = answers.finish().columns
        assert isinstance(column, Fixed)
        return good, column.rows[: len(good)], bad

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, its blocks in flight, what the function sees, and the rows that passed."""
        rows = rows_per_block(self, block_nbytes)
        return 3 * (ahead + 1) * self.block_nbytes(rows) + self.input.holds_nbytes(
            block_nbytes, ahead
        )
