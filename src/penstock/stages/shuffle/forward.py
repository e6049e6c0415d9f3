"""A shuffle of rows that can only be read forward: one window after the other, each mixed by itself."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from penstock.core.blocks import Block
from penstock.core.order import Permutation
from penstock.core.rows import Context, Cursor, Flow, Node, Parcel, rows_per_block
from penstock.memory import format_nbytes
from penstock.stages.base.stage import Stage, StageFlow


class ShuffledFlow(StageFlow):
    """Windows of the input, each in random order.

    The cursor is [number of the window, rows used of it, cursor of the input where the window starts].
    """

    def __init__(self, stage: Stage, flow: Flow, *, seed: int, window_nbytes: int) -> None:
        super().__init__(stage, flow)
        self.seed = seed
        self.num_shuffles += 1
        self.follows_epoch = True
        self.window_rows = rows_per_block(self, window_nbytes)
        if flow.num_rows is not None:
            self.window_rows = max(1, min(self.window_rows, flow.num_rows))

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield each window in a random order of its own."""
        if context.budget is None:  # A chain being built only looks at one row: any will do.
            yield from self.input.parcels(None, context)
            return
        number, done, inner = (0, 0, None) if cursor is None else cursor
        incoming = _Incoming(self.input.parcels(inner, context), inner)
        while True:
            start = incoming.cursor
            window, size = incoming.take(self.window_rows, self, context)
            if not size:
                return
            words = (self.seed, context.epoch, self.input.num_shuffles, number)
            order = Permutation(size, words)
            step = context.rows_per_block(self)
            for first in range(done, size, step):
                rows = order.rows(np.arange(first, min(first + step, size)))
                block = context.block(self, len(rows))
                block.copy_from(window, rows)
                after = partial(_window_cursor, number, first, size, start, incoming.cursor)
                yield Parcel(block.finish(), len(rows), after)
            del window  # Before the next one is made: there is memory for only one.
            number, done = number + 1, 0

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, the window, and the blocks made of it."""
        own = self.block_nbytes(self.window_rows) + 2 * max(block_nbytes, self.block_nbytes(1))
        return own + self.input.holds_nbytes(block_nbytes, ahead)

    def choice(self) -> str:
        """Return how it shuffles."""
        nbytes = format_nbytes(self.block_nbytes(self.window_rows))
        return (
            f"in windows of {self.window_rows} rows ({nbytes}): the input can only be read forward; "
            "cache() first for an exact shuffle"
        )


class _Incoming:
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
