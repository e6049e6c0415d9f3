"""The order of a windowed shuffle: small random blocks, mixed across a window of many of them.

A random read a row is hopeless from a disk; random reads of 64 KB are as fast as it gets. So the
rows are cut into blocks of that size, the blocks are put into random order, and rows are mixed
across a window of about a thousand blocks. Position p of a window belongs to lane p mod L, and each
lane has blocks of its own, so that ranks which own whole lanes read disjoint parts of the data.

The blocks of all windows are dealt to the lanes in columns, one block a lane. Windows are of nearly the same size:
where so many lanes do not allow that, there are fewer. The last window has what is left over: a column that is not
full, and a block that is not full. Its lanes are as even as can be, and so two neighbours may share a block.

It is a closed form: the row at any position is found without going through those before it.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from penstock.core.arrays import Index
from penstock.core.order import Permutation, hashes, lane_orders, uneven_lane_orders
from penstock.core.rows import RowSet, as_index, shifted

# So that 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64 or 96 ranks can own whole lanes.
MOST_LANES = 192
_LANES = (MOST_LANES, 96, 48, 24, 12, 6, 4, 3, 2, 1)
_EVEN = 0.75  # The smallest window has at least this share of the rows of the largest, where there are blocks enough.
_SPREAD = 100  # Rows over which the mixing is judged: about a batch.


class ShuffleWindow:
    """One window: its blocks, and the row of it that stands at each position.

    Which row that is is found out when it is first asked for, by one thread: others read the blocks meanwhile.
    """

    def __init__(
        self,
        start: int,
        blocks: Index,
        make_table: Callable[[], Index],
        *,
        num_positions: int,
        num_rows: int,
        step: int = 1,
    ) -> None:
        """Describe a window, of which `make_table` returns the row for each position."""
        self.start = start
        """The first position that it has."""
        self.blocks = blocks
        """The numbers of its blocks, lowest first: the order in which they are read and stored."""
        self.num_positions = num_positions
        self.num_rows = num_rows
        """How many rows it stores: as many as it has positions, or a few more if they are one rank's."""
        self.step = step
        """How far apart its positions are: the other ones are those of other ranks."""
        self._make_table: Callable[[], Index] | None = make_table
        self._table: Index | None = None
        self._lock = threading.Lock()

    @property
    def table(self) -> Index:
        """For each position, the row to take, counted through the blocks as they are stored."""
        if self._table is None:
            with self._lock:
                if self._make_table is not None:
                    self._table = self._make_table()
                    self._make_table = None
        assert self._table is not None
        return self._table

    @property
    def stop(self) -> int:
        """The position after its last one."""
        return self.start + self.num_positions * self.step

    @property
    def is_whole(self) -> bool:
        """Whether it has just the rows of its positions, none of which another rank has."""
        return self.step == 1 and self.num_positions == self.num_rows

    def stored(self, positions: RowSet) -> Index:
        """Return the rows that stand at some positions, counted through the blocks as they are stored."""
        inside = shifted(positions, -self.start)
        found: Index = self.table[inside if self.step == 1 else as_index(inside) // self.step]
        return found


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
        """Take the most lanes that make windows of nearly the same size: a small window would mix badly."""
        most = max(1, self.window_blocks)
        num_blocks = -(-self.num_rows // self.block_rows)
        for lanes in _LANES:
            if 2 * lanes > max(2, most):
                continue  # Two columns or more make a window: the last column may be nearly empty.
            columns = max(1, -(-num_blocks // lanes))
            num_windows = 1 if num_blocks <= most else -(-columns // (most // lanes))
            object.__setattr__(self, "lanes", lanes)
            object.__setattr__(self, "columns", columns)
            object.__setattr__(self, "num_windows", num_windows)
            if self._smallest >= _EVEN * self.window_rows:
                break

    @property
    def is_whole(self) -> bool:
        """Whether one window holds everything: the order is then that of data in memory."""
        return self.num_windows == 1

    @property
    def window_rows(self) -> int:
        """The most rows that a window has."""
        most = -(-self.columns // self.num_windows)
        return min(self.num_rows, most * self.lanes * self.block_rows)

    @property
    def _smallest(self) -> int:
        """The fewest rows that a window has: those of the first window, or of the last."""
        return min(self.start_of(1), self.num_rows - self.start_of(self.num_windows - 1))

    def mixing(self) -> float:
        """Return how well rows are mixed, from 0 (file order) to 1 (perfect).

        If all rows of a block are alike, the mean over `_SPREAD` rows of a window varies more than
        it would after a perfect shuffle, since two of these rows are of one block too often. The result
        is the ratio of the two variances. Rows that follow each other are of different lanes, and so of
        different blocks: rows within a batch are mixed better than this figure, batches just as it says. Where
        neighbouring blocks are alike, too, as in sorted data, all is mixed better than that.
        """
        if self.is_whole or self.num_rows <= self.block_rows:
            return 1.0
        # How likely two rows are of one block: any two, and two of a window.
        any_two = (self.block_rows - 1) / (self.num_rows - 1)
        of_window = min(1.0, (self.block_rows - 1) / max(1, self.num_rows / self.num_windows - 1))
        # Within a window means vary as after a shuffle of it, and windows differ from each other, too.
        return (1 - any_two) / ((1 - of_window) + _SPREAD * (of_window - any_two))

    def window_of(self, position: int) -> int:
        """Return the window that a position falls into."""
        return int(self._windows_of(np.array([position]))[0])

    def _windows_of(self, positions: Index) -> Index:
        columns = positions // (self.lanes * self.block_rows)
        small, larger = divmod(self.columns, self.num_windows)
        first = self.num_windows - larger  # The first of the windows with a column more.
        windows = np.where(
            columns < first * small,
            columns // max(1, small),
            first + (columns - first * small) // (small + 1),
        )
        return np.minimum(self.num_windows - 1, windows)

    def start_of(self, window: int) -> int:
        """Return the first position of a window."""
        return min(self.num_rows, int(self._starts(np.array([window]))[0]))

    def _starts(self, windows: Index) -> Index:
        small, larger = divmod(self.columns, self.num_windows)
        columns = windows * small + np.maximum(0, windows - (self.num_windows - larger))
        return columns * (self.lanes * self.block_rows)

    def window(self, number: int) -> ShuffleWindow:
        """Return one window; takes 8 bytes a row of it."""
        return _window(self, number)

    def rows(self, positions: Index) -> Index:
        """Return the row that stands at each position."""
        out = np.empty(len(positions), np.int64)
        windows = self._windows_of(positions)
        for number in np.unique(windows).tolist():
            window = self.window(number)
            slots = np.flatnonzero(windows == number)
            stored = window.table[positions[slots] - window.start]
            blocks, offsets = np.divmod(stored, self.block_rows)
            out[slots] = window.blocks[blocks] * self.block_rows + offsets
        return out


@dataclass(frozen=True, slots=True)
class RankOrder:
    """The windows of an order with only those positions p of which `p % modulus == residue`, and their blocks.

    `modulus` divides the lanes, so that such positions have blocks of their own: 1/modulus of them. Only in the last
    window do they share a few with others. What is left of a window can be small, so several are loaded as one.
    """

    order: WindowOrder
    residue: int
    modulus: int
    together: int
    """How many windows are loaded as one."""

    @property
    def num_windows(self) -> int:
        """How many windows there are, those that are loaded as one counted once."""
        return -(-self.order.num_windows // self.together)

    def window_of(self, position: int) -> int:
        """Return the window that a position falls into."""
        return self.order.window_of(position) // self.together

    @property
    def most_rows(self) -> int:
        """The most rows that a window stores."""
        order = self.order
        rows = order.lanes // self.modulus * order.block_rows
        columns = -(-order.window_rows // (order.lanes * order.block_rows))
        return min(order.num_rows, self.together * min(order.window_rows, (columns + 1) * rows))

    def start_of(self, window: int) -> int:
        """Return the first position of a window, of this rank or another."""
        return self.order.start_of(min(window * self.together, self.order.num_windows))

    def window(self, number: int) -> ShuffleWindow:
        """Return one window, with the blocks that this rank's positions need."""
        size = self.order.block_rows
        first = number * self.together
        numbers = range(first, min(first + self.together, self.order.num_windows))
        parts = [_lanes_of(self.order, one, self.residue, self.modulus) for one in numbers]
        blocks = np.concatenate([part[0] for part in parts])
        # Blocks of several windows are stored by their numbers, too: so they are read in fewer runs.
        by_number, places = _by_number(blocks)
        blocks = blocks[by_number]
        num_rows = len(blocks) * size
        if len(blocks):  # The very last block of all may be short.
            num_rows -= max(0, (int(blocks[-1]) + 1) * size - self.order.num_rows)

        def make_table() -> Index:
            tables, before = [], 0
            for part, make in parts:
                stored, offsets = np.divmod(make(), size)
                tables.append(places[stored + before] * size + offsets)
                before += len(part)
            return np.concatenate(tables)

        start = self.start_of(number) + self.residue
        return ShuffleWindow(
            start,
            blocks,
            make_table,
            num_positions=len(range(start, self.start_of(number + 1), self.modulus)),
            num_rows=num_rows,
            step=self.modulus,
        )


@lru_cache(maxsize=8)
def _window(order: WindowOrder, number: int) -> ShuffleWindow:
    blocks, make_table = _lanes_of(order, number, 0, 1)
    start, stop = order.start_of(number), order.start_of(number + 1)
    size = stop - start
    return ShuffleWindow(start, blocks, make_table, num_positions=size, num_rows=size)


def _lanes_of(
    order: WindowOrder, number: int, residue: int, modulus: int
) -> tuple[Index, Callable[[], Index]]:
    """Return the blocks that positions p of a window with `p % modulus == residue` need, lowest first, and their table.

    The table has, for each of these positions, the row to take, counted through the blocks. It is made when it is
    called. `modulus` divides the lanes.
    """
    size = order.start_of(number + 1) - order.start_of(number)
    words = (*order.words, 2, number)
    if order.is_whole:
        blocks = np.arange(-(-order.num_rows // order.block_rows))
        whole = partial(_whole_table, size, order.words)
        return _used(blocks, whole, order, residue, modulus)
    blocks = _blocks(order, number)
    if size % (order.lanes * order.block_rows):
        by_number, places = _by_number(blocks)
        uneven = partial(uneven_lane_orders, size, places, order.block_rows, order.lanes, words)
        return _used(blocks[by_number], uneven, order, residue, modulus)
    mine = blocks.reshape(order.lanes, -1)[residue::modulus].reshape(-1)
    by_number, places = _by_number(mine)

    def make_table() -> Index:
        table = lane_orders(
            places, order.block_rows, order.lanes, words, first=residue, step=modulus
        )
        return table.reshape(-1)

    return mine[by_number], make_table


def _whole_table(size: int, words: tuple[int, ...]) -> Index:
    return Permutation(size, words).rows(np.arange(size))


def _by_number(blocks: Index) -> tuple[Index, Index]:
    """Return where the lowest block stands, the next, and so on; and for each block, how many are lower."""
    by_number = np.argsort(blocks)
    places = np.empty_like(blocks)
    places[by_number] = np.arange(len(blocks))
    return by_number, places


def _used(
    blocks: Index, make_table: Callable[[], Index], order: WindowOrder, residue: int, modulus: int
) -> tuple[Index, Callable[[], Index]]:
    """Return the blocks that some positions of a table need, and what makes the table of these positions."""
    if modulus == 1:
        return blocks, make_table
    owners, offsets = np.divmod(make_table()[residue::modulus], order.block_rows)
    used, places = np.unique(owners, return_inverse=True)
    table: Index = places * order.block_rows + offsets
    return blocks[used], lambda: table


def _blocks(order: WindowOrder, window: int) -> Index:
    """Return the numbers of the blocks of a window, in random order.

    The full blocks are cut into as many sections as there are lanes, and each column has one block of each section:
    so every window has its share of all parts of the data. A section begins at a random block for its first column,
    and goes round. Sections may have a block more than there are full columns: that goes to the last column, which
    is not full. A last block that is not full stays last, so that every other place has a full block.
    """
    num_full = order.num_rows // order.block_rows
    full_columns = num_full // order.lanes
    step = order.lanes * order.block_rows
    first, last = order.start_of(window) // step, -(-order.start_of(window + 1) // step)
    edges = np.arange(order.lanes + 1) * num_full // order.lanes
    sizes = np.diff(edges)
    turns = hashes((*order.words, 3), order.lanes) % np.maximum(1, sizes).astype(np.uint64)
    columns = np.arange(first, min(last, full_columns))
    drawn = Permutation(full_columns, (*order.words, 1)).rows(columns)
    found = [edges[:-1] + (column + turns.astype(np.int64)) % sizes for column in drawn.tolist()]
    if last > full_columns:
        longer = np.flatnonzero(sizes > full_columns)
        found.append(
            edges[longer] + (full_columns + turns[longer].astype(np.int64)) % sizes[longer]
        )
    blocks = np.concatenate(found)
    mixed = Permutation(len(blocks), (*order.words, 4, window)).rows(np.arange(len(blocks)))
    is_last = window == order.num_windows - 1
    return np.concatenate(
        [
            blocks[mixed],
            np.arange(num_full, num_full + is_last * bool(order.num_rows % order.block_rows)),
        ]
    )
