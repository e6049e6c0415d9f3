"""filter: only the rows that a function says yes to."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.errors import StreamClosedError
from penstock.rows import (
    ENDLESS,
    Context,
    Cursor,
    CursorAfter,
    Flow,
    Index,
    Node,
    Parcel,
    rows_per_block,
)
from penstock.stages.functions import UserFunction
from penstock.stages.map import locate
from penstock.stages.segment import as_flow
from penstock.stages.stage import Stage, StageFlow


@dataclass(frozen=True, slots=True)
class Filter(Stage):
    """The rows for which `function` is true."""

    function: UserFunction

    def build(self, node: Node) -> Node:
        """Return a flow: how many rows pass is only known at the end."""
        return FilteredFlow(self, as_flow(node))

    def describe(self) -> str:
        """Return the call."""
        return self.function.describe()

    def fingerprint(self) -> Any:
        """Return the name of the function."""
        return [self.describe()]


class FilteredFlow(StageFlow):
    """The rows that pass; the cursor is the number of the next input row, and that of the input."""

    stage: Filter

    def __init__(self, stage: Filter, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = ENDLESS if flow.is_endless else None

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of each parcel that pass, tried ahead in parallel."""
        passed, inner = (0, None) if cursor is None else cursor

        def numbered() -> Iterator[tuple[int, Parcel]]:
            number = passed
            for parcel in self.input.parcels(inner, context):
                yield number, parcel
                number += parcel.size

        def apply(item: tuple[int, Parcel]) -> Parcel:
            first, parcel = item
            mark = context.clock.enter()
            kept = self._kept(first, parcel, context)
            block = context.block(self, len(kept))
            block.copy_from(parcel.block, kept)
            context.clock.leave(mark, self, len(kept))
            after = partial(_after, first, kept, parcel.size, parcel.cursor_after)
            return Parcel(block.finish(), len(kept), after)

        found = context.executor.ordered(
            apply, numbered(), lambda item: self.block_nbytes(item[1].size)
        )
        return (parcel for parcel in found if parcel.size)

    def _kept(self, first: int, parcel: Parcel, context: Context) -> Index:
        caller = self.stage.function.caller(self.structure)
        keep = np.zeros(parcel.size, bool)
        for row, leaves in enumerate(parcel.block.elements(parcel.size, None)):
            if context.executor.is_closing:
                raise StreamClosedError("the stream was closed.")
            try:
                answer = caller(leaves)
            except Exception as error:
                where = locate(self.inputs[0], first + row, context.epoch)
                raise self.stage.function.failure(where, error) from error
            if not isinstance(answer, bool | np.bool_):
                answer = self._truth(answer, first + row, context.epoch)
            keep[row] = answer
        return np.flatnonzero(keep)

    def _truth(self, answer: Any, row: int, epoch: int) -> bool:
        array = np.asarray(answer)
        if array.shape != () or array.dtype.kind not in "biu":
            text = f"must return one True or False, got {type(answer).__name__}: {answer!r:.60}."
            raise self.stage.function.mismatch(locate(self.inputs[0], row, epoch), text)
        return bool(array)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input keeps, its blocks in flight, and what passed."""
        rows = rows_per_block(self, block_nbytes)
        return 2 * (ahead + 1) * self.block_nbytes(rows) + self.input.holds_nbytes(
            block_nbytes, ahead
        )


def _after(first: int, kept: Index, size: int, cursor_after: CursorAfter, offset: int) -> Cursor:
    if offset == len(kept):
        return [first + size, cursor_after(size)]
    used = int(kept[offset - 1]) + 1 if offset else 0
    return [first + used, cursor_after(used)]
