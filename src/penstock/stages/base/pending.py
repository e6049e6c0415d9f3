"""Rows of a flow that wait for others: for stages that make one row or block of several parcels."""

from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block, varying_nbytes
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.rows import Context, Node

_SMALL_NBYTES = 1 << 14
_MANY = 16  # So many small parcels in a row are packed into one block: each takes a page, however small it is.


@dataclass(slots=True)
class _Part:
    """What is left of a parcel: rows `start` to `size` of it, which are `offset` further on in the block."""

    block: Block
    offset: int
    start: int
    size: int
    cursor_after: CursorAfter


class Pending:
    """Rows that wait until their batch is full, in the blocks they came in."""

    def __init__(self, node: Node, context: Context) -> None:
        self.node = node
        self.context = context
        self.parts: list[_Part] = []
        self.num_rows = 0
        self.num_small = 0
        """How many of the last parts are small, and in blocks of their own."""

    def add(self, parcel: Parcel) -> None:
        """Add the rows of a parcel."""
        if parcel.size:
            self.parts.append(_Part(parcel.block, 0, 0, parcel.size, parcel.cursor_after))
            self.num_rows += parcel.size
            self.num_small = self.num_small + 1 if parcel.block.nbytes <= _SMALL_NBYTES else 0
            if self.num_small == _MANY:
                self._pack(self.parts[-_MANY:])
                self.num_small = 0

    def _pack(self, parts: list[_Part]) -> None:
        block = self.context.block(self.node, sum(part.size - part.start for part in parts))
        filled = 0
        for part in parts:
            count = part.size - part.start
            slots = np.arange(filled, filled + count)
            block.at(slots).copy_from(part.block, part.offset + np.arange(part.start, part.size))
            part.offset = filled - part.start
            filled += count
        block.finish()
        for part in parts:
            part.block = block

    def varying_nbytes(self, num_rows: int) -> Index:
        """Return the bytes that each of the next rows takes, as far as they differ in size."""
        found = []
        for part in self.parts:
            sizes = varying_nbytes(part.block, part.offset + part.size)
            found.append(sizes[part.offset + part.start :])
        return np.concatenate(found)[:num_rows]

    def move(self, rows: Block, lengths: Index) -> "Cursors":
        """Copy the rows of the next batches to `rows`; return the cursor after each batch."""
        ends = np.cumsum(lengths)
        total = int(ends[-1])
        used: list[tuple[int, CursorAfter, int]] = []
        filled = 0
        while filled < total:
            part = self.parts[0]
            start, stop = part.start, min(part.size, part.start + total - filled)
            slots = np.arange(filled, filled + stop - start)
            rows.at(slots).copy_from(part.block, part.offset + np.arange(start, stop))
            used.append((filled, part.cursor_after, start))
            filled += stop - start
            if stop == part.size:
                self.parts.pop(0)
            else:
                part.start = stop
        self.num_rows -= total
        self.num_small = min(self.num_small, len(self.parts))
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
