"""The declaration of a cache, in memory or in a folder."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.core.fingerprint import doubtful_code
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
    key: str | None = None
    """What the user calls this version of the functions and of all that can't be compared."""
    store: Store = field(default_factory=Store, compare=False)

    def check(self, node: Node) -> None:
        """Raise if there is no last row."""
        if node.is_endless:
            raise ValueError("cache can't keep rows without end: put it before repeat().")

    def of_rows(self, rows: Rows) -> Node:
        """Return the cached rows; raise if the folder holds other ones."""
        if self.path is None:
            return RowsInMemory(self, rows, self.store)
        return on_disk.RowsOnDisk(self, rows, self.path, self.key)

    def of_flow(self, flow: Flow) -> Node:
        """Return the cached rows; raise if the folder holds other ones."""
        if self.path is None:
            return FlowInMemory(self, flow, self.store)
        return on_disk.FlowOnDisk(self, flow, self.path, self.key)

    def anew(self) -> "Cache":
        """Return a new cache, with a store of its own, for other rows."""
        return Cache(self.path, self.key)

    def describe(self) -> str:
        """Return the call that made it."""
        key = "" if self.key is None else f", key={self.key!r}"
        return f"cache({'' if self.path is None else repr(self.path)}{key})"

    def notes(self, node: Node) -> tuple[str, ...]:
        """Return that no other run can use the folder, if something before it can't be compared."""
        doubt = "" if self.path is None or self.key is not None else doubtful_code(node.inputs[0])
        if not doubt:
            return ()
        note = f'{self.describe()} can\'t be used by another run, since {doubt}. A key vouches for it: key="v1".'
        return (note,)

    def fingerprint(self) -> Any:
        """Return its name only: where the rows are stored does not matter."""
        return ["cache"]
