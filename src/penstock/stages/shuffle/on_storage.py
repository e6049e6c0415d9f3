"""A shuffle of rows on storage: windows of random blocks, loaded a little ahead of being used."""

import copy
import itertools
import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from penstock.core.blocks import Block
from penstock.core.grains import widest
from penstock.core.order import WINDOWS_VERSION
from penstock.core.residues import Residue
from penstock.core.rows import Context, Rows, RowSet, as_index, bounds, count
from penstock.memory import format_nbytes
from penstock.sources.reading.read_blocks import block_rows
from penstock.stages.base.stage import Stage
from penstock.stages.shuffle.loading import LoadingRows, Pass, Windows
from penstock.stages.shuffle.window_order import RankOrder, ShuffleWindow, WindowOrder

_PIECE_NBYTES = 1 << 22  # What one thread loads at a time.
_POOR_MIXING = 0.5  # Below this, the first stream warns.
_GOOD_BLOCKS = 256  # So many blocks in a window give a mixing of 0.7 or more.
_PAGE_NBYTES = 1 << 12
_RANK_NBYTES = 12 << 20  # Windows of one rank have at least so much, if windows are as large.
_TABLE_NBYTES = 16  # Bytes for each row in the tables of a window.


class WindowedRows(LoadingRows):
    """Rows in the order of a `WindowOrder`, read a window at a time."""

    def __init__(
        self, stage: Stage, node: Rows, *, seed: int, window_nbytes: int, is_exact: bool = False
    ) -> None:
        super().__init__(stage, node)
        self.seed = seed
        self.is_exact = is_exact
        """Whether all rows are mixed in one window, which they must fit into."""
        self.num_shuffles += 1
        self.follows_epoch = True
        self.grains = ()
        self.block_rows = block_rows(node)
        self.set_window(window_nbytes)

    def set_window(self, nbytes: int) -> None:
        """Set the bytes of a window, which has at least one block."""
        self.window_nbytes = nbytes
        self.window_blocks = max(1, nbytes // max(1, self.block_rows * self.row_nbytes))
        # Whole blocks may be a little more than the window, or much more where chunks are large: rows they have not.
        all_blocks = -(-self.num_rows // self.block_rows)
        self.is_stretched = self.is_exact and self.window_blocks < all_blocks
        if self.is_stretched:
            self.window_blocks = all_blocks

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows, of which only the blocks are loaded that have the wanted ones."""
        order = self.order(0)
        # Positions of one rank have blocks of their own as far as ranks and lanes go together.
        together = 1 if order.is_whole else math.gcd(wanted.modulus, order.lanes)
        if together == 1:
            return self
        made = copy.copy(self)
        made.wanted = wanted.coarser(together)
        return made

    def layout(self, epoch: int) -> WindowOrder | RankOrder:
        """Return the windows of one epoch, as they are loaded."""
        order = self.order(epoch)
        if self.modulus == 1:
            return order
        # A rank has so little of one window that a block of its rows would reach over several.
        least = min(_RANK_NBYTES, self.window_nbytes)
        share = max(1, order.window_rows * self.row_nbytes // self.modulus)
        together = max(1, min(self.modulus, order.num_windows, -(-least // share)))
        return RankOrder(order, self.wanted.of(epoch), self.modulus, together)

    def order(self, epoch: int) -> WindowOrder:
        """Return the order of one epoch."""
        words = (self.seed, epoch, self.input.num_shuffles)
        return WindowOrder(self.num_rows, self.block_rows, self.window_blocks, words)

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the numbers that rows have in the input."""
        return self.order(epoch).rows(as_index(rows))

    def fill_mine(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows from their windows; rows scattered over more than two windows are read from the input."""
        layout = self.layout(context.epoch)
        lowest, highest = bounds(rows)
        first, last = layout.window_of(lowest), layout.window_of(highest)
        if last - first > 1 or context.budget is None:
            self.input.read(self.input_rows(rows, context.epoch), out, context)
            return
        windows = context.resources.get(
            ("windows", id(self)), lambda: Windows(self, self.piece_rows, context)
        )
        mine = Pass(layout, context)
        windows.copy_all(mine, rows, range(first, last + 1), out)
        size = layout.start_of(last + 1) - layout.start_of(last)
        share = count(rows) * self.modulus / max(1, size)
        windows.load_ahead(mine, last + 1, share)

    def load(
        self, window: ShuffleWindow, rows: slice, columns: slice, block: Block, context: Context
    ) -> None:
        """Read some blocks of a window, or some columns of them."""
        first, last = rows.start // self.block_rows, -(-rows.stop // self.block_rows)
        blocks = window.blocks[first:last]
        cuts = (np.flatnonzero(np.diff(blocks) != 1) + 1).tolist()
        runs = []
        for begin, end in itertools.pairwise([0, *cuts, len(blocks)]):
            start, stop = (
                int(blocks[begin]) * self.block_rows,
                int(blocks[end - 1] + 1) * self.block_rows,
            )
            runs.append((start, min(stop, self.num_rows) - start))
        if columns.stop - columns.start == len(self.fields):
            self.input.read_runs(runs, block, context)
        else:
            self.input.read_columns(columns, runs, block, context)

    @property
    def loads_apart(self) -> bool:
        """Whether columns of a window can be loaded by several threads."""
        return self.input.reads_apart

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of the window in use, and of the next one, or half of it, if there is room to look ahead."""
        order = self.order(0)
        windows = 1 if ahead < 2 or order.is_whole else 2
        stored = self._stored_rows()
        own = self.windows_nbytes(stored, self.piece_rows, 1 if windows == 1 else ahead)
        own += windows * _TABLE_NBYTES * max(stored, order.window_rows)
        beside = 0
        if self.is_varying:
            # The rows of a piece come as they lie in files, are joined, and put in order: so many threads do that.
            piece = self.block_nbytes(min(self.piece_rows, stored))
            beside = 2 * max(1, ahead) * piece
            pieces = -(-stored // self.piece_rows)
            own += windows * 2 * _PAGE_NBYTES * len(self.fields) * pieces
        if (
            self.orders_columns
        ):  # Each thread loads a few columns beside the window, and puts them in order from there.
            rows = max(sum(field.nbytes for field in self.fields[one]) for one in self.shares(1))
            beside = max(1, ahead) * (stored * rows + _PAGE_NBYTES * len(self.fields))
        return own + beside + self.input.retained_nbytes(ahead)

    def _stored_rows(self) -> int:
        """Return the most rows of a window in memory."""
        layout = self.layout(0)
        return layout.most_rows if isinstance(layout, RankOrder) else layout.window_rows

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that loading a piece of a window takes."""
        piece_rows = self._stored_rows() if self.orders_columns else self.piece_rows
        return self.input.staging_nbytes(max(num_rows, min(piece_rows, max(1, self.num_rows))))

    @property
    def piece_rows(self) -> int:
        """Rows that one thread loads at a time: whole blocks."""
        # By the wider rows: those that are read, or what the stages before this one make of them.
        width = max(self.row_nbytes, sum(grain.nbytes for grain in self.input.grains))
        blocks = max(1, _PIECE_NBYTES // max(1, self.block_rows * width))
        return blocks * self.block_rows

    def order_key(self) -> tuple[Hashable, ...]:
        """Return the seed, the number of rows and, with several windows, how they are cut."""
        order = self.order(0)
        key = (self.seed, self.input.num_shuffles), self.num_rows
        return key if order.is_whole else (*key, order.block_rows, order.lanes, order.num_windows)

    def fingerprint(self) -> Any:
        """Return the stage's, and the version of the way that rows are cut into windows."""
        stretched = ["whole"] if self.is_stretched else []
        return [*self.stage.fingerprint(), WINDOWS_VERSION, *stretched]

    def cautions(self) -> tuple[str, ...]:
        """Return that rows are hardly mixed, where large chunks leave few blocks for a window."""
        mixing = self.order(0).mixing()
        if mixing >= _POOR_MIXING:
            return ()
        block = f"{self.block_rows} rows ({format_nbytes(self.block_rows * self.row_nbytes)})"
        cures = [f"  a larger window: .shuffle(window={self._better_window()!r})"]
        if widest(self.input.grains).rows > 1:
            cures.insert(0, "  stored anew, row by row: .cache('folder').shuffle()")
        if all(field.storage_shape is not None for field in self.fields):
            cures.insert(0, "  exact, by way of scratch files: .shuffle(exact=True)")
        text = (
            f"{self.describe()} mixes rows poorly: mixing {mixing:.2f}, where 1 is perfect. Rows are read in "
            f"blocks of {block}, and a window of {format_nbytes(self.window_nbytes)} holds few of these: "
            "batches of sorted data would have few labels each."
        )
        return ("\n".join([text, *cures]),)

    def _better_window(self) -> str:
        """Return a window that holds enough blocks, as a user would write it."""
        wanted = _GOOD_BLOCKS * self.block_rows * self.row_nbytes
        megabytes = -(-wanted // (1 << 20))
        return f"{megabytes}MB" if megabytes < 1 << 11 else f"{-(-megabytes >> 10)}GB"

    def rank_note(self, world: int) -> str:
        """Return how much one rank of `world` reads."""
        order = self.order(0)
        if order.is_whole:
            return "all data fits into one window of the shuffle: every rank reads all of it."
        if self.modulus == 1:
            return "every rank reads all data: " + (
                "a stage between shuffle and batch needs rows of all blocks; shuffle right before batch."
                if math.gcd(world, order.lanes) > 1
                else f"its rows have blocks of their own only where the world divides the {order.lanes} lanes of "
                f"the shuffle, and {world} does not."
            )
        return (
            f"this rank loads the blocks of its own rows: 1/{self.modulus} of the data, and a little more of "
            "the last window."
        )

    def how_mixed(self) -> float | None:
        """Return how well rows are mixed, from 0 to 1."""
        return self.order(0).mixing()

    def choice(self) -> str:
        """Return how it shuffles, and how well."""
        order = self.order(0)
        nbytes = format_nbytes(order.window_rows * self.row_nbytes)
        if order.is_whole:
            return f"exact, by index: all {nbytes} are read into one window; mixing 1.00"
        return (
            f"windowed: {order.num_windows} windows of {order.window_rows} rows ({nbytes}) in random blocks "
            f"of {self.block_rows} rows, {order.lanes} lanes; mixing {order.mixing():.2f}. "
            'window="1GB" mixes further, exact=True fully'
        )
