"""Rows of a flow that wait for others: for stages that make one row or block of several parcels."""

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.rows import Cursor, CursorAfter, Parcel


class Pending:
    """Rows that wait until their batch is full, in the blocks they came in."""

    def __init__(self) -> None:
        self.parts: list[tuple[Parcel, int]] = []
        self.num_rows = 0

    def add(self, parcel: Parcel) -> None:
        """Add the rows of a parcel."""
        if parcel.size:
            self.parts.append((parcel, 0))
            self.num_rows += parcel.size

    def move(self, rows: Block, lengths: Index) -> "Cursors":
        """Copy the rows of the next batches to `rows`; return the cursor after each batch."""
        ends = np.cumsum(lengths)
        total = int(ends[-1])
        used: list[tuple[int, CursorAfter, int]] = []
        filled = 0
        while filled < total:
            parcel, start = self.parts[0]
            stop = min(parcel.size, start + total - filled)
            slots = np.arange(filled, filled + stop - start)
            rows.at(slots).copy_from(parcel.block, np.arange(start, stop))
            used.append((filled, parcel.cursor_after, start))
            filled += stop - start
            if stop == parcel.size:
                self.parts.pop(0)
            else:
                self.parts[0] = (parcel, stop)
        self.num_rows -= total
        return Cursors(ends.tolist(), used)


class Cursors:
    """The cursor of the input after each batch, worked out only when it is asked for."""

    __slots__ = ("ends", "used")

    def __init__(self, ends: list[int], used: list[tuple[int, CursorAfter, int]]) -> None:
        self.ends = ends
        self.used = used

    def __call__(self, offset: int) -> Cursor:
        """Return the cursor after `offset` batches."""
        end = self.ends[offset - 1] if offset else 0
        parts = [part for part in self.used if part[0] < max(end, 1)]
        filled, cursor_after, start = parts[-1]
        return cursor_after(start + end - filled)
