"""Rows read one after the other: how a chain of rows becomes a flow of parcels."""

import math
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any

from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node, Rows, rows_per_block
from penstock.core.state import cursor_row
from penstock.stages.base.direct import Direct, advance
from penstock.stages.base.later import Later

_FIRST = 64  # The first block is this many times smaller than the rest: the consumer is waiting.
_LONG = 0.01  # Seconds. Blocks that take longer to make don't grow: so those of a slow function stay small.


class Segment(Flow):
    """All rows of a node, in blocks; the cursor is the number of the next row."""

    def __init__(self, rows: Rows) -> None:
        self.like(rows)
        self.rows = rows

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Return the blocks, without timing them: `Rows.read` times itself."""
        return self.make_parcels(cursor, context)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield blocks of consecutive rows, read ahead in parallel."""
        most = rows_per_block(self.rows, context.block_nbytes)
        is_varying = self.rows.is_varying
        first = 1 if self.rows.calls_functions else most // _FIRST
        pace = Pace(most, first, context.block_nbytes if is_varying else 0)
        if self.rows.is_in_memory and not self.rows.calls_functions:
            pace.long = (
                math.inf
            )  # What takes long there is the same for any block: a copy from each of many inputs.

        def took(span: tuple[int, int], block: Block, seconds: float) -> None:
            size = span[1] - span[0]
            pace.took(size, seconds, block.nbytes if is_varying else 0)
            if is_varying:
                context.sizes.note(self.rows, block, size, span[0])

        def read(span: tuple[int, int]) -> Parcel:
            started = perf_counter()
            size = span[1] - span[0]
            block = context.block(self.rows, size)
            self.rows.read(slice(*span), block, context)
            block.finish()
            took(span, block, perf_counter() - started)
            return Parcel(block, size, partial(advance, span[0]))

        costs: dict[int, int] = {}

        def nbytes(span: tuple[int, int]) -> int:
            size = span[1] - span[0]
            if size in costs:
                return costs[size]
            cost = self.rows.block_nbytes(size) + self.rows.staging_nbytes(size)
            if not is_varying:
                costs[size] = (
                    cost  # Nearly all blocks have one size: the chain is asked once for it.
                )
            return cost

        spans = pace.spans(cursor_row(self, cursor, self.rows.num_rows), self.rows.num_rows)
        route = self.rows.route(context.epoch)
        if route is not None:
            direct = Direct(self.rows, route, context)
            return context.executor.filled(
                direct.begin, spans, direct.nbytes, direct.end, read, of=self.rows
            )
        if self.rows.defers(slice(0, min(1, self.rows.num_rows))):
            later = Later(self.rows, context, read, took)
            return context.executor.filled(
                later.begin, spans, nbytes, later.end, read, of=self.rows
            )
        return context.executor.ordered(read, spans, nbytes, of=self.rows)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks in flight, and of the one that the consumer has."""
        size = self.rows.bounded(rows_per_block(self.rows, block_nbytes))
        if not size:
            return 0
        block = self.rows.block_nbytes(size)
        working = max(1, ahead) * self.rows.staging_nbytes(size)
        return (ahead + 1) * block + working + self.rows.retained_nbytes(ahead)

    def describe(self) -> str:
        """Return the call that made the rows."""
        return self.rows.describe()

    def fingerprint(self) -> Any:
        """Return what the order of the rows depends on."""
        return self.rows.fingerprint()

    def evidence(self) -> Iterator[Evidence]:
        """Yield what the rows are made from."""
        return self.rows.evidence()


class Pace:
    """How many rows the next block gets: few at first, then as many as are quick to make."""

    def __init__(self, most: int, first: int, nbytes: int = 0) -> None:
        """Begin with `first` rows; `nbytes` is what a block may take, if rows can turn out longer than planned."""
        self.most = most
        self.size = max(1, first)
        self.largest = 0.0
        """The most bytes that a row of a block had, on average, where rows differ in size."""
        self.nbytes = nbytes
        self.long = _LONG
        self.fastest = 0.0
        """The fewest seconds a row took: one block that was slow by accident must not keep the next ones small."""

    def took(self, size: int, seconds: float, nbytes: int = 0) -> None:
        """Note how long `size` rows took, and how many bytes they have; any thread may call it."""
        pace = seconds / size
        self.fastest = min(self.fastest or pace, pace)
        self.largest = max(self.largest, nbytes / size)

    def spans(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the first row of each block, and the row after its last, from `start` to `stop`."""
        while start < stop:
            end = min(stop, start + self.size)
            yield start, end
            start = end
            quick = int(min(self.most, self.long / self.fastest)) if self.fastest else self.most
            self.size = max(1, min(self.most, self.size * 2, max(self.size, quick)))
            if self.nbytes and self.largest:
                self.size = max(1, min(self.size, int(self.nbytes / self.largest)))


def as_flow(node: Node) -> Flow:
    """Return `node` as a flow."""
    if isinstance(node, Flow):
        return node
    assert isinstance(node, Rows)
    return Segment(node)
