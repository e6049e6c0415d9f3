"""Writes rows that come one after the other, cut into shards, as they come."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import varying_nbytes
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Node, rows_per_block
from penstock.memory import Allocate
from penstock.shards.writing import ShardRecord, ShardWriter

SHARD_NBYTES = 256 << 20
MAX_SHARDS = 128  # If the number of rows is known. A stream has a reader for each file, so there must not be many.


class Filled(Protocol):
    """A folder that is being filled: here (`ShardFolder`), or behind a URL (`RemoteFolder`)."""

    @property
    def finished(self) -> dict[int, ShardRecord]:
        """The finished shards, by number."""
        ...

    @property
    def cursors(self) -> dict[int, Any]:
        """Where the input stood after each finished shard."""
        ...

    def shard(self, number: int, start: int) -> ShardWriter:
        """Return a new shard to write to."""
        ...

    def record(self, shard: ShardWriter, cursor: Any = None) -> None:
        """Finish a shard."""
        ...


class ShardSequence:
    """Writes parcels to a folder, beginning with the first shard that is not finished there.

    Where a shard ends depends on the rows alone, not on how they are cut into parcels: after `shard_rows`
    rows, or, where rows differ in size, after the row that brings the shard to 256 MB.
    """

    def __init__(
        self, folder: Filled, node: Node, allocate: Allocate, shard_rows: int | None
    ) -> None:
        self.folder = folder
        self.allocate = allocate
        self.number = 0
        while self.number in folder.finished:
            self.number += 1
        for number in [one for one in folder.finished if one > self.number]:
            del folder.finished[number], folder.cursors[number]
        self.num_rows = sum(folder.finished[one].num_rows for one in range(self.number))
        """Rows written, in finished shards and in the one being written."""
        self.cursor: Cursor = folder.cursors.get(self.number - 1)
        """Where the input stands after the finished shards; None at its start, and after the last shard."""
        self._by_nbytes = is_cut_by_nbytes(node, shard_rows)
        self._shard_rows = shard_rows or default_shard_rows(node)
        self._fixed_nbytes = fixed_nbytes(node)
        self._nbytes = 0
        self._shard: ShardWriter | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the last row is written already: only the last shard is recorded without a cursor."""
        return self.number > 0 and self.cursor is None

    def add(self, parcel: Parcel) -> None:
        """Write the rows of a parcel."""
        weights = None
        if self._by_nbytes:
            weights = np.cumsum(varying_nbytes(parcel.block, parcel.size) + self._fixed_nbytes)
        start = 0
        while start < parcel.size:
            if self._shard is None:
                self._shard = self.folder.shard(self.number, self.num_rows)
                self._nbytes = 0
            stop, is_full = self._stop(start, parcel.size, weights)
            self._shard.append(parcel.block, start, stop, self.allocate)
            self.num_rows += stop - start
            if is_full:
                self._record(parcel.cursor_after(stop))
            start = stop

    def _stop(self, start: int, size: int, weights: Any) -> tuple[int, bool]:
        """Return up to which row the shard takes the parcel, and whether the shard is full then."""
        assert self._shard is not None
        if weights is None:
            stop = min(size, start + self._shard_rows - self._shard.num_rows)
            return stop, self._shard.num_rows + stop - start >= self._shard_rows
        before = int(weights[start - 1]) if start else 0
        room = SHARD_NBYTES - self._nbytes
        stop = min(size, int(np.searchsorted(weights, before + room)) + 1)
        self._nbytes += int(weights[stop - 1]) - before
        return stop, self._nbytes >= SHARD_NBYTES

    def _record(self, cursor: Cursor) -> None:
        assert self._shard is not None
        self.folder.record(self._shard, cursor)
        self._shard = None
        self.number += 1
        self.cursor = cursor

    def finish(self) -> None:
        """Finish the last shard; if there was no row at all, write one empty shard."""
        if self._shard is None and not self.number:
            self._shard = self.folder.shard(0, 0)
        if self._shard is not None:
            self._record(None)

    def close(self) -> None:
        """Close and remove the shard that is not finished, if there is one."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None


def is_cut_by_nbytes(node: Node, shard_rows: int | None) -> bool:
    """Return whether shards end where they have 256 MB: rows differ in size, and no number of rows is asked for."""
    return shard_rows is None and node.is_varying


def fixed_nbytes(node: Node) -> int:
    """Return the bytes that the fields of one size have in each row."""
    return sum(field.nbytes for field in node.fields if field.storage_shape is not None)


def ends_by_nbytes(start: int, sizes: Iterable[Index]) -> Iterator[int]:
    """Yield where shards end if the first begins at row `start`, from the bytes of each row after it.

    As `ShardSequence` does: after the row that brings a shard to 256 MB. Rows after the last end are no full shard.
    """
    row, nbytes = start, 0
    for some in sizes:
        weights = np.cumsum(some, dtype=np.int64)
        done = 0
        while done < len(weights):
            before = int(weights[done - 1]) if done else 0
            stop = int(np.searchsorted(weights, before + SHARD_NBYTES - nbytes)) + 1
            if stop > len(weights):
                nbytes += int(weights[-1]) - before
                break
            yield row + stop
            done, nbytes = stop, 0
        row += len(weights)


def default_shard_rows(node: Node) -> int:
    """Return how many rows make a shard of 256 MB, or a larger one if there would be more than `MAX_SHARDS`."""
    rows = rows_per_block(node, SHARD_NBYTES)
    return rows if node.num_rows is None else max(rows, -(-node.num_rows // MAX_SHARDS))
