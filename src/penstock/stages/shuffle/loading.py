"""Windows of rows in memory: loaded together by the threads that need them, a little ahead."""

import contextlib
import itertools
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from penstock.core.blocks import Block
from penstock.core.residues import Residue
from penstock.core.rows import Context, RowSet, as_index, count, shifted
from penstock.errors import StreamClosedError
from penstock.stages.base.stage import StageRows
from penstock.stages.shuffle.together import Together
from penstock.stages.shuffle.window_order import ShuffleWindow

_FEW_PIECES = (
    8  # A window of fewer pieces is also divided by its columns, to keep all threads busy.
)
_NARROW_NBYTES = 16  # What a row of a column may have for it to be put in order when it is loaded.
_STRAGGLER = 0.002  # Seconds between two looks for a thread that still copies from an old window.
_PATIENCE = 0.02  # Seconds that a thread may be late with rows of a window whose room is wanted.


class Layout(Protocol):
    """How the positions of an order are divided into windows."""

    @property
    def num_windows(self) -> int:
        """How many windows there are."""
        ...

    def start_of(self, window: int) -> int:
        """Return the first position of a window; for the window after the last, the number of rows."""
        ...

    def window(self, number: int) -> ShuffleWindow:
        """Return one window."""
        ...


class LoadingRows(StageRows):
    """Shuffled rows that come in windows: all, or only those of one rank."""

    wanted = Residue(1)
    """Windows have only the positions that are wanted."""

    @property
    def modulus(self) -> int:
        """Of how many positions windows have one."""
        return self.wanted.modulus

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows from windows; others than those, which a batch that is filled up may have, come from the input."""
        if self.modulus > 1 and context.budget is not None:
            index = as_index(rows)
            is_mine = index % self.modulus == self.wanted.of(context.epoch)
            if not is_mine.all():
                others, mine = np.flatnonzero(~is_mine), np.flatnonzero(is_mine)
                inner = self.input_rows(index[others], context.epoch)
                self.input.read(inner, out.at(others), context)
                rows, out = index[mine], out.at(mine)
        if count(rows):
            self.fill_mine(rows, out, context)

    @abstractmethod
    def fill_mine(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows that windows have."""

    @property
    def loads_apart(self) -> bool:
        """Whether columns of a window can be loaded by several threads."""
        return False

    @property
    def orders_columns(self) -> bool:
        """Whether the columns of a window are loaded one after the other, and each is put in order then.

        Of many narrow columns a block of rows would have to be gathered from all over the window, a cache line for
        each number. One column at a time fits into a cache.
        """
        return (
            self.loads_apart
            and len(self.fields) >= _FEW_PIECES
            and all(
                field.storage_shape is not None and field.nbytes <= _NARROW_NBYTES
                for field in self.fields
            )
        )

    def shares(self, num_pieces: int) -> list[slice]:
        """Return which columns are loaded at a time: where a window has few pieces, threads share their columns."""
        num_columns = len(self.fields)
        num_shares = 1
        if self.loads_apart and not self.is_varying:
            num_shares = max(1, min(num_columns, _FEW_PIECES // max(1, num_pieces)))
        edges = [number * num_columns // num_shares for number in range(num_shares + 1)]
        return [slice(*pair) for pair in itertools.pairwise(edges)]

    def windows_nbytes(self, num_rows: int, piece_rows: int, ahead: int) -> int:
        """Return the bytes of the windows that are in memory at once, of `num_rows` rows at most."""
        if ahead < 2:
            return self.block_nbytes(num_rows)
        first = self.begins_with(num_rows, piece_rows, ahead)
        rest = self.block_nbytes(num_rows - first) if first < num_rows else 0
        return 2 * self.block_nbytes(first) + rest

    def begins_with(self, num_rows: int, piece_rows: int, ahead: int) -> int:
        """Return how many rows of a window are loaded while the window before it is in use.

        All of them, or about half where the plan has room for no more than one window and a half: that keeps the disk
        busy while blocks are made, most of the time.
        """
        if ahead > 2 or self.is_varying or self.orders_columns:
            return num_rows
        num_pieces = -(-num_rows // piece_rows)
        return min(num_rows, -(-num_pieces // 2) * piece_rows)

    @abstractmethod
    def load(
        self, window: ShuffleWindow, rows: slice, columns: slice, block: Block, context: Context
    ) -> None:
        """Read some rows of a window, numbered as the window stores them, into `block`, which has just their room.

        It has the given columns: all of them, unless this is one that `loads_apart`.
        """


class _Loaded:
    """One window in memory, or on its way there: the threads that need it load it together."""

    __slots__ = (
        "__weakref__",
        "blocks",
        "first",
        "is_halved",
        "is_ordered",
        "loading",
        "num_used",
        "step",
        "window",
    )

    def __init__(
        self,
        window: ShuffleWindow,
        blocks: list[Block | None],
        step: int,
        loading: Together[tuple[slice, slice]],
        *,
        is_halved: bool,
        is_ordered: bool,
    ) -> None:
        self.window = window
        self.blocks = blocks
        self.step = step
        """Rows of each block."""
        self.loading = loading
        self.is_halved = is_halved
        """Whether its rows, of one size, are in two blocks."""
        self.is_ordered = is_ordered
        """Whether rows lie in the order of their positions by now."""
        self.first = window.stop
        """The first position that was asked for: a stream may start within a window."""
        self.num_used = 0

    def copy_to(self, out: Block, positions: RowSet) -> None:
        """Copy the rows at some positions from the blocks they are in."""
        blocks = [block for block in self.blocks if block is not None]
        assert len(blocks) == len(self.blocks)
        if self.is_ordered:
            out.copy_from(blocks[0], shifted(positions, -self.window.start))
        elif len(blocks) == 1:
            out.copy_from(blocks[0], self.window.stored(positions))
        elif self.is_halved:
            out.gather_from(blocks[0], blocks[1], self.window.stored(positions))
        else:
            out.collect_from(blocks, *np.divmod(self.window.stored(positions), self.step))

    @property
    def is_used_up(self) -> bool:
        """Whether all positions from the first one on were copied, so that nobody will ask again."""
        return self.num_used >= (self.window.stop - self.first) // self.window.step


Key = tuple[int, int]
"""Which window it is: the epoch, and its number in it. They are in the order in which a stream needs them."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One epoch of the rows, which is one pass of a `repeat` that follows: its windows, and how they are read."""

    layout: Layout
    context: Context


class Windows:
    """The windows of a stream that are in use: one, or two, of which the next may be there by half.

    A stream has one such object, however many passes a `repeat` makes of the rows: what the next pass needs takes the
    room of the pass before.
    """

    def __init__(self, node: LoadingRows, piece_rows: int, context: Context) -> None:
        self.node = node
        self.piece_rows = piece_rows
        self.ahead = context.ahead
        self.executor = context.executor
        self.lock = threading.RLock()  # Not `with self.changed`: Ctrl-C could leave that locked.
        self.changed = threading.Condition(self.lock)
        self.making = threading.Lock()
        self.made: tuple[Key, ShuffleWindow] | None = None
        self.loaded: dict[Key, _Loaded] = {}
        self.retired: list[weakref.ref[_Loaded]] = []
        self.left: Key | None = None
        """The window whose room was taken last."""
        self.num_late = 0
        """How many blocks of it were asked for since."""
        self.waits_for_all = True
        """Whether all rows of a window are used before its room is taken, as far as is known."""
        self.error: BaseException | None = None
        self.due = 0.0
        """Pieces of window `next` that must be loaded by now, so that it is whole when it is needed."""
        self.next: Key = (-1, 0)

    def close(self) -> None:
        """Let go of the windows."""
        with self.lock:
            self.loaded.clear()
            self.made = None

    def end_other_passes(self, epoch: int) -> None:
        """Let go of the windows of other epochs, once all their rows are used."""
        with self._noting_errors(), self.lock:
            self._let_go([one for one in self.loaded if one[0] != epoch])

    def copy_all(self, of: Pass, rows: RowSet, numbers: range, out: Block) -> None:
        """Copy the rows at some positions of an epoch, all of which are in the windows `numbers`."""
        with self._noting_errors():
            self._copy_all(of, rows, numbers, out)

    def _copy_all(self, of: Pass, rows: RowSet, numbers: range, out: Block) -> None:
        for number in numbers:
            start, stop = of.layout.start_of(number), of.layout.start_of(number + 1)
            mine: RowSet
            if isinstance(rows, slice):
                first, last = max(rows.start, start), min(rows.stop, stop)
                mine, part = slice(first, last), out
                if mine != rows:
                    part = out.span(first - rows.start, last - rows.start)
            else:
                slots = np.flatnonzero((rows >= start) & (rows < stop))
                mine, part = rows[slots], out if len(slots) == len(rows) else out.at(slots)
            if count(mine):
                self._copy(of, number, mine, part)

    def _copy(self, of: Pass, number: int, positions: RowSet, out: Block) -> None:
        loaded = self._complete(of, number)
        if loaded is None:
            # This thread is so late that the room of the window was taken. Slow, but right, and rare.
            inner = self.node.input_rows(positions, of.context.epoch)
            self.node.input.read(inner, out, of.context)
            return
        loaded.copy_to(out, positions)
        first = positions.start if isinstance(positions, slice) else int(positions.min())
        with self.lock:
            loaded.first = min(loaded.first, first)
            loaded.num_used += count(positions)

    def load_ahead(self, of: Pass, number: int, share: float) -> None:
        """Load as much of a window as was used of the one before it; idle threads may have loaded that and more."""
        if self.ahead < 2 or number >= of.layout.num_windows:
            return
        with self._noting_errors():
            loaded = self._begin(of, number, must=False)
            if loaded is None:
                return
            key = of.context.epoch, number
            with self.lock:
                if key < self.next:
                    return  # Other threads are further on.
                before = self.due if key == self.next else 0
                self.due = due = share * loaded.loading.num_pieces + before
                self.next = key
            self.executor.when_idle(self._load_more)
            while loaded.loading.num_begun < int(due) and loaded.loading.do_next():
                pass

    def _load_more(self) -> bool:
        """Load a piece of the next window; return whether there was one. An error is left to who needs the window."""
        with self.lock:
            loaded = self.loaded.get(self.next)
        try:
            return loaded is not None and loaded.loading.do_next()
        except BaseException:  # noqa: BLE001  # All who wait for the window get it.
            return False
        finally:
            del loaded  # The traceback of an error refers to this frame: the window would seem to be in use for ever.

    def _complete(self, of: Pass, number: int) -> _Loaded | None:
        """Return a window with all its rows; None if its room was taken a moment ago."""
        loaded = self._begin(of, number, must=True)
        if loaded is None:
            return None
        if not loaded.loading.allows_all:
            self._take_room((of.context.epoch, number), loaded, of.context)
        loaded.loading.complete()
        return loaded

    def _take_room(self, key: Key, loaded: _Loaded, context: Context) -> None:
        """Take room for the second half of a window: that of the window before it."""
        with self.lock:
            self._let_go([one for one in self.loaded if one < key])
            if not loaded.loading.allows_all:
                rows = loaded.window.num_rows - loaded.step
                loaded.blocks[1] = context.block(self.node, rows)
                loaded.loading.allow_all()

    @contextlib.contextmanager
    def _noting_errors(self) -> Iterator[None]:
        """Note an error: no thread may wait for a window that will not come, or for one that the error refers to."""
        try:
            yield
        except BaseException as error:
            with self.lock:
                self.error = error
                self.changed.notify_all()
            raise

    def _begin(self, of: Pass, number: int, *, must: bool) -> _Loaded | None:
        """Return a window, with room for its first rows at least; None if its room was taken a moment ago.

        Without `must`, None if there is no room now.
        """
        key = of.context.epoch, number
        with self.lock:
            if key in self.loaded:
                return self.loaded[key]
            if key == self.left and self.num_late < self.ahead:
                self.num_late += 1
                return None
        # Not under `lock`: making the table takes a while, and threads copy from another window meanwhile.
        if not self.making.acquire(blocking=must):
            return None
        try:
            if self.made is None or self.made[0] != key:
                self.made = key, of.layout.window(number)
            window = self.made[1]
        finally:
            self.making.release()
        with self.lock:
            over = sorted(one for one in self.loaded if one < key)
            if self._holds_two(of):
                del over[-1:]  # There is room for the one in use, too.
            if must:
                self._let_go(over)
            elif not self._could_let_go(over):
                return None
            if key not in self.loaded:  # Nor did another thread add it meanwhile.
                self.loaded[key] = self._added(window, of)
            return self.loaded[key]

    def _holds_two(self, of: Pass) -> bool:
        return self.ahead >= 2 and of.layout.num_windows > 1

    def _added(self, window: ShuffleWindow, of: Pass) -> _Loaded:
        """Return a window with room for its first rows, or for all."""
        # Rows that differ in size get a block for each piece: joined, they would be there three times.
        step = self.piece_rows
        if not self.node.is_varying:
            step = max(1, window.num_rows)
            if self._holds_two(of):
                step = self.node.begins_with(step, self.piece_rows, self.ahead)
        blocks: list[Block | None] = [None] * max(1, -(-window.num_rows // step))
        if not self.node.is_varying:
            blocks[0] = of.context.block(self.node, min(step, window.num_rows))
        is_halved = not self.node.is_varying and len(blocks) == 2
        is_ordered = self.node.orders_columns and window.is_whole
        loading = self._loading(window, blocks, step, of.context, is_ordered=is_ordered)
        return _Loaded(window, blocks, step, loading, is_halved=is_halved, is_ordered=is_ordered)

    def _could_let_go(self, keys: list[Key]) -> bool:
        """Let go of windows if all their rows are used; return whether their memory is free."""
        if not all(self.loaded[one].is_used_up for one in keys):
            return False  # A thread that is late with its block would have to load an old window again.
        self._retire(keys)
        return not self._has_retired()

    def _let_go(self, keys: list[Key]) -> None:
        """Let go of windows, and wait until their memory is free. Threads that are late get some time to use them."""
        deadline = time.monotonic() + _PATIENCE
        while self.waits_for_all and self.error is None:
            if all(self.loaded[one].is_used_up for one in keys if one in self.loaded):
                break
            self._wait_a_little()
            self.waits_for_all = time.monotonic() < deadline
        self._retire([one for one in keys if one in self.loaded])
        while self._has_retired() and self.error is None:
            self._wait_a_little()
        if self.error is not None:
            raise self.error

    def _retire(self, keys: list[Key]) -> None:
        for old in keys:
            self.left, self.num_late = old, 0
            self.retired.append(weakref.ref(self.loaded.pop(old)))

    def _wait_a_little(self) -> None:
        # Nothing notifies us when a thread drops its reference. It does so soon: it is only
        # copying one block. Unless it failed, outside of all this: then the stream is being closed.
        self.changed.wait(_STRAGGLER)
        if self.executor.is_closing:
            raise StreamClosedError("the stream was closed.")

    def _loading(
        self,
        window: ShuffleWindow,
        blocks: list[Block | None],
        step: int,
        context: Context,
        *,
        is_ordered: bool,
    ) -> Together[tuple[slice, slice]]:
        # What is put in order has all rows of its columns.
        piece_rows = max(1, window.num_rows) if is_ordered else self.piece_rows
        num_pieces = -(-window.num_rows // piece_rows)
        shares = self.node.shares(num_pieces)

        def begin(piece: int) -> tuple[slice, slice]:
            number, share = divmod(piece, len(shares))
            start = number * piece_rows
            return slice(start, min(start + piece_rows, window.num_rows)), shares[share]

        def load(piece: tuple[slice, slice]) -> None:
            rows, columns = piece
            number = rows.start // step
            first = number * step
            block = blocks[number]
            if block is None:
                block = context.block(self.node, rows.stop - rows.start)
            part = block.span(rows.start - first, rows.stop - first)
            if len(shares) > 1:
                part = part.part(columns.start, columns.stop)
            if rows.start == 0:
                # It takes as long as some pieces of rows, which other threads load meanwhile.
                _ = window.table
            if is_ordered:
                stored = part.beside(context.allocate)
                self.node.load(window, rows, columns, stored, context)
                part.copy_from(stored.finish(), window.table)
            else:
                self.node.load(window, rows, columns, part, context)
            if self.node.is_varying:
                blocks[number] = block.finish()

        def finish() -> None:
            if not self.node.is_varying:
                for block in blocks:
                    if block is not None:
                        block.finish()

        total = num_pieces * len(shares)
        is_halved = not self.node.is_varying and step < window.num_rows
        allowed = step // piece_rows * len(shares) if is_halved else total
        return Together(total, begin, load, finish, allowed=allowed)

    def _has_retired(self) -> bool:
        self.retired = [one for one in self.retired if one() is not None]
        return bool(self.retired)
