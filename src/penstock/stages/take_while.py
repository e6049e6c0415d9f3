"""take_while: the rows before the first one for which a function is false."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node
from penstock.stages.base.function_flow import LastParcel, Piece, applied
from penstock.stages.base.functions import BadRow, run_rows
from penstock.stages.filter import Filter, FilteredFlow
from penstock.stages.map import locate


@dataclass(frozen=True, slots=True)
class TakeWhile(Filter):
    """The rows before the first one for which `function` is false."""

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows up to there."""
        return TakenWhileFlow(self, flow)

    def fingerprint(self) -> Any:
        """Return the name of the function."""
        return ["take_while", self.function.name, self.skip]

    def apply(
        self,
        node: Node,
        elements: Iterator[Any],
        rows: Index,
        out: Node,  # Not used: filter and map are called alike.
        into: Block,
        context: Context,
    ) -> list[BadRow]:
        """Put the function's answers into the one column of `into`; it is shown no row after the first False.

        A row that it fails on is never raised here: it may lie behind the end, where other threads look ahead.
        """
        column = into.sinks[0]
        assert isinstance(column, Fixed)
        answers = column.rows
        answers[:] = False
        is_over = False

        def put(place: int, answer: Any, where: Callable[[], str]) -> None:
            nonlocal is_over
            answers[place] = self.checked(answer, where)
            is_over = not answers[place]

        def asked() -> Iterator[tuple[int, Any]]:
            for one in zip(rows.tolist(), elements, strict=True):
                if is_over:
                    return
                yield one

        return run_rows(
            self.function,
            self.function.caller(node.structure),
            asked(),
            put,
            lambda row: locate(node, row, context.epoch),
            executor=context.executor,
            skip=True,
        )


class TakenWhileFlow(FilteredFlow):
    """The rows before the end; the cursor is [number of the next input row, cursor of the input]."""

    stage: TakeWhile

    def __init__(self, stage: TakeWhile, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = 0 if flow.num_rows == 0 else None  # It may end, however long the input is.

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of each parcel until one does not pass; the function is called ahead, in parallel."""

        def apply(piece: Piece) -> tuple[Parcel, list[BadRow]]:
            good, answers, bad = self.ask(piece, context)
            false = np.flatnonzero(~answers)
            end = int(good[false[0]]) if len(false) else piece.size
            bad = [row for row in bad if row.place < end]
            if bad and not self.stage.skip:
                raise bad[0].error
            # Up to the row that ended it, not after it: whoever goes on from here must meet it again.
            kept = Piece(piece.parcel, piece.number, piece.start, piece.start + end)
            passing = good[good < end]
            block = context.block(self, len(passing))
            block.copy_from(piece.parcel.block, piece.start + passing)
            made = LastParcel if end < piece.size else Parcel
            return made(block.finish(), len(passing), kept.cursor_after(passing)), bad

        return applied(self, apply, cursor, context)
