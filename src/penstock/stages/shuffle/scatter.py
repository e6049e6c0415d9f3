"""The exact shuffle of data that does not fit in memory: rows are scattered to buckets in scratch files.

One pass reads the data from front to back and writes each row to the bucket that its position
falls into. A bucket is as large as a window: it is read at once, and put into order in memory. The
order is the same that data in memory would get.
"""

import contextlib
import copy
import os
import tempfile
import threading
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from penstock.core.arrays import Index, raw_rows
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.descriptors import Descriptor
from penstock.core.order import Permutation
from penstock.core.progress import begin
from penstock.core.residues import Residue
from penstock.core.rows import Context, Rows, RowSet, as_index, bounds, count
from penstock.core.system import drop_from_page_cache, path_of_open
from penstock.errors import StreamClosedError
from penstock.io.atomic import check_space
from penstock.io.failures import write_errors
from penstock.io.local.reader import LocalReader
from penstock.io.location import Location
from penstock.memory import format_nbytes
from penstock.stages.base.stage import Stage
from penstock.stages.shuffle.loading import LoadingRows, Pass, Windows
from penstock.stages.shuffle.together import Together
from penstock.stages.shuffle.window_order import ShuffleWindow

_BUCKET_NBYTES = 64 << 20
# Read at once while scattering: large enough that a bucket gets long runs.
_CHUNK_NBYTES = 16 << 20
_PIECE_NBYTES = 4 << 20
_PAUSE = 0.1  # Seconds between two looks whether the stream is being closed.


@dataclass(frozen=True, slots=True)
class Buckets:
    """Positions divided into buckets; a bucket stores its rows in the order of their numbers."""

    order: Permutation
    bucket_rows: int
    residue: int = 0
    modulus: int = 1
    """Only positions p with `p % modulus == residue` are there: those of one rank."""

    @property
    def num_rows(self) -> int:
        """How many rows all buckets have."""
        return len(range(self.residue, self.order.num_rows, self.modulus))

    @property
    def num_windows(self) -> int:
        """How many buckets there are."""
        return -(-self.num_rows // self.bucket_rows)

    def bucket_of(self, position: int) -> int:
        """Return the bucket that a position falls into."""
        return position // self.modulus // self.bucket_rows

    def start_of(self, window: int) -> int:
        """Return the first position of a bucket."""
        return min(self.order.num_rows, window * self.bucket_rows * self.modulus)

    def wanted(self, rows: Index) -> tuple[Index, Index]:
        """Return which of some rows of the input are there, and the bucket of each of these."""
        positions = self.order.positions(rows)
        mine = np.flatnonzero(positions % self.modulus == self.residue)
        return mine, positions[mine] // self.modulus // self.bucket_rows

    def window(self, number: int) -> ShuffleWindow:
        """Return one bucket, with the place in it of the row at each position."""
        start = self.start_of(number) + self.residue
        positions = np.arange(start, self.start_of(number + 1), self.modulus)
        by_row = np.argsort(self.order.rows(positions), kind="stable")
        table = np.empty(len(positions), np.int64)
        table[by_row] = np.arange(len(positions))
        return ShuffleWindow(start, np.empty(0, np.int64), table, len(table), self.modulus)


class ScatteredRows(LoadingRows):
    """Rows in an exact random order, by way of scratch files as large as the data."""

    def __init__(self, stage: Stage, node: Rows, *, seed: int) -> None:
        super().__init__(stage, node)
        if any(field.storage_shape is None for field in node.fields):
            raise ValueError(
                "shuffle(exact=True) of rows whose sizes differ, on storage, is not possible; "
                "leave out exact=True, or .cache() them in memory first."
            )
        self.seed = seed
        self.num_shuffles += 1
        self.follows_epoch = True
        self.grains = ()
        width = max(1, self.row_nbytes)
        self.bucket_rows = max(1, _BUCKET_NBYTES // width)
        self.step_rows = max(1, _CHUNK_NBYTES // width)
        self.piece_rows = max(1, _PIECE_NBYTES // width)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows, of which only the wanted ones are written to scratch files."""
        made = copy.copy(self)
        made.wanted = wanted
        return made

    def buckets(self, epoch: int) -> Buckets:
        """Return where rows are scattered to."""
        return Buckets(self.order(epoch), self.bucket_rows, self.wanted.of(epoch), self.modulus)

    def order(self, epoch: int) -> Permutation:
        """Return the order of one epoch: that of the same rows in memory."""
        return Permutation(self.num_rows, (self.seed, epoch, self.input.num_shuffles))

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the numbers that rows have in the input."""
        return self.order(epoch).rows(as_index(rows))

    def fill_mine(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy rows from their buckets, after the pass that fills the buckets."""
        buckets = self.buckets(context.epoch)
        first, last = (buckets.bucket_of(row) for row in bounds(rows))
        if last - first > 1 or context.budget is None:
            self.input.read(buckets.order.rows(as_index(rows)), out, context)
            return
        windows = context.resources.get(
            ("windows", id(self)), lambda: Windows(self, self.piece_rows, context)
        )
        mine = Pass(buckets, context)
        with self._scratches(context).of(buckets, context, windows) as scratch:
            if scratch is None:
                self.input.read(buckets.order.rows(as_index(rows)), out, context)
                return
            scratch.scattering.complete()
            windows.copy_all(mine, rows, range(first, last + 1), out)
            windows.load_ahead(mine, last + 1, count(rows) / self.bucket_rows)

    def load(
        self, window: ShuffleWindow, rows: slice, columns: slice, block: Block, context: Context
    ) -> None:
        """Read rows of a bucket from the scratch files."""
        scratch = self._scratches(context).current
        assert scratch is not None
        scratch.read(window.start // self.modulus + rows.start, block)

    def _scratches(self, context: Context) -> "_Scratches":
        return context.resources.get(("scratch", id(self)), lambda: _Scratches(self))

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of a bucket, of one and a half, or two, or of what scattering takes if that is more."""
        rows = min(self.buckets(0).num_rows, self.bucket_rows)
        buckets = self.windows_nbytes(rows, self.piece_rows, ahead)
        buckets += (1 if ahead < 2 else 2) * 16 * rows
        chunk = self.block_nbytes(min(self.num_rows, self.step_rows))
        scattering = max(1, ahead) * (2 * chunk + self.input.staging_nbytes(self.step_rows))
        return max(buckets, scattering) + self.input.retained_nbytes(ahead)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return 0: all that reading takes is retained, and counted by `retained_nbytes`."""
        return 0

    def order_key(self) -> tuple[Hashable, ...]:
        """Return the seed and the number of rows: the order is that of rows in memory."""
        return (self.seed, self.input.num_shuffles), self.num_rows

    def how_mixed(self) -> float | None:
        """Return how well rows are mixed: as well as can be."""
        return 1.0

    def choice(self) -> str:
        """Return how it shuffles, and what that costs."""
        buckets = self.buckets(0)
        total = format_nbytes(buckets.num_rows * self.row_nbytes)
        return (
            f"exact, by scatter: each epoch writes {total} to scratch under the temporary folder (or "
            f"with_options(scratch=...)) and reads it back in {buckets.num_windows} "
            "buckets; resuming costs a pass; mixing 1.00"
        )

    def rank_note(self, world: int) -> str:
        """Return how much one rank of `world` reads."""
        part = "all of it" if self.modulus == 1 else f"its own 1/{self.modulus}"
        return f"every rank reads all data once an epoch, and writes {part} to scratch."


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Rows `start` to `stop` of the input, and where they go."""

    start: int
    stop: int
    rows: Index
    """Which of these are wanted."""
    owners: Index
    """The bucket of each wanted row."""
    counts: Index
    """How many rows of the chunk go to each bucket."""
    targets: Index
    """For each bucket, where in the scratch files the first of these rows goes."""


class _Scratches:
    """The scratch files of a stream: those of one pass, however many a `repeat` makes of the rows."""

    def __init__(self, node: ScatteredRows) -> None:
        self.node = node
        self.current: _Scratch | None = None
        self._lock = threading.RLock()  # Not `with self._changed`: Ctrl-C could leave that locked.
        self._changed = threading.Condition(self._lock)
        self._epoch = -1
        self._num_users = 0
        self._left = -1
        """The pass whose files were removed last."""
        self._num_late = 0
        """How many blocks of it were asked for since."""

    def close(self) -> None:
        """Let go of the files, which removes them."""
        if self.current is not None:
            self.current.close()

    @contextlib.contextmanager
    def of(
        self, buckets: Buckets, context: Context, windows: Windows
    ) -> "Iterator[_Scratch | None]":
        """Hold on to the files of a pass, in the place of those of the pass before; None for a thread that is late.

        Threads with blocks of the pass before are waited for: they have begun before this one.
        """
        if context.epoch not in (self._epoch, self._left):
            # Without the lock: threads with rows of the pass before may be about to ask for it.
            windows.end_other_passes(context.epoch)
        with self._lock:
            is_late = not self._begin(buckets, context, windows)
            self._num_users += not is_late
        if is_late:
            yield None
            return
        try:
            yield self.current
        finally:
            with self._lock:
                self._num_users -= 1
                self._changed.notify_all()

    def _begin(self, buckets: Buckets, context: Context, windows: Windows) -> bool:
        if self._left == context.epoch and self._num_late < context.ahead:
            self._num_late += 1
            return False
        while self._epoch != context.epoch and self._num_users:
            self._changed.wait(_PAUSE)
            if context.executor.is_closing:
                raise StreamClosedError("the stream was closed.")
        if self._epoch == context.epoch:
            return True
        windows.end_other_passes(context.epoch)
        self.close()
        self.current = None
        self._left, self._num_late = self._epoch, 0
        self.current = _Scratch(self.node, buckets, context)
        self._epoch = context.epoch
        return True


class _Scratch:
    """Files without a name, one for each field: the system removes them however the process ends."""

    def __init__(self, node: ScatteredRows, buckets: Buckets, context: Context) -> None:
        self.node = node
        self.buckets = buckets
        self.widths = [field.nbytes for field in node.fields]
        where = context.scratch or tempfile.gettempdir()
        self.where = f"scratch of shuffle(exact=True) in {where}"
        check_space(Path(where), buckets.num_rows * sum(self.widths))
        self.step = begin("putting rows in exact order", total=node.num_rows)
        self.files: list[Descriptor] = []
        self.readers: list[LocalReader] = []
        try:
            for width in self.widths:
                with write_errors(self.where), tempfile.TemporaryFile(dir=where) as file:
                    fd = os.dup(file.fileno())
                    self.files.append(Descriptor(fd, is_private=True))
                place = Location(path_of_open(fd), buckets.num_rows * width)
                self.readers.append(LocalReader(place, direct=True))
        except BaseException:
            self.close()
            raise
        self.filled = np.zeros(buckets.num_windows, np.int64)
        num_chunks = -(-node.num_rows // node.step_rows)
        self.scattering = Together(
            num_chunks, self._begin, partial(self._write, context), self.step.close
        )

    def close(self) -> None:
        """Let go of the files, which removes them."""
        self.step.close()
        for reader in self.readers:
            reader.close()
        for file in self.files:
            file.close()

    def _begin(self, chunk: int) -> _Chunk:
        """Return where the rows of a chunk go: in each bucket, after the rows of the chunks before."""
        start = chunk * self.node.step_rows
        stop = min(start + self.node.step_rows, self.node.num_rows)
        rows, owners = self.buckets.wanted(np.arange(start, stop))
        counts = np.bincount(owners, minlength=len(self.filled))
        targets = self.filled + np.arange(len(self.filled)) * self.buckets.bucket_rows
        self.filled += counts
        return _Chunk(start, stop, rows, owners, counts, targets)

    def _write(self, context: Context, chunk: _Chunk) -> None:
        if context.executor.is_closing:
            raise StreamClosedError("the stream was closed.")
        by_bucket = chunk.rows[np.argsort(chunk.owners, kind="stable")]
        counts, size = chunk.counts, chunk.stop - chunk.start
        read = context.block(self.node.input, size)
        self.node.input.read(slice(chunk.start, chunk.stop), read, context)
        ordered = context.block(self.node, len(by_bucket))
        ordered.copy_from(read.finish(), by_bucket)
        ends = np.cumsum(counts)
        for file, width, sink in zip(self.files, self.widths, ordered.sinks, strict=True):
            assert isinstance(sink, Fixed)
            if width == 0:
                continue
            memory = raw_rows(sink.rows, 1).reshape(-1).data
            for bucket in np.flatnonzero(counts).tolist():
                first, last = int(ends[bucket] - counts[bucket]), int(ends[bucket])
                part, at = memory[first * width : last * width], int(chunk.targets[bucket]) * width
                with write_errors(self.where):
                    _write_all(file.number, part, at)
            drop_from_page_cache(file.number)
        self.step.advance(size, size * sum(self.widths))

    def read(self, first: int, out: Block) -> None:
        """Read the rows from `first` on from the scratch files, as many as `out` has room for."""
        for reader, width, sink in zip(self.readers, self.widths, out.sinks, strict=True):
            assert isinstance(sink, Fixed)
            if width == 0:
                continue
            memory = raw_rows(sink.rows, 1).reshape(-1)
            assert len(memory) == out.num_rows * width
            # Past the page cache: no bucket is read twice.
            reader.read_into(memory, first * width)


def _write_all(file: int, memory: memoryview, offset: int) -> None:
    done = 0
    while done < len(memory):
        done += os.pwrite(file, memory[done:], offset + done)
