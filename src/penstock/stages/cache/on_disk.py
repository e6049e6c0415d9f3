"""cache(path): the rows of the first epoch, stored in a folder of `.npy` shards.

The first pass writes the cache while it hands out rows; later passes, and other processes, read it. The
process that fills it holds a lock on the folder. Others meanwhile take the rows from the input, and
write nothing.
"""

import os
import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from penstock.core.blocks import Block
from penstock.core.grains import Grain
from penstock.core.parcels import Cursor, Parcel
from penstock.core.progress import Step, begin
from penstock.core.rows import Context, Flow, Rows, RowSet, rows_per_block
from penstock.errors import PenstockError, StreamClosedError
from penstock.shards.folder import ShardFolder
from penstock.shards.sequence import ShardSequence, default_shard_rows
from penstock.stages.base.segment import Segment
from penstock.stages.base.stage import Stage
from penstock.stages.cache.base import CacheFlow, CacheRows
from penstock.stages.cache.filling import PIECE_NBYTES, Visit, visit
from penstock.stages.cache.folder import CacheFolder, CacheTable

_POLL_SECONDS = 0.05  # Between two looks whether another process is still filling the cache.


class RowsOnDisk(CacheRows):
    """Rows that are read once; a shard is filled from its beginning up to what is asked for."""

    def __init__(self, stage: Stage, node: Rows, path: str, key: str | None) -> None:
        super().__init__(stage, node)
        self.folder = CacheFolder(path, node, key)
        self.grains = (Grain(1, self.row_nbytes),)

    def fill_cached(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read rows from the cache, after writing those that are missing."""
        visiting = context.resources.get(("cache", id(self)), self._visit)
        if visiting.table is not None:
            visiting.table.read(rows, out, context)
        elif visiting.filling is not None:
            visiting.filling.read(rows, out, context)
        else:
            self.input.read(rows, out, context.of_epoch(0))

    def _visit(self) -> Visit:
        shards = self.folder.shards()
        if shards is not None:
            return Visit(table=CacheTable(self.folder, shards, self))
        return visit(self.folder, self, self.input)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that making the rows takes, and reading them back."""
        rows = max(num_rows, rows_per_block(self, PIECE_NBYTES))
        rows += rows // 4  # The last piece of a shard also takes the few rows that are left.
        varies = any(field.storage_shape is None for field in self.fields)
        copies = 4 if varies else 2
        return self.input.staging_nbytes(rows) + copies * self.block_nbytes(rows)

    def choice(self) -> str:
        """Return where the cache is, and when it is filled."""
        if self.folder.shards() is not None:
            return "on disk, whole: nothing before it is run"
        return "on disk; rows are written when they are first read"


class FlowOnDisk(CacheFlow):
    """A flow that is written while it is first read; after that, random access.

    The cursor is a row number. While the cache is not whole, rows of finished shards are read from these;
    the rest comes from the input, which goes on from its cursor after the last finished shard.
    """

    def __init__(self, stage: Stage, flow: Flow, path: str, key: str | None) -> None:
        super().__init__(stage, flow)
        self.folder = CacheFolder(path, flow, key)
        self.grains = (Grain(1, self.row_nbytes),)
        self.shard_rows = default_shard_rows(self)

    def cached_parcels(self, row: int, context: Context) -> Iterator[Parcel]:
        """Return the rows from a row number on; rows that are not cached yet are written on the way."""
        table = self._whole()
        if table is not None:
            return Segment(table).parcels(row, context)
        return self._first_pass(row, context)

    def _whole(self) -> CacheTable | None:
        shards = self.folder.shards()
        return None if shards is None else CacheTable(self.folder, shards, self)

    def _first_pass(self, row: int, context: Context) -> Iterator[Parcel]:
        filled = self.folder.begin(self.shard_rows)
        if filled is None:  # Another stream or process fills it: only read the input.
            yield from self._input_rows(row, 0, None, None, context, Step())
            return
        streaming.add(str(self.folder.path))
        try:
            if filled.is_whole:  # It was finished since we looked.
                table = self._whole()
                assert table is not None
                yield from Segment(table).parcels(row, context)
            else:
                yield from self._fill(filled, row, context, Step())
        finally:
            streaming.discard(str(self.folder.path))
            filled.close()

    def _fill(
        self, filled: ShardFolder, row: int, context: Context, step: Step
    ) -> Iterator[Parcel]:
        """Yield rows of finished shards, then rows of the input, which are also written."""
        shards = ShardSequence(filled, self, context.allocate, None)
        try:
            start, cursor = shards.num_rows, shards.cursor
            step.advance(start)
            if row < start:
                finished = tuple(filled.finished[number] for number in range(shards.number))
                yield from Segment(CacheTable(self.folder, finished, self)).parcels(row, context)
            if not shards.has_ended:
                yield from self._input_rows(row, start, cursor, shards, context, step)
            shards.finish()
            filled.seal()
        finally:
            shards.close()

    def _input_rows(
        self,
        row: int,
        start: int,
        cursor: Cursor,
        shards: ShardSequence | None,
        context: Context,
        step: Step,
    ) -> Iterator[Parcel]:
        """Yield the rows from `row` on, read from the input at `cursor`, whose next row is row `start`."""
        for parcel in self.input.parcels(cursor, context.of_epoch(0)):
            if shards is not None:
                shards.add(parcel)
            skipped = min(parcel.size, max(0, row - start))
            after = partial(_advance, start + skipped)
            if skipped == 0:
                yield Parcel(parcel.block, parcel.size, after)
            elif skipped < parcel.size:
                block = context.block(self, parcel.size - skipped)
                block.copy_from(parcel.block, np.arange(skipped, parcel.size))
                yield Parcel(block.finish(), parcel.size - skipped, after)
                del block
            start += parcel.size
            step.advance(parcel.size, parcel.block.nbytes)
            del parcel

    def table(self, context: Context) -> Rows:
        """Return the cached rows, with random access, after reading the flow to its end if nobody has."""
        while True:
            with self.folder.lock:
                table = self._whole()
                if table is not None:
                    return table
                if str(self.folder.path) in streaming:
                    raise PenstockError(
                        f"the cache in {self.folder.path} is being written by another stream of this "
                        "process, and shuffle needs all of it; read that stream to its end, or close "
                        "it, before this one starts."
                    )
                filled = self.folder.begin(self.shard_rows)
                if filled is not None:
                    self._fill_now(filled, context)
                    continue
            if context.executor.is_closing:
                raise StreamClosedError("the stream was closed.")
            time.sleep(_POLL_SECONDS)

    def _fill_now(self, filled: ShardFolder, context: Context) -> None:
        try:
            if not filled.is_whole:
                with begin("caching", total=self.num_rows) as step:
                    for parcel in self._fill(filled, _NO_ROW, context, step):
                        del parcel
        finally:
            filled.close()

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, and the blocks that are read back."""
        rows = rows_per_block(self, block_nbytes)
        back = (ahead + 2) * self.block_nbytes(rows) + max(1, ahead) * PIECE_NBYTES
        return back + self.input.holds_nbytes(block_nbytes, ahead)

    def choice(self) -> str:
        """Return where the cache is, and when it is filled."""
        shards = self.folder.shards()
        if shards is not None:
            rows = sum(shard.num_rows for shard in shards)
            return f"on disk, whole: {rows} rows, and nothing before it is run"
        return "on disk; written while it is first read"


_NO_ROW = 1 << 62  # Past any row: nothing is handed out.
streaming: set[str] = set()
os.register_at_fork(after_in_child=streaming.clear)
"""Folders that a stream of this process fills while it is read: only reading that stream on finishes them."""


def _advance(start: int, offset: int) -> int:
    return start + offset
