"""cache() without a path: the rows of the first epoch in memory, in the order they had."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from penstock.core import forking
from penstock.core.arrays import Index, raw_rows
from penstock.core.blocks import Block, varying_nbytes
from penstock.core.columns import Fixed
from penstock.core.fields import allocate_block
from penstock.core.parcels import Parcel
from penstock.core.progress import begin
from penstock.core.route import Route, Tables
from penstock.core.rows import Context, Flow, Node, Rows, RowSet, as_index, rows_per_block
from penstock.memory import ALIGNMENT, Account, Pool, buffer_nbytes, process_ledger
from penstock.memory.pool import Bytes
from penstock.stages.base.segment import Segment
from penstock.stages.base.stage import Stage
from penstock.stages.cache.base import CacheFlow, CacheRows

_CHUNK_NBYTES = 1 << 22
_PIECE_NBYTES = 1 << 13  # Each piece of a column without a fixed size is rounded up to pages.
_SLAB_NBYTES = 1 << 20  # Small pieces share memory: a page for each would be a waste.


class Store:
    """The memory of one cache, shared by all streams over it, and freed with the last dataset that has it."""

    def __init__(self) -> None:
        self.lock = forking.rlock()
        self._forget()
        _stores.add(self)

    def _forget(self) -> None:
        self.pool: Pool | None = None
        self.account: Account | None = None
        self.block: Block | None = None
        self.is_filled: np.ndarray[Any, np.dtype[np.bool_]] | None = None
        self.chunk_locks: list[threading.Lock] = []
        self.table: StoredRows | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all rows are in it."""
        return self.table is not None or (self.is_filled is not None and bool(self.is_filled.all()))

    def leave_to_parent(self) -> None:
        """In a forked child: start anew if the parent has not filled it yet; what is whole is only read, by both."""
        if not self.is_whole:
            self._forget()

    def __reduce__(self) -> tuple[type["Store"], tuple[()]]:
        """A copy in another process starts empty."""
        return Store, ()

    def reserve(self, nbytes: int, context: Context, name: str) -> Pool:
        """Set `nbytes` more aside for this cache, or raise with the budget that would do."""
        with self.lock:
            why = "a cache in memory keeps every row"
            budget = context.budget or 0
            if self.account is None or self.pool is None:
                self.account = Account(process_ledger, name)
                weakref.finalize(self, self.account.close)
                self.account.open(budget=budget, need=nbytes, want=nbytes, why=why)
                self.pool = Pool(self.account)
            else:
                process_ledger.extend(self.account, nbytes, budget=budget, why=why)
            return self.pool

    def release(self) -> None:
        """Give the memory back, after filling the cache failed: the next stream tries again."""
        if self.account is not None:
            self.account.close()
        self.account = self.pool = None


_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    for store in list(_stores):
        store.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


class StoredRows(Rows):
    """The rows of a full cache, in the blocks that they were packed into."""

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
        """Return the call that made it."""
        return "cache()"

    def fingerprint(self) -> Any:
        """Return its name only: the chain has the cache that these rows belong to."""
        return ["cache"]


class RowsInMemory(CacheRows):
    """Rows that are read once; a chunk of them is filled when it is first asked for."""

    def __init__(self, stage: Stage, node: Rows, store: Store) -> None:
        super().__init__(stage, node)
        self.store = store
        self.grains = ()  # From here on, the rows are in memory.
        self.is_fixed = all(f.storage_shape is not None for f in node.fields)
        self.step_rows = rows_per_block(node, _CHUNK_NBYTES)

    ends_routes = True

    def route(self, epoch: int) -> Route | None:
        """Return the cached rows, once all are there."""
        with self.store.lock:
            block = self.store.block
            if block is None or self.is_batched or not self.store.is_whole:
                return None
            columns = [column for column in block.columns if isinstance(column, Fixed)]
            tables = tuple(raw_rows(column.rows, 1) for column in columns)
            return Tables(tables) if tables else None

    def fill_cached(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows from the cache; fill what is missing first."""
        index = as_index(rows)
        if not self.is_fixed:
            self._table(context).fill(index, out, context)
            return
        block = self._block(context)
        for chunk in np.unique(index // self.step_rows).tolist():
            self._fill_chunk(chunk, block, context.of_epoch(0))
        out.copy_from(block, index)

    def _block(self, context: Context) -> Block:
        store = self.store
        with store.lock:
            if store.block is None:
                pool = store.reserve(self._stored_nbytes(), context, self.describe())
                try:
                    self._allocate(pool)
                except BaseException:
                    store.release()
                    raise
            assert store.block is not None
            return store.block

    def _allocate(self, pool: Pool) -> None:
        store = self.store
        block = allocate_block(self.fields, self.num_rows, pool.lease, aligned=self.is_batched)
        chunks = -(-self.num_rows // self.step_rows)
        store.is_filled = np.zeros(chunks, bool)
        store.chunk_locks = [threading.Lock() for _ in range(chunks)]
        store.block = block.finish()

    def _table(self, context: Context) -> "StoredRows":
        """Return rows that differ in size, all of which are read when the first is asked for."""
        store = self.store
        with store.lock:
            if store.table is None:
                pool = store.reserve(self._stored_nbytes(), context, self.describe())
                blocks = []
                try:
                    for start in range(0, self.num_rows, self.step_rows):
                        stop = min(self.num_rows, start + self.step_rows)
                        block = allocate_block(
                            self.fields, stop - start, pool.lease, aligned=self.is_batched
                        )
                        self.input.read(slice(start, stop), block, context.of_epoch(0))
                        blocks.append(block.finish())
                except BaseException:
                    store.release()
                    raise
                store.table = StoredRows(self, blocks)
            return store.table

    def _stored_nbytes(self) -> int:
        nbytes = max(1, self.block_nbytes(self.num_rows))
        if self.is_fixed:
            return nbytes
        # Pieces have pages of their own, and those of one chunk are joined and put in order: three copies.
        chunks = -(-self.num_rows // self.step_rows)
        beside = 2 * self.block_nbytes(min(self.num_rows, self.step_rows))
        return nbytes + beside + _PIECE_NBYTES * len(self.fields) * (chunks + 2)

    def cache_nbytes(self) -> dict[int, int]:
        """Return the bytes that filling the cache will take, if no stream has set them aside yet."""
        store = self.store
        own = {} if store.account is not None else {id(store): self._stored_nbytes()}
        return {**super().cache_nbytes(), **own}

    def kept_nbytes(self) -> dict[int, int]:
        """Return the bytes of the cache, once a stream has set them aside."""
        account = self.store.account
        own = {} if account is None else {id(self.store): account.grant}
        return {**super().kept_nbytes(), **own}

    def _fill_chunk(self, chunk: int, block: Block, context: Context) -> None:
        store = self.store
        assert store.is_filled is not None
        if not store.is_filled[chunk]:
            with store.chunk_locks[chunk]:
                if not store.is_filled[chunk]:
                    self._read_chunk(chunk, block, context)
                    store.is_filled[chunk] = True

    def _read_chunk(self, chunk: int, block: Block, context: Context) -> None:
        start = chunk * self.step_rows
        stop = min(self.num_rows, start + self.step_rows)
        self.input.read(slice(start, stop), block.at(np.arange(start, stop)), context)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that filling a chunk takes."""
        return self.input.staging_nbytes(min(self.step_rows, max(1, self.num_rows)))

    def choice(self) -> str:
        """Return when it is filled."""
        return "in memory; each chunk is filled when it is first read"


class FlowInMemory(CacheFlow):
    """A flow read once, to its end, when a stream over it starts; after that, random access."""

    def __init__(self, stage: Stage, flow: Flow, store: Store) -> None:
        super().__init__(stage, flow)
        self.store = store
        self.grains = ()  # From here on, the rows are in memory.

    def cached_parcels(self, row: int, context: Context) -> Iterator[Parcel]:
        """Return the rows of the cache, which is filled first."""
        return Segment(self.table(context)).parcels(row, context)

    def cache_nbytes(self) -> dict[int, int]:
        """Return what this cache will take until it is filled: 0 if that is not known before."""
        store = self.store
        if store.table is not None:
            return super().cache_nbytes()
        is_known = self.num_rows is not None and not self.is_varying
        return {**super().cache_nbytes(), id(store): self._known_nbytes() if is_known else 0}

    def kept_nbytes(self) -> dict[int, int]:
        """Return the bytes of the cache, once it is full."""
        account = self.store.account if self.store.table is not None else None
        own = {} if account is None else {id(self.store): account.grant}
        return {**super().kept_nbytes(), **own}

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds while it is read or, if that is more, blocks of its rows afterwards."""
        block = self.block_nbytes(rows_per_block(self, block_nbytes))
        # Rows that differ in size are there as pieces, and joined.
        copies = 1 if not self.is_varying else 2 * max(1, ahead)
        return max((ahead + 1 + copies) * block, self.input.holds_nbytes(block_nbytes, ahead))

    def _known_nbytes(self) -> int:
        """Return the bytes of rows of one size, whose number is known."""
        assert self.num_rows is not None
        whole, rest = divmod(self.num_rows, rows_per_block(self, _CHUNK_NBYTES))
        chunk = self.block_nbytes(rows_per_block(self, _CHUNK_NBYTES))
        return max(1, whole * chunk + (self.block_nbytes(rest) if rest else 0))

    def count_nbytes(self, context: Context, most: int, until: float) -> int:
        """Return the bytes that the rows will take, after reading all of them and keeping none.

        Stop past `most` bytes, and at the time `until` of `monotonic`.
        """
        num_rows = values = 0
        for parcel in self.input.parcels(None, context.of_epoch(0)):
            num_rows += parcel.size
            values += int(varying_nbytes(parcel.block, parcel.size).sum())
            nbytes = self._packed_nbytes(num_rows, values)
            if nbytes > most or monotonic() > until:
                return nbytes
        return self._packed_nbytes(num_rows, values)

    def _packed_nbytes(self, num_rows: int, values: int) -> int:
        fixed = [field for field in self.fields if field.storage_shape is not None]
        nbytes = num_rows * sum(field.stride(aligned=self.is_batched) for field in fixed)
        if self.is_varying:
            # A third is lost at most where pieces share memory, and each piece starts on 64 bytes.
            nbytes += values + 2 * ALIGNMENT * (1 + len(self.fields)) * num_rows
            return nbytes + nbytes // 3 + 2 * _SLAB_NBYTES
        # Blocks double in size, up to a chunk, and are rounded up to pages.
        return min(2 * nbytes + (1 << 16), nbytes + nbytes // 8 + 2 * _CHUNK_NBYTES)

    def table(self, context: Context) -> StoredRows:
        """Return the cached rows, after reading the flow to its end the first time."""
        store = self.store
        with store.lock:
            if store.table is None:
                filling = _Filling(self, context)
                try:
                    with begin("caching", total=self.num_rows) as step:
                        for parcel in self.input.parcels(None, context.of_epoch(0)):
                            filling.add(parcel)
                            step.advance(parcel.size, parcel.block.nbytes)
                except BaseException:
                    store.release()
                    raise
                store.table = StoredRows(self, filling.finish())
            return store.table

    def choice(self) -> str:
        """Return when it is filled."""
        return "in memory; read to its end when the first stream starts"


class _Slabs:
    """Memory for many small pieces, several of which share a mapping of the cache."""

    def __init__(self, reserve: Callable[[int], Pool]) -> None:
        self.reserve = reserve
        self.slab: Bytes | None = None
        self.used = 0
        self.size = 1 << 14

    def lease(self, nbytes: int) -> Bytes:
        """Return memory that starts on 64 bytes; large pieces get a mapping of their own."""
        if 4 * nbytes > _SLAB_NBYTES:
            return self.reserve(buffer_nbytes(nbytes)).lease(nbytes)
        start = -(-self.used // ALIGNMENT) * ALIGNMENT
        if self.slab is None or start + nbytes > len(self.slab):
            self.size = min(_SLAB_NBYTES, max(2 * self.size, 4 * nbytes))
            self.slab = self.reserve(buffer_nbytes(self.size)).lease(self.size)
            start = 0
        self.used = start + nbytes
        return self.slab[start : start + nbytes]


class _Filling:
    """Packs parcels into blocks that double in size: whole pages for each parcel would be a waste."""

    def __init__(self, flow: FlowInMemory, context: Context) -> None:
        self.flow = flow
        self.is_fixed = all(f.storage_shape is not None for f in flow.fields)
        self.most = rows_per_block(flow, _CHUNK_NBYTES)
        self.blocks: list[Block] = []
        self.used = 0
        """Rows in the last block."""
        self.reserve = partial(flow.store.reserve, context=context, name=flow.describe())
        self.slabs = _Slabs(self.reserve)

    def add(self, parcel: Parcel) -> None:
        """Copy the rows of a parcel."""
        if not self.is_fixed:
            # Rows differ in size: those of a parcel are a block of their own.
            fields, is_aligned = self.flow.fields, self.flow.is_batched
            block = allocate_block(fields, parcel.size, self.slabs.lease, aligned=is_aligned)
            block.copy_from(parcel.block, np.arange(parcel.size))
            self.blocks.append(block.finish())
            block.sinks = []  # They refer to the memory of the cache, and so to the cache: a cycle.
            self.used = parcel.size
            return
        start = 0
        while start < parcel.size:
            if not self.blocks or self.used == self.blocks[-1].num_rows:
                self._add_block(parcel.size - start)
            block = self.blocks[-1]
            stop = min(parcel.size, start + block.num_rows - self.used)
            slots = np.arange(self.used, self.used + stop - start)
            block.at(slots).copy_from(parcel.block, np.arange(start, stop))
            self.used += stop - start
            start = stop

    def _add_block(self, num_rows: int) -> None:
        last = self.blocks[-1].num_rows if self.blocks else 0
        num_rows = min(self.most, max(num_rows, 2 * last))
        if self.flow.num_rows is not None:
            done = sum(block.num_rows for block in self.blocks)
            num_rows = max(1, min(self.most, self.flow.num_rows - done))
        pool = self.reserve(self.flow.block_nbytes(num_rows))
        is_aligned = self.flow.is_batched
        self.blocks.append(
            allocate_block(self.flow.fields, num_rows, pool.lease, aligned=is_aligned)
        )
        self.used = 0

    def finish(self) -> list[Block]:
        """Return the blocks; the last one is cut to the rows that it has."""
        if self.blocks:
            self.blocks[-1].num_rows = self.used
        return [block.finish() for block in self.blocks] if self.is_fixed else self.blocks
