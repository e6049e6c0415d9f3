"""What a writer gets: the rows, and what the user asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.core.rows import Node
from penstock.core.state import StateDict
from penstock.engine.stream import Stream


@dataclass(frozen=True, slots=True)
class Job:
    """One call of `ds.write(...)`."""

    node: Node
    open_stream: Callable[[StateDict | None], Stream]
    """Opens epoch 0, from a state on (None: from its start)."""
    path: Path
    shard_rows: int | None = None
    overwrite: bool = False
    progress: bool | None = None
    """Whether to show a bar; None: where rich is installed and stderr is a terminal."""
    shards: int | None = None
    """How many files to spread the rows over, if that was said; then their number is known."""
