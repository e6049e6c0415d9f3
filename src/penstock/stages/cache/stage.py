"""The declaration of a cache, in memory or in a folder."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.core.lazy import lazy
from penstock.core.rows import Flow, Node, Rows
from penstock.stages.base.stage import Stage
from penstock.stages.cache.in_memory import FlowInMemory, RowsInMemory, Store

if TYPE_CHECKING:
    from penstock.stages.cache import on_disk
else:
    on_disk = lazy("penstock.stages.cache.on_disk")  # It imports much of io.


@dataclass(frozen=True, slots=True)
class Cache(Stage):
    """All rows before it, frozen as they are in epoch 0: in memory, or in the folder `path`."""

    path: str | None = None
    store: Store = field(default_factory=Store, compare=False)

    def check(self, node: Node) -> None:
        """Raise if there is no last row."""
        if node.is_endless:
            raise ValueError("cache can't keep rows without end: put it before repeat().")

    def of_rows(self, rows: Rows) -> Node:
        """Return the cached rows; raise if the folder holds other ones."""
        if self.path is None:
            return RowsInMemory(self, rows, self.store)
        return on_disk.RowsOnDisk(self, rows, self.path)

    def of_flow(self, flow: Flow) -> Node:
        """Return the cached rows; raise if the folder holds other ones."""
        if self.path is None:
            return FlowInMemory(self, flow, self.store)
        return on_disk.FlowOnDisk(self, flow, self.path)

    def anew(self) -> "Cache":
        """Return a new cache, with a store of its own, for other rows."""
        return Cache(self.path)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"cache({'' if self.path is None else repr(self.path)})"

    def fingerprint(self) -> Any:
        """Return its name only: where the rows are stored does not matter."""
        return ["cache"]
