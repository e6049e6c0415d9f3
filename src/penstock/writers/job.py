"""What a writer gets: the rows, and what the user asked for."""

from dataclasses import dataclass
from pathlib import Path

from penstock.core.rows import Node
from penstock.core.state import StateDict
from penstock.engine.plan import Options
from penstock.engine.stream import Stream, open_stream


@dataclass(frozen=True, slots=True)
class Job:
    """One call of `ds.write(...)`."""

    node: Node
    options: Options
    path: Path
    shard_rows: int | None = None
    overwrite: bool = False
    progress: bool | None = None
    """Whether to show a progress bar; None: if rich is installed and stderr is a terminal."""
    shards: int | None = None
    """How many files to spread the rows over; if it is given, the number of rows is known."""
    engine: str = "local"
    """Who writes: this process, or tasks of Ray."""

    def open_stream(self, state: StateDict | None) -> Stream:
        """Return a stream of epoch 0, from a state on (None: from the start)."""
        return open_stream(self.node, self.options, state=state)
