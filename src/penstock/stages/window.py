"""A shuffle of rows on storage: windows of random blocks, loaded a little ahead of being used."""

import threading
import weakref
from typing import Any

import numpy as np

from penstock.columns import Block
from penstock.memory import format_nbytes
from penstock.rows import Context, Rows, RowSet, as_index, count
from penstock.stages.stage import Stage, StageRows
from penstock.stages.window_order import Window, WindowOrder

_PIECE_NBYTES = 1 << 22  # What one thread loads at a time.
_STRAGGLER = 0.002  # Seconds between two looks for a thread that still copies from an old window.
_TABLE_NBYTES = 16  # Bytes a row of the tables of a window.


class WindowedRows(StageRows):
    """Rows in the order of a `WindowOrder`, read a window at a time."""

    def __init__(self, stage: Stage, node: Rows, *, seed: int, window_nbytes: int) -> None:
        super().__init__(stage, node)
        assert node.chunk_rows is not None
        self.seed = seed
        self.num_shuffles += 1
        self.follows_epoch = True
        self.chunk_rows = None
        self.block_rows = node.chunk_rows
        self.window_blocks = max(1, window_nbytes // max(1, self.block_rows * self.row_nbytes))

    def order(self, epoch: int) -> WindowOrder:
        """Return the order of one epoch."""
        words = (self.seed, epoch, self.input.num_shuffles)
        return WindowOrder(self.num_rows, self.block_rows, self.window_blocks, words)

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the numbers that rows have in the input."""
        return self.order(epoch).rows(as_index(rows))

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows from their windows; rows from here and there are read one by one."""
        index = as_index(rows)
        if not len(index):
            return
        order = self.order(context.epoch)
        first, last = order.window_of(int(index.min())), order.window_of(int(index.max()))
        if last - first > 1 or context.budget is None:
            self.input.read(order.rows(index), out, context)
            return
        windows = context.resources.get(
            (id(self), context.epoch), lambda: _Windows(self, order, context)
        )
        for number in range(first, last + 1):
            slots = np.flatnonzero(
                (index >= order.start_of(number)) & (index < order.start_of(number + 1))
            )
            if len(slots):
                part = out if len(slots) == len(index) else out.at(slots)
                windows.copy(number, index[slots], part)
        windows.load_ahead(last + 1, count(rows) / order.window_rows)

    def kept_nbytes(self, ahead: int) -> int:
        """Return the bytes of the window in use, and of the next one if there is room to look ahead."""
        order = self.order(0)
        windows = 1 if ahead < 2 or order.is_whole else 2
        one = self.block_nbytes(order.window_rows) + _TABLE_NBYTES * order.window_rows
        return windows * one + self.input.kept_nbytes(ahead)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return what loading a piece of a window takes."""
        return self.input.staging_nbytes(max(num_rows, self.piece_rows))

    @property
    def piece_rows(self) -> int:
        """Rows that one thread loads at a time: whole blocks."""
        blocks = max(1, _PIECE_NBYTES // max(1, self.block_rows * self.row_nbytes))
        return blocks * self.block_rows

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


class _Loaded:
    """One window in memory, or on its way there: the threads that need it load it together."""

    __slots__ = ("__weakref__", "block", "num_claimed", "num_done", "num_pieces", "window")

    def __init__(self, window: Window, block: Block, num_pieces: int) -> None:
        self.window = window
        self.block = block
        self.num_pieces = num_pieces
        self.num_claimed = 0
        self.num_done = 0


class _Windows:
    """The windows of one epoch that are in use."""

    def __init__(self, node: WindowedRows, order: WindowOrder, context: Context) -> None:
        self.node = node
        self.order = order
        self.context = context
        self.looks_ahead = context.ahead >= 2 and not order.is_whole
        self.changed = threading.Condition()
        self.loaded: dict[int, _Loaded] = {}
        self.retired: list[weakref.ref[_Loaded]] = []
        self.error: BaseException | None = None
        self.shares = 0.0

    def close(self) -> None:
        """Let go of the windows."""
        with self.changed:
            self.loaded.clear()

    def copy(self, number: int, positions: Any, out: Block) -> None:
        """Copy the rows at some positions of a window."""
        loaded = self._complete(number)
        out.copy_from(loaded.block, loaded.window.table[positions - loaded.window.start])

    def load_ahead(self, number: int, share: float) -> None:
        """Load as much of a window as the use of the one before it has moved on."""
        if not self.looks_ahead or number >= self.order.num_windows:
            return
        loaded = self._begin(number, must=False)
        if loaded is None:
            return
        with self.changed:
            self.shares += share * loaded.num_pieces
            pieces, self.shares = int(self.shares), self.shares % 1.0
        for _ in range(pieces):
            if not self._load_piece(loaded):
                return

    def _complete(self, number: int) -> _Loaded:
        loaded = self._begin(number, must=True)
        assert loaded is not None
        while self._load_piece(loaded):
            pass
        with self.changed:
            self.changed.wait_for(
                lambda: loaded.num_done == loaded.num_pieces or self.error is not None
            )
            if self.error is not None:
                raise self.error
        return loaded

    def _begin(self, number: int, *, must: bool) -> _Loaded | None:
        """Return a window, with room for its rows; without `must` only if there is room now."""
        with self.changed:
            if number in self.loaded:
                return self.loaded[number]
            # The windows before the one in use are done with once the last thread lets go of them.
            for old in [
                one for one in self.loaded if one < number - (1 if self.looks_ahead else 0)
            ]:
                self.retired.append(weakref.ref(self.loaded.pop(old)))
            if not must and self._has_retired():
                return None
            while self._has_retired() and self.error is None:
                # Nobody tells when a thread drops its reference, but it can't keep it for long: it
                # is copying one block.
                self.changed.wait(_STRAGGLER)
            window = self.order.window(number)
            block = self.context.block(self.node, window.num_rows)
            pieces = -(-window.num_rows // self.node.piece_rows)
            self.loaded[number] = _Loaded(window, block.finish(), pieces)
            return self.loaded[number]

    def _has_retired(self) -> bool:
        self.retired = [one for one in self.retired if one() is not None]
        return bool(self.retired)

    def _load_piece(self, loaded: _Loaded) -> bool:
        """Load the next piece that nobody has begun; return whether there was one."""
        with self.changed:
            if loaded.num_claimed == loaded.num_pieces:
                return False
            piece = loaded.num_claimed
            loaded.num_claimed += 1
        try:
            step, size = self.node.piece_rows, self.node.block_rows
            start = piece * step
            slots = np.arange(start, min(start + step, loaded.window.num_rows))
            blocks, offsets = np.divmod(slots, size)
            rows = loaded.window.blocks[blocks] * size + offsets
            self.node.input.read(rows, loaded.block.at(slots), self.context)
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()
            raise
        with self.changed:
            loaded.num_done += 1
            self.changed.notify_all()
        return True
