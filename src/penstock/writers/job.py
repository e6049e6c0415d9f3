"""What a writer gets: the rows, and what the user asked for."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.progress import Step, begin, can_show
from penstock.core.rows import Node
from penstock.core.state import StateDict
from penstock.engine.plan import Options
from penstock.engine.stream import Stream, open_stream


def _nothing(path: Path) -> None:
    """Do nothing: files on this machine stay where they are."""


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
    url: str = ""
    """Where the files go in the end, if that is behind a URL; `path` is then a folder that they are made in."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What fsspec needs to know to write there."""
    finished: Callable[[Path], None] = _nothing
    """Called with each file that is finished: it may be gone afterwards."""

    @property
    def name(self) -> str:
        """The name of what is written, for people."""
        return self.url.rstrip("/").rpartition("/")[2] or self.path.name

    def begin(self, num_rows: int | None, done: int = 0) -> Step:
        """Return the step of writing the rows, of which `done` were written before; its bar is what was asked for."""
        is_wanted = self.progress
        if is_wanted is None and sys.stderr.isatty() and can_show():
            is_wanted = True
        return begin(self.name, total=num_rows, done=done, wanted=is_wanted)

    def open_stream(self, state: StateDict | None) -> Stream:
        """Return a stream of epoch 0, from a state on (None: from the start)."""
        return open_stream(self.node, self.options, state=state)
