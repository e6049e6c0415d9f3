"""The largest rows that a stream has met, where rows differ in size: a refusal tells by them which budget would do."""

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.blocks import Block, varying_nbytes


@dataclass(slots=True)
class Seen:
    """What was seen of the rows of one node."""

    num_rows: int = 0
    largest: int = 0
    """The bytes of its largest row, as far as it differs from others."""
    row: int = 0
    """The number of that row, counted from the first one that this stream has read."""
    cursor_after: Any = None
    """For rows of a flow: gives the cursor after so many rows of the block that the row is in."""
    offset: int = 0
    batch_rows: int = 0
    """For batches of nobody knew how many rows: how many the largest has, if that was counted."""
    batch_nbytes: int = 0
    """The bytes of all rows, as far as they differ, if one batch has all of them."""
    row_tops: tuple[int, ...] = ()
    """For batches: the bytes of the 1, 2, 4, ... largest rows that they are made of, as far as they differ."""


class Sizes:
    """The largest row of each node whose rows differ in size; any thread may add to it."""

    def __init__(self) -> None:
        self.seen: dict[int, Seen] = {}
        self._lock = threading.Lock()

    def note(
        self, node: Any, block: Block, size: int, first: int | None, cursor_after: Any = None
    ) -> None:
        """Look at a block of rows of `node`, the first of which has the number `first` (None: the next one)."""
        if not size:
            return
        sizes = varying_nbytes(block, size)
        place = int(np.argmax(sizes))
        with self._lock:
            seen = self.seen.setdefault(id(node), Seen())
            if int(sizes[place]) > seen.largest:
                seen.largest = int(sizes[place])
                seen.row = place + (seen.num_rows if first is None else first)
                seen.cursor_after, seen.offset = cursor_after, place
            seen.num_rows += size

    def of(self, node: Any) -> Seen:
        """Return what was seen of a node."""
        return self.seen.get(id(node), Seen())
