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
    """Opens a stream of epoch 0, from a state on (None: from the start)."""
    path: Path
    shard_rows: int | None = None
    overwrite: bool = False
    progress: bool | None = None
    """Whether to show a progress bar; None: if rich is installed and stderr is a terminal."""
    shards: int | None = None
    """How many files to spread the rows over; if it is given, the number of rows is known."""
