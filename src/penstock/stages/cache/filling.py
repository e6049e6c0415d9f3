"""How a cache on disk of rows with random access is filled: by whichever threads ask for its rows.

Each shard grows from its beginning up to the last row that was asked for. The threads that want rows of
a shard take turns: each makes the next piece, and appends it once the pieces before it are written. Rows
of a shard that is not finished are read back from its open files.
"""

import os
import threading
from dataclasses import dataclass

import numpy as np

from penstock.core import forking
from penstock.core.arrays import Array, raw_rows
from penstock.core.blocks import Block, Sink
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.progress import begin
from penstock.core.read_count import count_read
from penstock.core.rows import Context, Node, Rows, RowSet, as_index, count, rows_per_block, shifted
from penstock.errors import StreamClosedError
from penstock.shards.folder import ShardFolder
from penstock.shards.layout import FieldLayout
from penstock.shards.varying import Entries, VaryingRows, room_for
from penstock.shards.writing import ArrayFile, ShardWriter
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.near_rows import near_rows
from penstock.sources.reading.parts import Part
from penstock.stages.cache.folder import CacheFolder, CacheTable

PIECE_NBYTES = 1 << 18  # The least that is made at once: tiny writes to files are slow.
_SHARD_NBYTES = 64 << 20
_LOOK_SECONDS = 0.05  # Between two looks whether the stream is closing: another stream may be late with its rows.
_MAX_SHARDS = 64  # Random reads fill all shards at once, and each has files open.


class _Growing(Entries):
    """An array whose file is being written."""

    checks = None

    def __init__(self, file: ArrayFile) -> None:
        self.file = file
        self.name = str(file.path)
        self.layout = file.layout

    @property
    def num_entries(self) -> int:  # type: ignore[override]  # It grows.
        """The entries that were written so far."""
        return self.file.num_entries

    def read(self, start: int, stop: int, context: Context) -> Array:
        """Return entries that were written."""
        memory, array = room_for(self.layout, stop - start, context)
        view = memory[: array.nbytes].data
        at = len(self.file.header) + start * self.layout.entry_nbytes
        while len(view):
            got = os.preadv(self.file.fd, [view], at)
            assert got > 0, "rows were read back before they were written"
            view, at = view[got:], at + got
        count_read(array.nbytes)
        return array


class _GrowingRows(Leaf):
    """Rows of one size, of a file that is being written."""

    how = "read back while it is written"

    def __init__(self, rows: _Growing, field: Field) -> None:
        self.rows = rows
        self.field = field
        self.num_rows = rows.num_entries

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read a slice at once, scattered rows by as few runs as is sensible."""
        assert isinstance(sink, Fixed)
        if isinstance(rows, slice):
            sink.put(self.rows.read(rows.start, rows.stop, context))
            return
        for first, stop, slots, picked in near_rows(rows, self.field.nbytes):
            values = self.rows.read(first, stop, context)
            sink.at(slots).gather(raw_rows(values, 1), picked)


def _leaf(layout: FieldLayout, field: Field, files: dict[str, ArrayFile], num_rows: int) -> Leaf:
    arrays = {role: _Growing(file) for role, file in files.items()}
    if layout.is_fixed:
        return _GrowingRows(arrays["rows"], field)
    return VaryingRows(layout, field, num_rows, arrays, _GrowingRows.how)


class _Shard:
    """Rows `start` to `stop` of the cache."""

    def __init__(self, filling: "Filling", number: int, start: int, stop: int) -> None:
        self.filling = filling
        self.number = number
        self.start = start
        self.num_rows = stop - start
        self.lock = threading.RLock()  # Not `with self.changed`: Ctrl-C could leave that locked.
        self.changed = threading.Condition(self.lock)
        self.writer: ShardWriter | None = None
        self.part: Part | None = None
        """The finished shard."""
        self.claimed = 0
        """Rows that some thread makes, or has made."""
        self.is_broken = False

    def read(self, rows: RowSet, out: Block, context: Context) -> bool:
        """Read rows of this shard, after making them if need be; return False if it can't be filled."""
        if self.part is None:
            last = rows.stop if isinstance(rows, slice) else int(rows.max()) + 1
            if not self._grow(last, count(rows), context):
                return False
            with self.lock:
                if self.part is None:
                    if self.writer is None:
                        return False
                    self._read_back(self.writer, rows, out, context)
                    return True
        part = self.part
        for layout, sink in zip(self.filling.folder.layouts, out.sinks, strict=True):
            part.leaves[layout.stem].read(rows, sink, context)
        return True

    def _read_back(self, writer: ShardWriter, rows: RowSet, out: Block, context: Context) -> None:
        fields = self.filling.node.fields
        for layout, field, files, sink in zip(
            writer.layouts, fields, writer.files, out.sinks, strict=True
        ):
            _leaf(layout, field, files, writer.num_rows).read(rows, sink, context)

    def _grow(self, until: int, size: int, context: Context) -> bool:
        """Make rows up to `until`, together with other threads; return whether they are there."""
        step = max(size, rows_per_block(self.filling.source, PIECE_NBYTES))
        while True:
            if context.executor.is_closing:
                raise StreamClosedError("the stream was closed.")
            with self.lock:
                if self._has(until):
                    return True
                if self.is_broken:
                    return False
                if self.claimed >= until:
                    self.changed.wait(_LOOK_SECONDS)
                    continue
                first = self.claimed
                last = min(self.num_rows, first + step)
                if self.num_rows - last <= step // 4:
                    last = self.num_rows  # A reader of every second row may never ask for the last.
                self.claimed = last
            try:
                self._make(first, last, context)
            except BaseException:
                with self.lock:
                    self.is_broken = True
                    self.changed.notify_all()
                raise

    def _make(self, first: int, last: int, context: Context) -> None:
        """Make rows `first` to `last`, and append them once the rows before them are written."""
        source = self.filling.source
        block = context.block(source, last - first)
        rows = slice(self.start + first, self.start + last)
        source.read(rows, block, context.of_epoch(0))
        block.finish()
        with self.lock:
            while not (self.is_broken or self._has(first)):
                self.changed.wait(_LOOK_SECONDS)
                if context.executor.is_closing:
                    raise StreamClosedError("the stream was closed.")
            if not self.is_broken:
                self._append(block, last - first, context)

    def _has(self, num_rows: int) -> bool:
        if self.part is not None:
            return True
        return num_rows <= (0 if self.writer is None else self.writer.num_rows)

    def _append(self, block: Block, size: int, context: Context) -> None:
        filling = self.filling
        if self.writer is None:
            self.writer = filling.folder.shard(self.number, self.start)
        self.writer.append(block, 0, size, context.allocate)
        filling.step.advance(size, block.nbytes)
        if self.writer.num_rows == self.num_rows:
            filling.finish(self.writer)
            self.writer = None
            self.part = filling.part(self.number)
        self.changed.notify_all()

    def close(self) -> None:
        """Drop the shard if it is not finished."""
        with self.lock:
            self.is_broken = self.part is None
            if self.writer is not None:
                self.writer.close()
                self.writer = None
            self.changed.notify_all()


class Filling:
    """A cache that this process fills, shared by all its streams; closed with the last of these."""

    def __init__(self, folder: ShardFolder, cache: CacheFolder, node: Node, source: Rows) -> None:
        self.folder = folder
        self.cache = cache
        self.node = node
        self.source = source
        self.num_visits = 0
        self.lock = threading.Lock()
        step = shard_rows(node)
        self.shards = [
            _Shard(self, number, start, min(start + step, source.num_rows))
            for number, start in enumerate(range(0, source.num_rows, step))
        ]
        self.starts = np.array([shard.start for shard in self.shards])
        for number in list(folder.finished):
            self.shards[number].part = self.part(number)
        done = sum(shard.num_rows for shard in self.shards if shard.part is not None)
        self.step = begin("caching", total=source.num_rows, done=done)

    @property
    def is_complete(self) -> bool:
        """Whether all shards are finished; where there are no rows, there is none."""
        return 0 < len(self.shards) == len(self.folder.finished)

    def part(self, number: int) -> Part:
        """Return a finished shard."""
        return self.cache.part(number, self.folder.finished[number], self.node)

    def finish(self, writer: ShardWriter) -> None:
        """Put a shard into the journal; with the last one, the cache is whole."""
        with self.lock:
            self.folder.record(writer)
            if self.is_complete:
                self.folder.seal()
                self.step.close()

    def read(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read rows, each from the shard it is in."""
        index = as_index(rows)
        owners = np.searchsorted(self.starts, index, side="right") - 1
        for number in np.unique(owners).tolist():
            shard = self.shards[number]
            slots = np.flatnonzero(owners == number)
            is_all = len(slots) == len(index)
            some = rows if is_all else index[slots]
            part = out if is_all else out.at(slots)
            if not shard.read(shifted(some, -shard.start), part, context):
                self.source.read(some, part, context.of_epoch(0))

    def close(self) -> None:
        """Drop unfinished shards, and let another process go on after the finished ones."""
        self.step.close()
        for shard in self.shards:
            shard.close()
        self.folder.close()


@dataclass(slots=True)
class Visit:
    """How one stream uses a cache: it reads the whole cache, takes part in filling it, or neither."""

    table: CacheTable | None = None
    filling: Filling | None = None

    def close(self) -> None:
        """Leave; the last stream to leave closes the filling."""
        filling, self.filling = self.filling, None
        if filling is None or filling is not _fillings.get(str(filling.cache.path)):
            return  # Of the parent, in a forked child.
        with filling.cache.lock:
            filling.num_visits -= 1
            if not filling.num_visits:
                _fillings.pop(str(filling.cache.path), None)
                filling.close()


_fillings: dict[str, Filling] = {}


def _leave_to_parent() -> None:
    """In a forked child: the caches that its parent fills are another process's now."""
    forking.keep_for_ever(dict(_fillings))
    _fillings.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def visit(cache: CacheFolder, node: Node, source: Rows) -> Visit:
    """Return a visit that takes part in filling a cache; an empty one if another process fills it."""
    with cache.lock:
        filling = _fillings.get(str(cache.path))
        if filling is None:
            folder = cache.begin(shard_rows(node))
            if folder is None:
                return Visit()
            if folder.is_whole:  # It was finished since we looked.
                folder.close()
                shards = cache.shards()
                assert shards is not None
                return Visit(table=CacheTable(cache, shards, node))
            filling = Filling(folder, cache, node, source)
            if filling.is_complete:  # Only the manifest was missing.
                folder.seal()
                filling.close()
                return visit(cache, node, source)
            _fillings[str(cache.path)] = filling
        elif not cache.is_same(filling.cache):
            return Visit()
        filling.num_visits += 1
        return Visit(filling=filling)


def shard_rows(node: Node) -> int:
    """Return how many rows make a shard: 64 MB, or more where there would be too many shards."""
    assert node.num_rows is not None
    return max(rows_per_block(node, _SHARD_NBYTES), -(-node.num_rows // _MAX_SHARDS))
