"""Running a function on the rows of a flow: a piece of a parcel at a time, with bad rows counted in order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.rows import Context
from penstock.core.state import cursor_parts
from penstock.stages.base.functions import BadRow
from penstock.stages.base.segment import Pace
from penstock.stages.base.stage import StageFlow


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows `start` to `stop` of a parcel: about 10 ms of work for the function, and at least one row."""

    parcel: Parcel
    number: int
    """The number of the parcel's first row."""
    start: int
    stop: int

    @property
    def size(self) -> int:
        """How many rows it has."""
        return self.stop - self.start

    @property
    def rows(self) -> Index:
        """The numbers of its rows."""
        return np.arange(self.number + self.start, self.number + self.stop)

    def elements(self) -> Iterator[Any]:
        """Return the leaves of its rows, one row after the other."""
        return islice(self.parcel.block.leaves(self.stop), self.start, None)

    def copy_to(self, block: Block) -> None:
        """Copy its rows."""
        block.copy_from(self.parcel.block, np.arange(self.start, self.stop))

    def cursor_after(self, places: Index | None) -> CursorAfter:
        """Return the function that gives the cursor after j remaining rows: those at `places`, or all (None)."""
        after = self.parcel.cursor_after
        return partial(_after, self.number, self.start, self.stop, places, after)


def _after(
    number: int, start: int, stop: int, places: Index | None, cursor_after: CursorAfter, offset: int
) -> Cursor:
    """Return the number of the next input row after `offset` remaining rows, and the input's cursor there."""
    used = stop
    if places is None:
        used = start + offset
    elif offset < len(places):
        used = start + (int(places[offset - 1]) + 1 if offset else 0)
    return [number + used, cursor_after(used)]


class LastParcel(Parcel):
    """A parcel after which its flow ends, though its input may have more rows."""

    __slots__ = ()


def good_places(size: int, bad: Sequence[BadRow]) -> Index:
    """Return the places, in a block of `size` rows, of those that are not bad."""
    return np.delete(np.arange(size), [row.place for row in bad]) if bad else np.arange(size)


def applied(
    flow: StageFlow,
    apply: Callable[[Piece], tuple[Parcel, list[BadRow]]],
    cursor: Cursor,
    context: Context,
) -> Iterator[Parcel]:
    """Yield parcels of what a function makes of the input's rows; they are made ahead, in parallel.

    Bad rows are counted here, where parcels come out in order, and not on the threads that find them:
    which bad row is one more than `max_errors` must not depend on which thread is faster.
    """
    passed, inner = cursor_parts(flow, cursor, (0, None))
    pace = Pace(np.iinfo(np.int64).max, 1, context.block_nbytes if flow.is_varying else 0)

    def pieces() -> Iterator[Piece]:
        number = passed
        for parcel in flow.input.parcels(inner, context):
            for start, stop in pace.spans(0, parcel.size):
                yield Piece(parcel, number, start, stop)
            number += parcel.size

    def timed(piece: Piece) -> tuple[Parcel, list[BadRow]]:
        mark = context.clock.enter()
        started = perf_counter()
        made, bad = apply(piece)
        nbytes = made.block.nbytes if flow.is_varying else 0
        pace.took(piece.size, perf_counter() - started, nbytes)
        context.clock.leave(mark, flow, 0)  # 0: rows are counted when they are handed on.
        return made, bad

    def nbytes(piece: Piece) -> int:
        # The input counts, too: a piece keeps its parcel alive. Pieces follow each other, so those under way
        # keep their own rows alive, and at most one more parcel.
        return flow.block_nbytes(piece.size) + flow.input.block_nbytes(piece.size)

    found = context.executor.ordered(timed, pieces(), nbytes, of=flow)
    ready: list[Parcel] = []
    for parcel, bad in found:
        for row in bad:
            context.skipped.add(row.error)
        if parcel.size:
            ready.append(parcel)
        is_last = isinstance(parcel, LastParcel)
        del parcel  # Else this name keeps it alive, as if the consumer held it.
        while ready:
            yield ready.pop()
        if is_last:
            return
