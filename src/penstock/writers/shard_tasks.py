"""Tasks that write shards for another process: what each of them gets, and what it is asked to do."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock.core.parcels import Parcel
from penstock.core.rows import Rows
from penstock.engine.plan import Options
from penstock.engine.stream import open_stream
from penstock.stages.skip import Skip
from penstock.stages.take import Take


@dataclass(frozen=True, slots=True)
class Sent:
    """What every task of a call gets: the rows, and how they are run."""

    node: Rows
    options: Options

    def parcels(self, start: int, stop: int) -> Iterator[Parcel]:
        """Yield rows `start` to `stop` of epoch 0; nothing past them is read ahead."""
        node = Skip(start).build(Take(stop).build(self.node))
        with open_stream(node, self.options) as stream:
            for parcel in stream.parcels():
                yield parcel
                del parcel  # Its buffers are free for the next parcel.


class Work(Protocol):
    """Rows `start` to `stop`, and what to do with them."""

    @property
    def start(self) -> int:
        """The first row."""
        ...

    @property
    def stop(self) -> int:
        """The row after the last."""
        ...

    def perform(self, sent: Sent, folder: Path) -> Any:
        """Do it, and return something small; files go to a folder that no other task writes to."""
        ...
