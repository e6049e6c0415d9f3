"""The exact shuffle of data that does not fit in memory: rows are scattered to buckets in a scratch file.

One pass reads the data from front to back and writes each row to the bucket that its position
falls into. A bucket is as large as a window: it is read at once, and put into order in memory. The
order is the same that data in memory would get.
"""

import contextlib
import copy
import threading
from collections.abc import Hashable, Iterator

from penstock.core.blocks import Block
from penstock.core.order import Permutation
from penstock.core.residues import Residue
from penstock.core.rows import Context, Rows, RowSet, as_index, bounds, count
from penstock.errors import StreamClosedError
from penstock.memory import buffer_nbytes, format_nbytes
from penstock.stages.base.stage import Stage
from penstock.stages.shuffle.buckets import Buckets, Records, Scattering
from penstock.stages.shuffle.loading import LoadingRows, Pass, Windows
from penstock.stages.shuffle.window_order import ShuffleWindow

_BUCKET_NBYTES = 64 << 20
_MOST_BUCKETS = (
    4096  # Of more data buckets are larger: there is a number for each bucket in each chunk.
)
# Read at once while scattering: large enough that the rows of a bucket make runs which a disk likes. So it is up to
# four times as much for more buckets than this.
_CHUNK_NBYTES = 16 << 20
_MANY_BUCKETS = 128
_PIECE_NBYTES = 4 << 20
_PAUSE = 0.1  # Seconds between two looks whether the stream is being closed.


class ScatteredRows(LoadingRows):
    """Rows in an exact random order, by way of a scratch file as large as the data."""

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
        self.records = Records(self.fields, aligned=self.is_batched)
        width = max(1, self.records.nbytes)
        nbytes = self.num_rows * width
        self.bucket_rows = max(1, max(_BUCKET_NBYTES, nbytes // _MOST_BUCKETS) // width)
        num_buckets = -(-self.num_rows // self.bucket_rows)
        self.step_rows = max(
            1, _CHUNK_NBYTES * min(max(1, num_buckets // _MANY_BUCKETS), 4) // width
        )
        self.piece_rows = max(1, _PIECE_NBYTES // width)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows, of which only the wanted ones are written to scratch."""
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
            scratch.work.complete()
            windows.copy_all(mine, rows, range(first, last + 1), out)
            windows.load_ahead(mine, last + 1, count(rows) / self.bucket_rows)

    def load(
        self, window: ShuffleWindow, rows: slice, columns: slice, block: Block, context: Context
    ) -> None:
        """Read rows of a bucket from the scratch file."""
        scratch = self._scratches(context).current
        assert scratch is not None
        scratch.read(scratch.buckets.bucket_of(window.start), rows.start, block, context)

    def _scratches(self, context: Context) -> "_Scratches":
        return context.resources.get(("scratch", id(self)), lambda: _Scratches(self))

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of a bucket, of one and a half, or two, or of what scattering takes if that is more.

        And of the number that is kept for each bucket in each chunk.
        """
        buckets = self.buckets(0)
        rows, threads = min(buckets.num_rows, self.bucket_rows), max(1, ahead)
        windows = self.windows_nbytes(rows, self.piece_rows, ahead)
        windows += (1 if ahead < 2 else 2) * 16 * rows
        if not self.records.are_rows:
            windows += threads * self._records_nbytes(self.piece_rows)
        chunk = self.input.block_nbytes(self.step_rows) + self._records_nbytes(self.step_rows)
        scattering = threads * (chunk + self.input.staging_nbytes(self.step_rows))
        table = 4 * -(-self.num_rows // self.step_rows) * (buckets.num_windows + 1)
        return max(windows, scattering) + table + self.input.retained_nbytes(ahead)

    def _records_nbytes(self, num_rows: int) -> int:
        return buffer_nbytes(min(num_rows, self.num_rows) * self.records.nbytes)

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


class _Scratches:
    """The scratch file of a stream: that of one pass, however many a `repeat` makes of the rows."""

    def __init__(self, node: ScatteredRows) -> None:
        self.node = node
        self.current: Scattering | None = None
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
    ) -> "Iterator[Scattering | None]":
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
        self.current = Scattering(
            self.node.input, buckets, self.node.records, self.node.step_rows, context
        )
        self._epoch = context.epoch
        return True
