"""The buckets of an exact shuffle, and the scratch file that they are in.

A chunk of the input is put in the order of its rows' buckets, and written to the file in one piece. So the disk writes
long runs, and a bucket is a run in every chunk. A row lies there as a record: its fields one after the other.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from penstock.core.arrays import Index, copy_box, raw_rows
from penstock.core.blocks import Block, Sink
from penstock.core.columns import Column, Fixed
from penstock.core.fields import Field, round_up
from penstock.core.order import Permutation
from penstock.core.progress import begin
from penstock.core.rows import Context, Rows
from penstock.errors import StreamClosedError
from penstock.io.atomic import check_space
from penstock.io.local.bounce import PAGE_NBYTES
from penstock.io.local.reader import LocalReader
from penstock.io.local.scratch_file import ScratchFile
from penstock.io.reader import Bytes, Range
from penstock.stages.shuffle.together import Together
from penstock.stages.shuffle.window_order import ShuffleWindow


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
        positions = range(start, self.start_of(number + 1), self.modulus)

        def make_table() -> Index:
            # No two rows are equal: the default kind of sort, ten times as fast, gives the same as a stable one.
            by_row = np.argsort(self.order.rows(np.arange(start, positions.stop, self.modulus)))
            table = np.empty(len(positions), np.int64)
            table[by_row] = np.arange(len(positions))
            return table

        size = len(positions)
        return ShuffleWindow(
            start,
            np.empty(0, np.int64),
            make_table,
            num_positions=size,
            num_rows=size,
            step=self.modulus,
        )


class Records:
    """How the columns of a block lie in records: a row's fields, then the lengths of batches that may be cut short."""

    def __init__(self, fields: Sequence[Field], *, aligned: bool) -> None:
        """Work out the places of fields; `aligned` is how columns of a block are laid out."""
        widths = [field.nbytes for field in fields]
        self.num_fields = len(widths)
        widths += [8 for field in fields if not field.spec.is_fixed]
        self.nbytes = sum(widths)
        self._spans = [slice(*pair) for pair in pairwise(accumulate(widths, initial=0))]
        self.are_rows = len(widths) == 1 and fields[0].stride(aligned=aligned) == self.nbytes
        """Whether they are just the memory of a block: a single field, without gaps."""

    def pack(self, block: Block, rows: Index, records: Bytes) -> None:
        """Put the given rows of a finished block into records: an array of (len(rows), nbytes)."""
        columns = _fixed(block.columns)
        for column, span in zip(columns, self._spans, strict=False):
            Fixed(records[None, :, span]).gather(raw_rows(column.rows, 1), rows)
        for lengths, span in zip(_lengths(columns), self._spans[self.num_fields :], strict=True):
            records[:, span] = raw_rows(lengths[rows], 1)

    def unpack(self, records: Bytes, out: Block) -> None:
        """Copy records, in their order, to a block that has just their room."""
        columns = _fixed(out.sinks)
        for column, span in zip(columns, self._spans, strict=False):
            copy_box(records[:, span], raw_rows(column.rows, 1))
        for lengths, span in zip(_lengths(columns), self._spans[self.num_fields :], strict=True):
            copy_box(records[:, span], raw_rows(lengths, 1))


def _fixed(columns: Sequence[Column | Sink]) -> list[Fixed]:
    return [column for column in columns if isinstance(column, Fixed)]


def _lengths(columns: Iterable[Fixed]) -> Iterator[Index]:
    return (column.lengths for column in columns if column.lengths is not None)


class Scattering:
    """The rows of one pass on their way to a scratch file, and from there: threads that need them do it together."""

    def __init__(
        self, node: Rows, buckets: Buckets, records: Records, step_rows: int, context: Context
    ) -> None:
        self.node = node
        self.buckets = buckets
        self.records = records
        self.step_rows = step_rows
        folder = Path(context.scratch or tempfile.gettempdir())
        check_space(folder, buckets.num_rows * records.nbytes)
        self.step = begin("putting rows in exact order", total=node.num_rows)
        num_chunks = -(-node.num_rows // step_rows)
        self.places = np.zeros(num_chunks, np.int64)
        """Where each chunk begins in the file."""
        self.starts = np.zeros((num_chunks, buckets.num_windows + 1), np.uint32)
        """The first row of each bucket in each chunk."""
        self.work = Together(
            num_chunks, lambda chunk: chunk, partial(self._write, context), self._finish
        )
        self.reader: LocalReader | None = None
        # Last: nothing that could fail comes between opening it and whoever closes it.
        self.file = ScratchFile(folder, f"scratch of shuffle(exact=True) in {folder}")

    def close(self) -> None:
        """Let go of the file, which removes it."""
        self.step.close()
        if self.reader is not None:
            self.reader.close()
        self.file.close()

    def _write(self, context: Context, chunk: int) -> None:
        if context.executor.is_closing:
            raise StreamClosedError("the stream was closed.")
        start = chunk * self.step_rows
        stop = min(start + self.step_rows, self.node.num_rows)
        block = context.block(self.node, stop - start)
        self.node.read(slice(start, stop), block, context)
        rows, owners = self.buckets.wanted(np.arange(start, stop))
        num_buckets = self.buckets.num_windows
        # Small numbers are sorted by their digits, 20 times as fast.
        order = np.argsort(owners.astype(np.min_scalar_type(num_buckets)), kind="stable")
        np.cumsum(np.bincount(owners, minlength=num_buckets), out=self.starts[chunk, 1:])
        nbytes = len(rows) * self.records.nbytes
        if nbytes:
            memory = context.allocate(round_up(nbytes, PAGE_NBYTES))
            records = memory[:nbytes].reshape(len(rows), self.records.nbytes)
            self.records.pack(block.finish(), rows[order], records)
            self.places[chunk] = self.file.append(memory)
        self.step.advance(stop - start, (stop - start) * self.node.row_nbytes)

    def _finish(self) -> None:
        self.step.close()
        self.reader = self.file.reader()

    def read(self, bucket: int, first: int, out: Block, context: Context) -> None:
        """Read rows of a bucket from its row `first` on, as many as `out` has room for; all chunks are in the file."""
        assert self.reader is not None
        if not self.records.nbytes:
            return
        if self.records.are_rows:
            (column,) = _fixed(out.sinks)
            memory = raw_rows(column.rows, 1).reshape(-1)
        else:
            memory = context.allocate(out.num_rows * self.records.nbytes)
        self.reader.read_ranges(list(self._ranges(bucket, first, memory)))
        if not self.records.are_rows:
            self.records.unpack(memory.reshape(out.num_rows, self.records.nbytes), out)

    def _ranges(self, bucket: int, first: int, memory: Bytes) -> Iterator[Range]:
        """Yield the runs in which rows of a bucket lie in the file, one a chunk at most."""
        width = self.records.nbytes
        starts = self.starts[:, bucket].astype(np.int64)
        ends = np.cumsum(self.starts[:, bucket + 1] - starts)
        stop = first + len(memory) // width
        chunk = int(np.searchsorted(ends, first, "right"))
        done = first
        while done < stop:
            until = min(stop, int(ends[chunk]))
            before = int(ends[chunk - 1]) if chunk else 0
            place = int(self.places[chunk]) + (int(starts[chunk]) + done - before) * width
            if until > done:
                yield Range(place, memory[(done - first) * width : (until - first) * width])
            done = until
            chunk += 1
