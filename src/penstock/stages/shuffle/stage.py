"""shuffle: the rows in a seeded random order, new each epoch."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from penstock.core.columns import Block
from penstock.core.lazy import lazy
from penstock.core.order import Permutation
from penstock.core.rows import (
    Context,
    Cursor,
    Flow,
    Node,
    Parcel,
    Rows,
    RowSet,
    as_index,
    rows_per_block,
)
from penstock.memory import format_nbytes
from penstock.stages.base.segment import Segment
from penstock.stages.base.stage import Stage, StageFlow, StageRows
from penstock.stages.cache.table import KeptFlow
from penstock.stages.shuffle.windowed import WindowedRows

if TYPE_CHECKING:
    from penstock.stages.shuffle import scatter
else:
    scatter = lazy("penstock.stages.shuffle.scatter")  # It brings much of io along.

WINDOW_NBYTES = 64 << 20
_SCATTER_NBYTES = 48 << 20  # What a thread takes that scatters rows to scratch.
LARGE_ROW_NBYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Shuffle(Stage):
    """A random order given by `seed`; `window` bounds how far rows that only flow are mixed."""

    seed: int
    exact: bool = False
    window: int | None = None

    def build(self, node: Node) -> Node:
        """Return the rows in random order."""
        if node.is_endless:
            raise ValueError(
                "shuffle can't follow repeat() without a count: there is no last row.\n"
                "  wrong: ds.repeat().shuffle()\n  right: ds.shuffle().repeat()"
            )
        if isinstance(node, Rows):
            window = WINDOW_NBYTES if self.window is None else self.window
            # Large rows are worth a random read each, unless others must be decoded with them.
            is_small = node.row_nbytes < LARGE_ROW_NBYTES or (node.chunk_rows or 1) > 1
            if node.chunk_rows is not None and is_small:
                if self.exact and node.num_rows * node.row_nbytes > window:
                    return scatter.ScatteredRows(self, node, seed=self.seed)
                return WindowedRows(self, node, seed=self.seed, window_nbytes=window)
            return ShuffledRows(self, node)
        assert isinstance(node, Flow)
        if isinstance(node, KeptFlow):
            return ShuffledCache(self, node)
        if self.exact:
            raise ValueError(
                f"shuffle(exact=True) needs rows that can be had by number, and {node.describe()} "
                "can only be read forward. Write .cache().shuffle() to keep its rows first."
            )
        return ShuffledFlow(self, node)

    def describe(self) -> str:
        """Return the call."""
        words = [f"seed={self.seed}"]
        words += ["exact=True"] if self.exact else []
        words += [f"window={self.window}"] if self.window is not None else []
        return f"shuffle({', '.join(words)})"


class ShuffledRows(StageRows):
    """Row i is row `permutation(i)` of the input."""

    stage: Shuffle

    def __init__(self, stage: Shuffle, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_shuffles += 1
        self.follows_epoch = True

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the permuted row numbers."""
        words = (self.stage.seed, epoch, self.input.num_shuffles)
        return Permutation(self.num_rows, words).rows(as_index(rows))

    def choice(self) -> str:
        """Return how it shuffles."""
        what = "whole batches" if self.is_batched else "rows"
        return f"exact, by index: a seeded bijection over {self.num_rows} {what}; mixing 1.00"


class ShuffledCache(StageFlow):
    """The rows of a cache in random order; how many there are is known once it is full."""

    stage: Shuffle
    input: KeptFlow

    def __init__(self, stage: Shuffle, flow: KeptFlow) -> None:
        super().__init__(stage, flow)
        self.num_shuffles += 1
        self.follows_epoch = True

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Fill the cache, then yield its rows by number."""
        if context.budget is None:  # A chain being built only looks at one row: any will do.
            return self.input.parcels(None, context)
        rows = self.stage.build(self.input.table(context))
        assert isinstance(rows, Rows)
        return Segment(rows).parcels(cursor, context)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the cache takes, and the windows of one on disk."""
        own = self.input.holds_nbytes(block_nbytes, ahead)
        if self.input.chunk_rows is None:
            return own
        # How many rows there are is not known yet: as many as it takes for a full window.
        window = WINDOW_NBYTES if self.stage.window is None else self.stage.window
        windows = (1 if ahead < 2 else 2) * self.block_nbytes(rows_per_block(self, window))
        return own + 2 * windows + (_SCATTER_NBYTES * max(1, ahead) if self.stage.exact else 0)

    def choice(self) -> str:
        """Return how it shuffles."""
        if self.input.chunk_rows is not None:
            return "in windows or by index, as its size asks for, once the cache is full"
        return "exact, by index, once the cache is full; mixing 1.00"


class ShuffledFlow(StageFlow):
    """Windows of the input, each in random order; the cursor is that of the window, and a count."""

    stage: Shuffle

    def __init__(self, stage: Shuffle, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_shuffles += 1
        self.follows_epoch = True
        nbytes = WINDOW_NBYTES if stage.window is None else stage.window
        self.window_rows = rows_per_block(self, nbytes)
        if flow.num_rows is not None:
            self.window_rows = max(1, min(self.window_rows, flow.num_rows))

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield each window in a random order of its own."""
        if context.budget is None:  # A chain being built only looks at one row: any will do.
            yield from self.input.parcels(None, context)
            return
        number, done, inner = (0, 0, None) if cursor is None else cursor
        incoming = _Rows(self.input.parcels(inner, context), inner)
        while True:
            start = incoming.cursor
            window, size = incoming.take(self.window_rows, self, context)
            if not size:
                return
            words = (self.stage.seed, context.epoch, self.input.num_shuffles, number)
            order = Permutation(size, words)
            step = context.rows_per_block(self)
            for first in range(done, size, step):
                rows = order.rows(np.arange(first, min(first + step, size)))
                block = context.block(self, len(rows))
                block.copy_from(window, rows)
                after = partial(_window_cursor, number, first, size, start, incoming.cursor)
                yield Parcel(block.finish(), len(rows), after)
            del window  # Before the next one is made: there is memory for one.
            number, done = number + 1, 0

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input keeps, the window, and the blocks made of it."""
        own = self.block_nbytes(self.window_rows) + 2 * max(block_nbytes, self.block_nbytes(1))
        return own + self.input.holds_nbytes(block_nbytes, ahead)

    def choice(self) -> str:
        """Return how it shuffles."""
        nbytes = format_nbytes(self.block_nbytes(self.window_rows))
        return (
            f"in windows of {self.window_rows} rows ({nbytes}): the input can only be read forward; "
            "cache() first for an exact shuffle"
        )


class _Rows:
    """Takes any number of rows from parcels, and knows the cursor after them."""

    def __init__(self, parcels: Iterator[Parcel], cursor: Cursor) -> None:
        self.parcels = parcels
        self.parcel: Parcel | None = None
        self.used = 0
        self.cursor = cursor

    def take(self, num_rows: int, node: Node, context: Context) -> tuple[Block, int]:
        """Return a block with up to `num_rows` rows, and how many there are."""
        window = context.block(node, num_rows)
        size = 0
        while size < num_rows:
            if self.parcel is None or self.used == self.parcel.size:
                self.parcel = next(self.parcels, None)
                self.used = 0
                if self.parcel is None:
                    break
            rows = np.arange(self.used, min(self.parcel.size, self.used + num_rows - size))
            window.at(np.arange(size, size + len(rows))).copy_from(self.parcel.block, rows)
            size += len(rows)
            self.used += len(rows)
            self.cursor = self.parcel.cursor_after(self.used)
        return window.finish(), size


def _window_cursor(
    number: int, first: int, size: int, start: Cursor, end: Cursor, offset: int
) -> Cursor:
    done = first + offset
    return [number, done, start] if done < size else [number + 1, 0, end]
