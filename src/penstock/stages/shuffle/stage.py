"""The declaration of a shuffle, and which of the five kinds of shuffle it makes."""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.lazy import lazy
from penstock.core.rows import Flow, Node, Rows
from penstock.sources.reading.read_blocks import block_rows
from penstock.stages.base.stage import Stage
from penstock.stages.cache.base import CacheFlow
from penstock.stages.shuffle.by_index import ShuffledRows
from penstock.stages.shuffle.forward import ShuffledFlow
from penstock.stages.shuffle.of_cache import ShuffledCache
from penstock.stages.shuffle.on_storage import WindowedRows

if TYPE_CHECKING:
    from penstock.stages.shuffle import scatter
else:
    scatter = lazy("penstock.stages.shuffle.scatter")  # It imports much of io.

Windowed = ShuffledFlow | ShuffledCache | WindowedRows
WINDOW_NBYTES = 64 << 20
LARGE_ROW_NBYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Shuffle(Stage):
    """A random order given by `seed`; where rows are mixed in windows, `window` is the bytes of one."""

    seed: int
    exact: bool = False
    window: int | None = None

    def check(self, node: Node) -> None:
        """Raise if there is no last row."""
        if node.is_endless:
            raise ValueError(
                "shuffle can't follow repeat() without a count: there is no last row.\n"
                "  wrong: ds.repeat().shuffle()\n  right: ds.shuffle().repeat()"
            )

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows in random order: by index where a random read for each row costs little."""
        # Large rows are worth a random read each, unless others must be decoded with them.
        is_large = rows.row_nbytes >= LARGE_ROW_NBYTES
        if not rows.grains or (is_large and block_rows(rows) == 1):
            return ShuffledRows(self, rows, seed=self.seed)
        if self.exact and rows.num_rows * rows.row_nbytes > self.window_nbytes:
            return scatter.ScatteredRows(self, rows, seed=self.seed)
        return WindowedRows(
            self, rows, seed=self.seed, window_nbytes=self.window_nbytes, is_exact=self.exact
        )

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows in random order: window after window, unless a cache comes right before."""
        if isinstance(flow, CacheFlow):
            return ShuffledCache(
                self, flow, seed=self.seed, window_nbytes=self.window_nbytes, exact=self.exact
            )
        if self.exact:
            raise ValueError(
                f"shuffle(exact=True) needs random access to the rows, and {flow.describe()} "
                "can only be read forward. Write .cache().shuffle() to keep its rows first."
            )
        return ShuffledFlow(self, flow, seed=self.seed, window_nbytes=self.window_nbytes)

    @property
    def window_nbytes(self) -> int:
        """The bytes of a window."""
        return WINDOW_NBYTES if self.window is None else self.window

    def notes(self, node: Node) -> tuple[str, ...]:
        """Return what a shuffle after `batch` does, since it is seldom what is wanted."""
        if not node.is_batched:
            return ()
        return ("shuffle after batch mixes whole batches, not the rows in them.",)

    def describe(self) -> str:
        """Return the call that made it."""
        words = [f"seed={self.seed}"]
        words += ["exact=True"] if self.exact else []
        words += [f"window={self.window}"] if self.window is not None else []
        return f"shuffle({', '.join(words)})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["shuffle", self.seed, self.exact, self.window]


def resized(node: Node, window: int) -> Node:
    """Return a copy of a shuffle with a window of at most so many bytes, to plan with; any other node as it is."""
    if not isinstance(node, Windowed) or window >= node.window_nbytes:
        return node
    if isinstance(node, ShuffledCache) and not node.input.grains:
        return node  # The rows are in memory: it has no window.
    made = copy.copy(node)
    made.set_window(window)
    return made
