"""The order of a windowed shuffle: small random blocks, mixed across a window of many of them.

A random read a row is hopeless from a disk; random reads of 64 KB are as fast as it gets. So the
rows are cut into blocks of that size, the blocks are put into random order, and rows are mixed
across a window of about a thousand blocks. Position p of a window belongs to lane p mod L, and each
lane has blocks of its own, so that ranks which own whole lanes read disjoint parts of the data.

It is a closed form: the row at any position is found without going through those before it.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from penstock.core.arrays import Index
from penstock.core.order import Permutation, lane_orders

# So that 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 or 96 ranks can own whole lanes.
_LANES = (192, 96, 48, 24, 12, 6, 4, 3, 2, 1)
_SPREAD = 100  # Rows over which the mixing is judged: about a batch.


@dataclass(frozen=True, slots=True)
class ShuffleWindow:
    """One window: its blocks, and the row of it that stands at each position."""

    start: int
    blocks: Index
    """The numbers of its blocks, lowest first: the order in which they are read and stored."""
    table: Index
    """For each position, the row to take, counted through the blocks as they are stored."""

    @property
    def num_rows(self) -> int:
        """How many rows, and so positions, it has."""
        return len(self.table)


@dataclass(frozen=True, slots=True)
class WindowOrder:
    """A windowed shuffle of `num_rows` rows in blocks of `block_rows`; `words` are seed and epoch."""

    num_rows: int
    block_rows: int
    window_blocks: int
    """The most blocks that a window may have."""
    words: tuple[int, ...]
    lanes: int = field(init=False)
    columns: int = field(init=False)
    """How many blocks a lane has, over all windows."""
    num_windows: int = field(init=False)

    def __post_init__(self) -> None:
        """Cut the lanes into windows of nearly the same size: a small last one would mix badly."""
        lanes = next(count for count in _LANES if count <= max(1, self.window_blocks))
        num_blocks = -(-self.num_rows // self.block_rows)
        columns = max(1, -(-num_blocks // lanes))
        object.__setattr__(self, "lanes", lanes)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "num_windows", -(-columns // max(1, self.window_blocks // lanes)))

    @property
    def is_whole(self) -> bool:
        """Whether one window holds everything: the order is then that of data in memory."""
        return self.num_windows == 1

    @property
    def window_rows(self) -> int:
        """The most rows that a window has."""
        most = -(-self.columns // self.num_windows)
        return min(self.num_rows, most * self.lanes * self.block_rows)

    def mixing(self) -> float:
        """Return how well rows are mixed, from 0 (file order) to 1 (perfect).

        If all rows of a block are alike, the mean over `_SPREAD` rows of a window varies more than
        it would after a perfect shuffle, since two of these rows are of one block too often. The result
        is the ratio of the two variances. Rows that follow each other are of different lanes, and so of
        different blocks: rows within a batch are mixed better than this figure, batches just as it says.
        """
        if self.is_whole or self.num_rows <= self.block_rows:
            return 1.0
        perfect = (self.block_rows - 1) / (self.num_rows - 1)
        windowed = (self.block_rows - 1) / (self.window_rows - 1)
        return (1 + (_SPREAD - 1) * perfect) / (1 + (_SPREAD - 1) * windowed)

    def window_of(self, position: int) -> int:
        """Return the window that a position falls into."""
        column = position // (self.lanes * self.block_rows)
        small, larger = divmod(self.columns, self.num_windows)
        if column < larger * (small + 1):
            return column // (small + 1)
        return min(self.num_windows - 1, larger + (column - larger * (small + 1)) // max(1, small))

    def start_of(self, window: int) -> int:
        """Return the first position of a window."""
        small, larger = divmod(self.columns, self.num_windows)
        column = window * small + min(window, larger)
        return min(self.num_rows, column * self.lanes * self.block_rows)

    def window(self, number: int) -> ShuffleWindow:
        """Return one window; takes 8 bytes a row of it."""
        return _window(self, number)

    def rows(self, positions: Index) -> Index:
        """Return the row that stands at each position."""
        out = np.empty(len(positions), np.int64)
        small, larger = divmod(self.columns, self.num_windows)
        numbers = np.arange(self.num_windows + 1)
        starts = (numbers * small + np.minimum(numbers, larger)) * (self.lanes * self.block_rows)
        windows = np.searchsorted(starts, positions, side="right") - 1
        for number in np.unique(windows).tolist():
            window = self.window(number)
            slots = np.flatnonzero(windows == number)
            stored = window.table[positions[slots] - window.start]
            blocks, offsets = np.divmod(stored, self.block_rows)
            out[slots] = window.blocks[blocks] * self.block_rows + offsets
        return out


@lru_cache(maxsize=8)
def _window(order: WindowOrder, number: int) -> ShuffleWindow:
    start, stop = order.start_of(number), order.start_of(number + 1)
    size = stop - start
    if order.is_whole:
        blocks = np.arange(-(-order.num_rows // order.block_rows))
        return ShuffleWindow(0, blocks, Permutation(size, order.words).rows(np.arange(size)))
    blocks = _blocks(order, start // order.block_rows, -(-stop // order.block_rows))
    by_number = np.argsort(blocks)
    places = np.empty_like(blocks)
    places[by_number] = np.arange(len(blocks))
    words = (*order.words, 2, number)
    if number == order.num_windows - 1:
        # The last window may end within a lane, or within a block: it is mixed as a whole, without lanes.
        drawn, offsets = np.divmod(Permutation(size, words).rows(np.arange(size)), order.block_rows)
        return ShuffleWindow(start, blocks[by_number], places[drawn] * order.block_rows + offsets)
    table = lane_orders(places, order.block_rows, order.lanes, words)
    return ShuffleWindow(start, blocks[by_number], table.reshape(-1))


def _blocks(order: WindowOrder, first: int, last: int) -> Index:
    """Return the numbers of the blocks at places `first` to `last` of the random order of blocks.

    A last block that is not full stays last, so that every other place has a full block.
    """
    full = order.num_rows // order.block_rows
    places = np.arange(first, last)
    inside = places[places < full]
    return np.concatenate(
        [Permutation(full, (*order.words, 1)).rows(inside), places[places >= full]]
    )
