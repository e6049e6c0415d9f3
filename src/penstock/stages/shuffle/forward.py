"""A shuffle of rows that can only be read forward: one window after the other, each mixed by itself.

Windows are cut by bytes, so that rows of any length fit into the memory that is planned for them. What is left at the
end, if it is less than a quarter of a window, belongs to the window before it: a few rows alone would hardly mix.
"""

from collections.abc import Hashable, Iterator
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block, varying_nbytes
from penstock.core.fingerprint import lineage
from penstock.core.order import WINDOWS_VERSION, Permutation
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, rows_per_block
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.errors import warn_user
from penstock.memory import format_nbytes
from penstock.stages.base.stage import Stage, StageFlow

# A larger window is planned as a usual one, if the number of rows is not known.
_LARGE_NBYTES = 1 << 30
_USUAL_NBYTES = 1 << 26
_TAIL = 4  # Less than this part of a window is not a window of its own.
# Rows that differ in size are gathered in portions, so that only one of these is there several times.
_PORTION_NBYTES = 1 << 20
# What such a row takes besides its values: where it begins, and its shape.
_VARYING_NBYTES = 16


class ShuffledFlow(StageFlow):
    """Windows of the input, each in random order.

    The cursor is [number of the window, rows used of it, cursor of the input where the window starts].
    """

    def __init__(self, stage: Stage, flow: Flow, *, seed: int, window_nbytes: int) -> None:
        super().__init__(stage, flow)
        self.seed = seed
        self.num_shuffles += 1
        self.follows_epoch = True
        self.has_warned = False
        varying = [field for field in self.fields if field.storage_shape is None]
        fixed = [field for field in self.fields if field.storage_shape is not None]
        self.fixed_nbytes = sum(field.stride(aligned=self.is_batched) for field in fixed)
        self.fixed_nbytes += _VARYING_NBYTES * len(varying)
        self.set_window(window_nbytes)

    def set_window(self, nbytes: int) -> None:
        """Set the bytes of a window."""
        self.window_nbytes = nbytes
        # Rows may be too few for a very large window: it gets its room as they come.
        self.planned_nbytes = nbytes if nbytes <= _LARGE_NBYTES else _USUAL_NBYTES
        self.portion_nbytes = min(nbytes, _PORTION_NBYTES if self.is_varying else _USUAL_NBYTES)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield each window in a random order of its own."""
        if context.budget is None:  # A chain being built only looks at one row: any will do.
            yield from self.input.parcels(None, context)
            return
        number, done, inner = cursor_parts(self, cursor, (0, 0, None))
        incoming = _Incoming(self, inner, context)
        while True:
            start = incoming.cursor
            window = incoming.window()
            if done > window.size:
                raise wrong_cursor(self, cursor)
            if not window.size:
                return
            if number == 1 and self.num_rows is None and not self.has_warned:
                self.has_warned = True  # That there is more than a window is known only now.
                warn_user(self._caution())
            words = (self.seed, context.epoch, self.input.num_shuffles, number)
            order = Permutation(window.size, words)
            step = context.rows_per_block(self)
            first = done
            while first < window.size:
                rows = order.rows(np.arange(first, min(first + step, window.size)))
                rows = rows[: window.fitting(rows, context.block_nbytes)]
                block = context.block(self, len(rows))
                window.copy_to(block, rows)
                after = partial(_window_cursor, number, first, window.size, start, incoming.cursor)
                first += len(rows)
                yield Parcel(block.finish(), len(rows), after)
            del window  # Before the next one is made: there is memory for only one.
            number, done = number + 1, 0

    def sizes(self, parcel: Parcel) -> Index:
        """Return the bytes that each row of a parcel takes in a window."""
        fixed = np.full(parcel.size, self.fixed_nbytes, np.int64)
        return fixed + varying_nbytes(parcel.block, parcel.size) if self.is_varying else fixed

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, the window and what was read after it, and the blocks made of it."""
        window = self.planned_nbytes + self.planned_nbytes // _TAIL
        if self.num_rows is not None and not self.is_varying:
            window = self.window_nbytes + self.window_nbytes // _TAIL
            window = min(window, self.block_nbytes(self.num_rows) + self.block_nbytes(1))
        # While a portion is gathered, its rows are there up to five times: in room for more, as pieces, joined,
        # in order, and copied.
        portion = 5 * self.portion_nbytes if self.is_varying else self.block_nbytes(1)
        own = window + portion + 2 * max(block_nbytes, self.block_nbytes(1))
        return own + self.input.holds_nbytes(block_nbytes, ahead)

    def count_nbytes(self, context: Context, most: int, until: float) -> int:
        """Return the bytes that the largest window will have beyond what is planned, after reading the rows for it.

        Stop at the time `until` of `monotonic`.
        """
        window = min(self.window_nbytes, most)
        total = 0
        for parcel in self.input.parcels(None, context):
            total += int(self.sizes(parcel).sum())
            if total > window + window // _TAIL or monotonic() > until:
                break
        total += self.portion_nbytes  # The last portion has room for more.
        return max(0, min(total, window + window // _TAIL) - self.planned_nbytes)

    def order_key(self) -> tuple[Hashable, ...]:
        """Return what the order follows from; rows that differ in size are cut by their bytes, known only later."""
        cut: Hashable = self.window_nbytes // max(1, self.fixed_nbytes)
        if self.is_varying:
            cut = self.window_nbytes, lineage(self.input)
        return (self.seed, self.input.num_shuffles), self.num_rows, "forward", self.is_varying, cut

    def fingerprint(self) -> Any:
        """Return the stage's, and the version of the way that rows are cut into windows."""
        return [*self.stage.fingerprint(), WINDOWS_VERSION]

    def cautions(self) -> tuple[str, ...]:
        """Return that rows are mixed only with those near them, if it is known that one window can't hold all."""
        most = self.window_nbytes + self.window_nbytes // _TAIL
        if self.num_rows is None or self.num_rows * self.fixed_nbytes <= most:
            return ()
        return (self._caution(),)

    def _caution(self) -> str:
        nbytes = format_nbytes(self.window_nbytes)
        return (
            f"{self.describe()} mixes rows poorly: the input can only be read forward, so that rows are mixed only "
            f"with those in the same {nbytes}; batches of sorted data would have few labels each.\n"
            "  kept first, in memory or on disk: .cache().shuffle(), .cache('folder').shuffle()\n"
            "  a larger window: .shuffle(window='1GB')"
        )

    def choice(self) -> str:
        """Return how it shuffles."""
        nbytes = format_nbytes(self.window_nbytes)
        about = rows_per_block(self, self.window_nbytes)
        rows = f"{'about ' if self.is_varying else ''}{about} rows"
        return (
            f"in windows of {nbytes} ({rows}): the input can only be read forward; "
            "cache() first for an exact shuffle"
        )


class _Window:
    """The rows of a window, in portions: blocks, of which the first so many rows are used."""

    def __init__(self, portions: list[tuple[Block, int]], *, is_varying: bool) -> None:
        self.portions = portions
        self.ends = np.cumsum([size for _, size in portions], dtype=np.int64)
        self.nbytes: Index | None = None
        """Bytes of each row, where rows differ in size."""
        if is_varying and portions:
            self.nbytes = np.concatenate([varying_nbytes(block, size) for block, size in portions])

    @property
    def size(self) -> int:
        """How many rows it has."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def fitting(self, rows: Index, nbytes: int) -> int:
        """Return how many of these rows, from the first on, take at most `nbytes`; one in any case."""
        if self.nbytes is None:
            return len(rows)
        return max(1, int(np.searchsorted(np.cumsum(self.nbytes[rows]), nbytes, side="right")))

    def copy_to(self, out: Block, rows: Index) -> None:
        """Copy rows, numbered through all portions."""
        if len(self.portions) == 1:
            out.copy_from(self.portions[0][0], rows)
            return
        owners = np.searchsorted(self.ends, rows, side="right")
        # Few different numbers: a sort by counting them.
        by_owner = np.argsort(owners, kind="stable")
        cuts = np.searchsorted(owners[by_owner], np.arange(len(self.ends) + 1))
        for number in np.unique(owners).tolist():
            block, size = self.portions[number]
            slots = by_owner[cuts[number] : cuts[number + 1]]
            out.at(slots).copy_from(block, rows[slots] - (int(self.ends[number]) - size))


class _Incoming:
    """Cuts rows that come forward into windows."""

    def __init__(self, node: ShuffledFlow, cursor: Cursor, context: Context) -> None:
        self.node = node
        self.context = context
        self.cursor = cursor
        """Where the input stands after the last window."""
        self._parcels = node.input.parcels(cursor, context)
        self._parcel: Parcel | None = None
        self._ends = np.empty(0, np.int64)
        """For each row of the parcel, the bytes up to its end."""
        self._used = 0
        self._at = cursor
        self._tail: list[tuple[Block, int]] = []
        self._tail_nbytes = 0

    def window(self) -> _Window:
        """Return the next window; it has no rows at the end."""
        limit = self.node.window_nbytes
        portions, self._tail = self._tail, []
        self._gather(limit - self._tail_nbytes, portions, must=True)
        self.cursor = self._at
        self._tail_nbytes = (
            self._gather(limit // _TAIL, self._tail, must=False) if self._has_more() else 0
        )
        if not self._has_more():
            portions += self._tail
            self._tail, self._tail_nbytes = [], 0
            self.cursor = self._at
        return _Window(portions, is_varying=self.node.is_varying)

    def _has_more(self) -> bool:
        while self._parcel is None or self._used == self._parcel.size:
            self._parcel = next(self._parcels, None)
            self._used = 0
            if self._parcel is None:
                self._parcels = iter(())
                return False
            self._ends = np.cumsum(self.node.sizes(self._parcel))
        return True

    def _gather(self, limit: int, portions: list[tuple[Block, int]], *, must: bool) -> int:
        """Add the next `limit` bytes of rows to the portions; return the bytes. `must`: one row, however large."""
        total = 0
        while self._has_more():
            block, size, nbytes = self._portion(limit - total, must=must and not portions)
            if not size:
                break
            portions.append((block, size))
            total += nbytes
        return total

    def _portion(self, limit: int, *, must: bool) -> tuple[Block, int, int]:
        """Return up to `limit` bytes of rows, how many they are, and their bytes; none if the next row has more."""
        node, context = self.node, self.context
        most = min(limit, node.portion_nbytes)
        # All values of varying rows may be empty.
        room = max(1, most // max(1, node.fixed_nbytes))
        room = room if node.num_rows is None else max(1, min(room, node.num_rows))
        gathered = context.block(node, room)
        size = nbytes = 0
        while size < room and self._has_more():
            assert self._parcel is not None
            before = int(self._ends[self._used - 1]) if self._used else 0
            stop = int(np.searchsorted(self._ends, before + most - nbytes, side="right"))
            stop = min(stop, self._used + room - size)
            if stop <= self._used:
                if size or (int(self._ends[self._used]) - before > limit and not must):
                    break
                stop = self._used + 1  # A portion of its own.
            rows = np.arange(self._used, stop)
            gathered.at(np.arange(size, size + len(rows))).copy_from(self._parcel.block, rows)
            size += len(rows)
            nbytes += int(self._ends[stop - 1]) - before
            self._used = stop
            self._at = self._parcel.cursor_after(stop)
        if not node.is_varying or not size:
            return gathered.finish(), size, nbytes
        block = context.block(node, size)
        block.copy_from(gathered.finish(), np.arange(size))
        return block.finish(), size, nbytes


def _window_cursor(
    number: int, first: int, size: int, start: Cursor, end: Cursor, offset: int
) -> Cursor:
    done = first + offset
    return [number, done, start] if done < size else [number + 1, 0, end]
