"""What caches in memory and on disk have in common: they read epoch 0 of their input, once."""

from abc import abstractmethod
from collections.abc import Iterator

from penstock.core.blocks import Block
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Rows, RowSet, count
from penstock.core.state import cursor_row
from penstock.stages.base.stage import Stage, StageFlow, StageRows


class CacheRows(StageRows):
    """A cache of rows with random access."""

    def __init__(self, stage: Stage, node: Rows) -> None:
        super().__init__(stage, node)
        self.follows_epoch = False
        self.is_in_memory = False  # It writes, or waits for another thread that does.

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read rows from the cache; while a chain is built, read the input instead."""
        if not count(rows):
            return
        if context.budget is None:
            self.input.read(rows, out, context.of_epoch(0))
        else:
            self.fill_cached(rows, out, context)

    @abstractmethod
    def fill_cached(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read rows, after making those that the cache does not have yet."""

    def locate(self, row: int, epoch: int) -> str:
        """Return where a cached row came from."""
        return self.input.locate(row, 0)


class CacheFlow(StageFlow):
    """A cache of a flow: once the flow was read to its end, there is random access to its rows."""

    def __init__(self, stage: Stage, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.follows_epoch = False

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Return rows from the cache; while a chain is built, return those of the input instead."""
        if context.budget is None:
            return self.input.parcels(None, context.of_epoch(0))
        return self.cached_parcels(cursor_row(self, cursor, self.num_rows), context)

    @abstractmethod
    def cached_parcels(self, row: int, context: Context) -> Iterator[Parcel]:
        """Return the rows from a row number on."""

    @abstractmethod
    def table(self, context: Context) -> Rows:
        """Return the cached rows, with random access, after reading the flow to its end if nobody has."""
