"""Arrays that lie in a file as they would in memory: read in place, in large pieces."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows, typed
from penstock.core.blocks import Sink
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.lazy import lazy
from penstock.core.read_count import count_read
from penstock.core.rows import Context, RowSet, Runs, as_index, count, run_rows
from penstock.core.spec import ArraySpec
from penstock.io.cells import Cells
from penstock.io.location import Location
from penstock.io.open import describe_reading, open_reader
from penstock.io.reader import Range, Reader
from penstock.io.sizes import GAP_NBYTES, OWN_NBYTES, PIECE_NBYTES
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.near_rows import near_rows
from penstock.sources.reading.open_files import ROOM_NBYTES, page_cache_of, reader_of
from penstock.sources.reading.run_checks import RunChecks
from penstock.sources.reading.whole_checks import WholeCheck

if TYPE_CHECKING:
    from penstock.core import digests
else:
    digests = lazy("penstock.core.digests")  # Only write and cache(path) need it.

_MORE_ROWS, _MORE_NBYTES = (
    16,
    1 << 12,
)  # What is read beyond both ends of a read, whichever is more.
_ROWS_AT_ONCE = 1 << 16  # One native call picks no more: Ctrl-C is answered between two calls.


class Region(Leaf):
    """Rows of one size, one after the other, from an offset of a file on."""

    chunk_rows = 1

    def __init__(
        self,
        location: Location,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        *,
        direct: bool,
        checks: RunChecks | None = None,
        whole: WholeCheck | None = None,
    ) -> None:
        self.location = location
        self.offset = offset
        self.num_rows = shape[0]
        self.field = _field_of(shape[1:], dtype)
        self.direct = direct
        self.checks = checks
        self.whole = whole
        self.picks = not direct
        self.how = ""
        self.files = (location,)

    def reading(self) -> str:
        """Return how the file is read, and what is special about it."""
        return describe_reading(self.location, direct=self.direct) + self.how

    def reader(self, context: Context) -> Reader:
        """Return the reader of the file, which the stream closes."""
        return reader_of(self.location, context, direct=self.direct)

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the runs that have a checksum of their own; without, all rows are one."""
        if self.checks is None:
            return super().cuts(start, stop)
        return self.checks.grid.cuts(start, stop)

    def check_files(self) -> Sequence[Location]:
        """Return the file with the checksums of runs, if there is one."""
        return () if self.checks is None else (self.checks.location,)

    def checks_nbytes(self) -> int:
        """Return the bytes of the checksums."""
        return 0 if self.checks is None else self.checks.nbytes

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read runs of rows straight into the column, scattered rows through a buffer."""
        assert isinstance(sink, Fixed)
        width = self.field.nbytes
        if width == 0:
            return
        size = count(rows)
        memory = _flat(sink)
        slots = sink.slots
        index = None if isinstance(rows, slice) else rows
        if index is not None and self.picks and self._read_picked(index, sink, context):
            return
        if memory is not None:
            runs = _runs(rows, slots)
            if len(runs) * OWN_NBYTES <= size * width or len(runs) == 1:
                self._read_runs(runs, memory, context)
                return
        elif width >= OWN_NBYTES and sink.lengths is None:
            self._read_rows(as_index(rows), sink, context)
            return
        if index is None:
            staging = context.allocate(size * width)
            self._read_runs([(rows.start, 0, size)], staging, context)  # type: ignore[union-attr]
            sink.put(
                typed(staging, 0, (size, *self.field.spec.fixed_shape), self.field.spec.numpy_dtype)
            )
            return
        self._read_scattered(index, sink, context)

    def proof(self) -> Any:
        """Return the version of the file, and where in it the rows lie."""
        place = [type(self).__name__, self.offset, self.num_rows]
        if self.location.mtime_ns is not None:
            return [*self.location.identity(), *place]
        # It is mapped for writing, and the time of a file does not tell of every write to a mapping.
        return [digests.pieces_digest(self._bytes()), *place]

    def _bytes(self) -> Iterator[Array]:
        total = self.num_rows * self.field.nbytes
        with open_reader(self.location, direct=False) as reader:
            for start in range(0, total, PIECE_NBYTES):
                piece = np.empty(min(PIECE_NBYTES, total - start), np.uint8)
                reader.read_into(piece, self.offset + start)
                yield piece

    def read_runs(self, runs: Runs, sink: Sink, context: Context) -> None:
        """Read runs of rows straight into the column."""
        assert isinstance(sink, Fixed)
        memory = _flat(sink)
        if memory is None or sink.slots is not None or self.field.nbytes == 0:
            self.read(run_rows(runs), sink, context)
            return
        ends = itertools.accumulate(length for _, length in runs)
        placed = [
            (row, end - length, length) for (row, length), end in zip(runs, ends, strict=True)
        ]
        self._read_runs(placed, memory, context)

    def _fetch(self, ranges: list[Range], context: Context) -> None:
        """Read ranges of the file."""
        reader = self.reader(context)
        reader.read_ranges(ranges)
        if self.whole is not None:
            self.whole.saw(ranges, reader)

    def _fetch_rows(
        self, ranges: list[Range], stretches: list[tuple[int, int]], context: Context
    ) -> None:
        """Read stretches of rows (row, length), each to a range, and compare their checksums."""
        if self.checks is None:
            self._fetch(ranges, context)
            return
        width = self.field.nbytes
        grid = self.checks.grid
        cells = Cells(self.offset - grid.lead * width, grid.run_rows * width)
        sums = self.reader(context).read_ranges(ranges, cells)
        assert sums is not None
        self.checks.check(stretches, sums, width, context)

    def _read_runs(self, runs: list[tuple[int, int, int]], memory: Array, context: Context) -> None:
        """For each run (row, slot, length), read `length` rows from `row` on into the slots from `slot` on."""
        width = self.field.nbytes
        ranges = [
            Range(self.offset + row * width, memory[slot * width : (slot + length) * width])
            for row, slot, length in runs
        ]
        self._fetch_rows(ranges, [(row, length) for row, _, length in runs], context)

    def _read_rows(self, rows: Index, sink: Fixed, context: Context) -> None:
        """Read each row straight to its place; for large rows."""
        groups, places = sink.places(len(rows))
        offsets = self.offset + rows * self.field.nbytes
        ranges = [
            Range(offset, sink.grouped[group, place])
            for offset, group, place in zip(
                offsets.tolist(), groups.tolist(), places.tolist(), strict=True
            )
        ]
        self._fetch_rows(ranges, [(row, 1) for row in rows.tolist()], context)

    def _read_scattered(self, rows: Index, sink: Fixed, context: Context) -> None:
        """Read rows that lie close together with one read into a buffer, and copy them from there."""
        width, more = self.field.nbytes, self._more_rows()
        for first, stop, slots, picked in near_rows(rows, width):
            begin = max(0, first - more)
            length = min(self.num_rows, stop + more) - begin
            staging = context.allocate(length * width)
            self._read_runs([(begin, 0, length)], staging, context)
            source = staging[: length * width].reshape(length, width)
            sink.at(slots).gather(source, picked + (first - begin))

    def _more_rows(self) -> int:
        """Return how many rows are read beyond both ends of rows that are read together.

        The rows between those of two reads, which belong to another part of a split, are read so as well: a checksum of
        the whole array is compared once all of it was read, and then rows are read without it, at full speed.
        """
        is_open = self.whole is not None and not self.whole.is_done
        return max(_MORE_ROWS, _MORE_NBYTES // self.field.nbytes) if is_open else 0

    def _read_picked(self, rows: Index, sink: Fixed, context: Context) -> bool:
        """Read rows through the page cache, over the gaps between them; return whether that could be done."""
        if self.field.nbytes > ROOM_NBYTES or sink.lengths is not None or not len(rows):
            return False
        if self.whole is not None and not self.whole.is_done:
            return False
        out, slots = raw_rows(sink.grouped, 2), sink.slots
        if bool((rows[1:] < rows[:-1]).any()):
            order = np.argsort(rows, kind="stable")
            rows, slots = rows[order], order if slots is None else slots[order]
        rows = np.ascontiguousarray(rows, np.int64)
        with page_cache_of(self.reader(context)) as fd:
            if fd < 0:
                return False
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                some = rows[start : start + _ROWS_AT_ONCE]
                at = None if slots is None else slots[start : start + _ROWS_AT_ONCE]
                read = functools.partial(_native.read_rows, fd, self.offset, some, out, at, start)
                if not (read() if self.checks is None else self._check(some, read, context)):
                    return False
        count_read(len(rows) * self.field.nbytes)
        return True

    def _check(self, rows: Index, read: Callable[..., bool], context: Context) -> bool:
        """Read rows that ascend together with all between them, and compare their checksums."""
        assert self.checks is not None
        width, grid = self.field.nbytes, self.checks.grid
        ends = np.flatnonzero(np.diff(rows) > max(1, GAP_NBYTES // width))
        firsts = rows[np.concatenate([[0], ends + 1])]
        lengths = rows[np.concatenate([ends, [len(rows) - 1]])] + 1 - firsts
        cells = Cells(self.offset - grid.lead * width, grid.run_rows * width)
        sums = cells.empty_sums((self.offset + firsts * width).tolist(), (lengths * width).tolist())
        stretches = np.stack([firsts, lengths], axis=1)
        if not read(
            stretches=stretches, cells_start=cells.start, cell_nbytes=cells.nbytes, sums=sums
        ):
            return False
        self.checks.check(stretches.tolist(), sums, width, context)
        return True

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the buffer for rows that are not read straight to their places: large ones always are."""
        if self.field.nbytes >= OWN_NBYTES:
            return 0
        piece = min(PIECE_NBYTES, self.num_rows * self.field.nbytes)
        more = 0 if self.whole is None else 2 * max(_MORE_ROWS * self.field.nbytes, _MORE_NBYTES)
        return max(num_rows * self.field.nbytes, piece) + more


class FortranRegion(Region):
    """An array whose first index varies fastest: a row is spread over the whole file."""

    read_runs = Leaf.read_runs

    def __init__(
        self,
        location: Location,
        offset: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        *,
        direct: bool,
        whole: WholeCheck | None = None,
    ) -> None:
        super().__init__(location, offset, dtype, shape, direct=direct, whole=whole)
        self.picks = False
        self.how = ", in Fortran order: a read for each column"

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read the part of each column that the rows span."""
        assert isinstance(sink, Fixed)
        dtype = self.field.spec.numpy_dtype
        columns = math.prod(self.field.spec.fixed_shape)
        if columns * dtype.itemsize == 0:
            return
        index = as_index(rows)
        order = np.argsort(index, kind="stable")
        step = max(1, PIECE_NBYTES // self.field.nbytes)
        ascending = index[order]
        edges = [0, *(np.flatnonzero(np.diff(ascending // step)) + 1).tolist(), len(index)]
        for start, stop in itertools.pairwise(edges):
            first, last = int(ascending[start]), int(ascending[stop - 1])
            length = last + 1 - first
            staging = context.allocate(columns * length * dtype.itemsize)
            values = typed(staging, 0, (columns, length), dtype)
            self._fetch(
                [
                    Range(
                        self.offset + (column * self.num_rows + first) * dtype.itemsize,
                        values[column],
                    )
                    for column in range(columns)
                ],
                context,
            )
            shape = (length, *reversed(self.field.spec.fixed_shape))
            order_of_axes = (0, *range(len(shape) - 1, 0, -1))
            picked = values.T.reshape(shape).transpose(order_of_axes)[ascending[start:stop] - first]
            sink.at(order[start:stop]).put(picked)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of a piece of every column, and of the rows picked from it."""
        return 3 * max(PIECE_NBYTES, self.field.nbytes)


def _field_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Field:
    """Return the field of rows: one object for all files that have such rows, of which there may be many."""
    # Dtypes that differ only in their metadata are equal, and must not be mixed up.
    is_plain = dtype.fields is None and dtype.metadata is None
    return _plain_field(shape, dtype) if is_plain else Field(ArraySpec(shape, dtype))


@functools.lru_cache(maxsize=64)
def _plain_field(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Field:
    return Field(ArraySpec(shape, dtype))


def _flat(sink: Fixed) -> Array | None:
    """Return the memory of a column as bytes, if its rows lie one after the other."""
    grouped = sink.grouped
    width = math.prod(grouped.shape[2:]) * grouped.dtype.itemsize
    if len(grouped) != 1 and grouped.strides[0] != grouped.shape[1] * width:
        return None
    if grouped.shape[1] > 1 and grouped.strides[1] != width:
        return None
    if sink.lengths is not None:
        return None
    return raw_rows(grouped, 0) if grouped.flags.c_contiguous else None


def _runs(rows: RowSet, slots: Index | None) -> list[tuple[int, int, int]]:
    """Return (row, slot, length) for each run: rows that follow each other, into slots that follow each other."""
    if slots is None and isinstance(rows, slice):
        return [(rows.start, 0, rows.stop - rows.start)]
    index = as_index(rows)
    places = np.arange(len(index)) if slots is None else slots
    cuts = np.flatnonzero((np.diff(index) != 1) | (np.diff(places) != 1)) + 1
    starts = np.concatenate([[0], cuts])
    lengths = np.diff(np.concatenate([starts, [len(index)]]))
    return list(zip(index[starts].tolist(), places[starts].tolist(), lengths.tolist(), strict=True))
