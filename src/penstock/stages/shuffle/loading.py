"""Windows of rows in memory: loaded together by the threads that need them, a little ahead."""

import contextlib
import itertools
import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from penstock.core.blocks import Block
from penstock.core.columns import Fixed
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
        is_ordered: bool,
    ) -> None:
        self.window = window
        self.blocks = blocks
        self.step = step
        """Rows of each block."""
        self.loading = loading
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
        else:
            out.collect_from(blocks, *np.divmod(self.window.stored(positions), self.step))

    @property
    def is_used_up(self) -> bool:
        """Whether all positions from the first one on were copied, so that nobody will ask again."""
        return self.num_used >= (self.window.stop - self.first) // self.window.step


class Windows:
    """The windows of one epoch that are in use."""

    def __init__(
        self, node: LoadingRows, layout: Layout, piece_rows: int, context: Context
    ) -> None:
        self.node = node
        self.layout = layout
        self.piece_rows = piece_rows
        self.context = context
        self.looks_ahead = context.ahead >= 2 and layout.num_windows > 1
        self.lock = threading.RLock()  # Not `with self.changed`: Ctrl-C could leave that locked.
        self.changed = threading.Condition(self.lock)
        self.making = threading.Lock()
        self.made: tuple[int, ShuffleWindow] | None = None
        self.loaded: dict[int, _Loaded] = {}
        self.retired: list[weakref.ref[_Loaded]] = []
        self.error: BaseException | None = None
        self.due = 0.0
        """Pieces of window `ahead` that must be loaded by now, so that it is whole when it is needed."""
        self.ahead = 0

    def close(self) -> None:
        """Let go of the windows."""
        with self.lock:
            self.loaded.clear()
            self.made = None

    def copy_all(self, rows: RowSet, numbers: range, out: Block) -> None:
        """Copy the rows at some positions, all of which are in the windows `numbers`."""
        with self._noting_errors():
            self._copy_all(rows, numbers, out)

    def _copy_all(self, rows: RowSet, numbers: range, out: Block) -> None:
        for number in numbers:
            start, stop = self.layout.start_of(number), self.layout.start_of(number + 1)
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
                self._copy(number, mine, part)

    def _copy(self, number: int, positions: RowSet, out: Block) -> None:
        loaded = self._complete(number)
        loaded.copy_to(out, positions)
        first = positions.start if isinstance(positions, slice) else int(positions.min())
        with self.lock:
            loaded.first = min(loaded.first, first)
            loaded.num_used += count(positions)

    def load_ahead(self, number: int, share: float) -> None:
        """Load as much of a window as was used of the one before it; idle threads may have loaded that and more."""
        if not self.looks_ahead or number >= self.layout.num_windows:
            return
        with self._noting_errors():
            loaded = self._begin(number, must=False)
            if loaded is None:
                return
            with self.lock:
                if number < self.ahead:
                    return  # Other threads are further on.
                before = self.due if number == self.ahead else 0
                self.due = due = share * loaded.loading.num_pieces + before
                self.ahead = number
            self.context.executor.when_idle(self._load_more)
            while loaded.loading.num_begun < int(due) and loaded.loading.do_next():
                pass

    def _load_more(self) -> bool:
        """Load a piece of the next window; return whether there was one. An error is left to who needs the window."""
        with self.lock:
            loaded = self.loaded.get(self.ahead)
        try:
            return loaded is not None and loaded.loading.do_next()
        except BaseException:  # noqa: BLE001  # All who wait for the window get it.
            return False
        finally:
            del loaded  # The traceback of an error refers to this frame: the window would seem to be in use for ever.

    def _complete(self, number: int) -> _Loaded:
        loaded = self._begin(number, must=True)
        assert loaded is not None
        loaded.loading.complete()
        return loaded

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

    def _begin(self, number: int, *, must: bool) -> _Loaded | None:
        """Return a window, with room for its rows; without `must`, None if there is no room now."""
        with self.lock:
            if number in self.loaded:
                return self.loaded[number]
        # Not under `lock`: making the table takes a while, and threads copy from another window meanwhile.
        if not self.making.acquire(blocking=must):
            return None
        try:
            if self.made is None or self.made[0] != number:
                self.made = number, self.layout.window(number)
            window = self.made[1]
        finally:
            self.making.release()
        with self.lock:
            if number in self.loaded:
                return self.loaded[number]
            # Windows before the one in use are finished once the last thread lets go of them.
            still_used = 1 if self.looks_ahead else 0
            over = [one for one in self.loaded if one < number - still_used]
            if not must and not all(self.loaded[old].is_used_up for old in over):
                return None  # A thread that is late with its block would have to load an old window again.
            for old in over:
                self.retired.append(weakref.ref(self.loaded.pop(old)))
            if not must and self._has_retired():
                return None
            while self._has_retired() and self.error is None:
                # Nothing notifies us when a thread drops its reference. It does so soon: it is only
                # copying one block. Unless it failed, outside of all this: then the stream is being closed.
                self.changed.wait(_STRAGGLER)
                if self.context.executor.is_closing:
                    raise StreamClosedError("the stream was closed.")
            if self.error is not None:
                raise self.error
            # Rows that differ in size get a block for each piece: joined, they would be there three times.
            step = self.piece_rows if self.node.is_varying else max(1, window.num_rows)
            blocks: list[Block | None] = [None] * max(1, -(-window.num_rows // step))
            if not self.node.is_varying:
                blocks[0] = self.context.block(self.node, window.num_rows)
            is_ordered = self.node.orders_columns and window.is_whole
            loading = self._loading(window, blocks, step, is_ordered=is_ordered)
            self.loaded[number] = _Loaded(window, blocks, step, loading, is_ordered=is_ordered)
            return self.loaded[number]

    def _loading(
        self,
        window: ShuffleWindow,
        blocks: list[Block | None],
        step: int,
        *,
        is_ordered: bool,
    ) -> Together[tuple[slice, slice]]:
        # What is put in order has all rows of its columns.
        piece_rows = max(1, window.num_rows) if is_ordered else self.piece_rows
        num_pieces = -(-window.num_rows // piece_rows)
        shares = self._shares(num_pieces)

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
                block = self.context.block(self.node, rows.stop - rows.start)
            part = block.span(rows.start - first, rows.stop - first)
            if len(shares) > 1:
                part = part.part(columns.start, columns.stop)
            self.node.load(window, rows, columns, part, self.context)
            if is_ordered:
                for sink in part.sinks:
                    assert isinstance(sink, Fixed)
                    sink.reorder(window.table, self.context.allocate)
            if self.node.is_varying:
                blocks[number] = block.finish()

        def finish() -> None:
            if not self.node.is_varying and blocks[0] is not None:
                blocks[0].finish()

        return Together(num_pieces * len(shares), begin, load, finish)

    def _shares(self, num_pieces: int) -> list[slice]:
        """Return which columns are loaded at a time: where a window has few pieces, threads share their columns."""
        num_columns = len(self.node.fields)
        num_shares = 1
        if self.node.loads_apart and not self.node.is_varying:
            num_shares = max(1, min(num_columns, _FEW_PIECES // max(1, num_pieces)))
        edges = [number * num_columns // num_shares for number in range(num_shares + 1)]
        return [slice(*pair) for pair in itertools.pairwise(edges)]

    def _has_retired(self) -> bool:
        self.retired = [one for one in self.retired if one() is not None]
        return bool(self.retired)
