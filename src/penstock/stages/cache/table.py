"""What caches have in common: rows that flow at first, and can be had by number once they are kept."""

from abc import abstractmethod
from typing import Any

import numpy as np

from penstock.core.columns import Block
from penstock.core.rows import Context, Flow, Index, Node, Rows, RowSet, as_index
from penstock.stages.base.stage import Stage, StageFlow


class KeptFlow(StageFlow):
    """A flow behind a cache: once it was read to its end, its rows can be had by number."""

    def __init__(self, stage: Stage, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.follows_epoch = False

    @abstractmethod
    def table(self, context: Context) -> Rows:
        """Return the rows, after reading the flow to its end if need be."""


class Table(Rows):
    """The rows of a full cache."""

    def __init__(self, flow: Node, blocks: list[Block]) -> None:
        self.like(flow)
        self.inputs = ()
        self.blocks = blocks
        self.starts = np.cumsum([0] + [block.num_rows for block in blocks])
        self.num_rows = int(self.starts[-1])

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows from the blocks they are in."""
        index = as_index(rows)
        blocks = np.searchsorted(self.starts, index, side="right") - 1
        for number in np.unique(blocks).tolist():
            slots: Index = np.flatnonzero(blocks == number)
            out.at(slots).copy_from(self.blocks[number], index[slots] - self.starts[number])

    def locate(self, row: int, epoch: int) -> str:
        """Return the row's number."""
        return f"cached row {row}"

    def describe(self) -> str:
        """Return what it is."""
        return "cache()"

    def fingerprint(self) -> Any:
        """Return what it is: the cache it belongs to stands in the chain."""
        return "cache()"
