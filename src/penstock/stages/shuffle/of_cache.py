"""A shuffle behind the cache of a flow: how many rows there are is known once the cache is full."""

from collections.abc import Hashable, Iterator
from typing import Any

from penstock.core.fingerprint import lineage
from penstock.core.order import WINDOWS_VERSION
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Rows, rows_per_block
from penstock.errors import warn_user
from penstock.stages.base.segment import Segment
from penstock.stages.base.stage import Stage, StageFlow
from penstock.stages.cache.base import CacheFlow

_LARGE_NBYTES = 1 << 30  # A larger window is planned as a usual one: there may be few rows.
_USUAL_NBYTES = 1 << 26
_SCATTER_NBYTES = 48 << 20  # Bytes that each thread takes to scatter rows to scratch files.


class ShuffledCache(StageFlow):
    """The rows of a cache in random order; how many there are is known once it is full."""

    input: CacheFlow

    def __init__(
        self, stage: Stage, flow: CacheFlow, *, seed: int, window_nbytes: int, exact: bool
    ) -> None:
        super().__init__(stage, flow)
        self.window_nbytes = window_nbytes
        self.seed = seed
        self.exact = exact
        self.has_warned = False
        self.num_shuffles += 1
        self.follows_epoch = True

    def set_window(self, nbytes: int) -> None:
        """Set the bytes of a window."""
        self.window_nbytes = nbytes

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Fill the cache, then return its rows in random order."""
        if context.budget is None:  # A chain being built only looks at one row: any will do.
            return self.input.parcels(None, context)
        rows = self.stage.build(self.input.table(context))
        assert isinstance(rows, Rows)
        if not self.has_warned:
            self.has_warned = True
            for caution in rows.cautions():  # Not known before: how many rows there are decides.
                warn_user(caution)
        return Segment(rows).parcels(cursor, context)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the cache holds, and the windows if it is on disk."""
        own = self.input.holds_nbytes(block_nbytes, ahead)
        if not self.input.grains:
            return own
        # How many rows there are is not known yet: assume enough for a full window.
        planned = self.window_nbytes if self.window_nbytes <= _LARGE_NBYTES else _USUAL_NBYTES
        rows = rows_per_block(self, planned)
        windows = (1 if ahead < 2 else 2) * self.block_nbytes(rows)
        return own + 2 * windows + (_SCATTER_NBYTES * max(1, ahead) if self.exact else 0)

    def fingerprint(self) -> Any:
        """Return the stage's, and the version of the way that rows are cut into windows, if they may be."""
        return [*self.stage.fingerprint(), *([WINDOWS_VERSION] if self.input.grains else [])]

    def order_key(self) -> tuple[Hashable, ...]:
        """Return what is known before the cache is full; windows are cut only then, each cache by itself."""
        key = (self.seed, self.input.num_shuffles), self.num_rows
        return (*key, "cache", lineage(self.input)) if self.input.grains and not self.exact else key

    def how_mixed(self) -> float | None:
        """Return how well rows are mixed, if that is known before the cache is full."""
        return None if self.input.grains else 1.0

    def choice(self) -> str:
        """Return how it shuffles."""
        if self.input.grains:
            return "in windows or by index, as its size asks for, once the cache is full"
        return "exact, by index, once the cache is full; mixing 1.00"
