"""Arrays stored in chunks, each packed on its own: chunks are decoded whole, and rows copied from them."""

import threading
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from penstock.core.arrays import Array, Index, raw_rows, typed
from penstock.core.blocks import Pieces, Sink
from penstock.core.columns import Fixed, Ragged, Text
from penstock.core.fields import Field
from penstock.core.rows import Context, RowSet, Runs
from penstock.errors import DataError, FileError, PenstockError, SpecMismatchError
from penstock.io.sizes import PIECE_NBYTES
from penstock.sources.reading.leaves import Leaf


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """Rows that are words of a dictionary: row i is `words[codes[i]]`. Copied out only where rows are wanted."""

    words: Text | Ragged
    codes: Array

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """The bytes of the words and the codes."""
        return self.words.nbytes + self.codes.nbytes

    def mean_nbytes(self) -> int:
        """Return the bytes of a row, on average."""
        if isinstance(self.words, Text):
            sizes = np.diff(self.words.offsets)
        else:
            assert isinstance(self.words.values_, np.ndarray)
            sizes = self.words.shapes.prod(axis=1) * self.words.values_.itemsize
        return int(sizes[self.codes].sum() // max(1, len(self.codes)))

    def put(self, sink: Pieces, rows: Index | None) -> None:
        """Copy these rows (None: all of them) to their places."""
        codes = self.codes if rows is None else self.codes[rows]
        sink.copy_from(self.words, codes.astype(np.int64))


Values = Array | Text | Ragged | Coded
"""Rows that follow each other: an array if they are of one size, else a column."""
Kept = TypeVar("Kept")
_MOST_NBYTES = 1 << 62  # So that rows and bytes are numbers of 64 bits, also after some are added.
_SHARED_NBYTES = 1 << 21  # For retained chunks, which two blocks may share: as much as a block.


@dataclass(frozen=True, slots=True)
class Grid:
    """Where chunks begin: every `chunk_rows` rows, or at `edges` where they differ in length."""

    num_rows: int
    chunk_rows: int
    edges: Index | None = None
    nbytes: int | None = None
    """The bytes of the largest chunk, decoded, where that is known and rows differ in size."""

    @staticmethod
    def of_lengths(lengths: Index) -> "Grid":
        """Return the grid of chunks of these lengths."""
        edges = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Grid(int(edges[-1]), max(1, int(lengths.max(initial=0))), edges)

    def chunk_of(self, rows: Index) -> Index:
        """Return the number of the chunk that each row lies in."""
        if self.edges is None:
            return rows // self.chunk_rows
        return np.searchsorted(self.edges, rows, side="right") - 1

    def bounds(self, chunks: Index) -> tuple[Index, Index]:
        """Return the first row of each of these chunks, and the row after its last."""
        if self.edges is None:
            starts = chunks * self.chunk_rows
            return starts, np.minimum(self.num_rows, starts + self.chunk_rows)
        return self.edges[chunks], self.edges[chunks + 1]

    def edge_before(self, row: int) -> int:
        """Return the last edge of a chunk that is not after `row`."""
        if row >= self.num_rows:
            return self.num_rows
        if self.edges is None:
            return row - row % self.chunk_rows
        return int(self.edges[bisect_right(self.edges, row) - 1])

    def edge_after(self, row: int) -> int:
        """Return the first edge of a chunk that is not before `row`."""
        if row >= self.num_rows:
            return self.num_rows
        if self.edges is None:
            return min(self.num_rows, -(-row // self.chunk_rows) * self.chunk_rows)
        return int(self.edges[bisect_left(self.edges, row)])

    def cut(self, runs: Runs, step: int) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield (place, start, stop, first, last): rows `start` to `stop` of the runs, of the rows `first` to `last`.

        The latter are a chunk of which not all is wanted, or whole chunks that begin in the same `step` rows. `place`
        counts the rows of the runs before them.
        """
        place = 0
        for start, length in runs:
            stop = start + length
            while start < stop:
                first = self.edge_before(start)
                last = self.edge_after(first + 1)
                end = min(last, stop)
                if first == start and last <= stop:
                    piece = self.edge_after((start // step + 1) * step)
                    last = end = min(piece, self.edge_before(stop))
                yield place, start, end, first, last
                place += end - start
                start = end

    @property
    def num_chunks(self) -> int:
        """How many chunks there are."""
        return -(-self.num_rows // self.chunk_rows) if self.edges is None else len(self.edges) - 1


class Chunked(Leaf):
    """A leaf whose rows are decoded a chunk at a time. A format says how, in `decode`."""

    overhead = 1
    """The bytes that decoding takes besides the decoded rows, as a multiple of their bytes."""

    chunk_rows: int
    decodes_in_place: bool = False
    """Whether rows of one size can be decoded to where they are wanted, without a copy: see `decode_into`."""
    joins: bool = False
    """Whether it can be decoded together with others of its file and grid: see `column_sets.py`."""

    def __init__(self, field: Field, grid: Grid, *, file: str, key: Hashable) -> None:
        most_rows = max(grid.num_rows, grid.chunk_rows)
        if most_rows * max(1, field.nbytes) > _MOST_NBYTES:
            raise DataError(
                f"claims {grid.num_rows} rows of {field.nbytes} bytes, in chunks of {grid.chunk_rows}: more than "
                "any memory can address",
                file=file,
                cure="It is damaged: copy it again from its original.",
            )
        self.field = field
        self.grid = grid
        self.num_rows = grid.num_rows
        self.chunk_rows = grid.chunk_rows
        self.num_chunks = grid.num_chunks
        self.num_retained = max(2, min(8, _SHARED_NBYTES // max(1, self.chunk_nbytes)))
        self.file = file
        self.key = key
        """The key of its retained chunks: the same for all files of a dataset."""

    @abstractmethod
    def decode(self, start: int, stop: int, context: Context) -> Values:
        """Return rows `start` to `stop`, in memory from `context.allocate`."""

    def decode_into(self, out: Array, start: int, stop: int, context: Context) -> None:
        """Decode rows of one size to their places, if `decodes_in_place`."""
        raise NotImplementedError

    def decode_pieces(self, start: int, stop: int, context: Context) -> Iterator[Values]:
        """Yield rows `start` to `stop`, a few at a time, in memory that is good until the next are asked for."""
        yield self.decode(start, stop, context)

    def decode_together(
        self, leaves: "Sequence[Chunked]", start: int, stop: int, context: Context
    ) -> Iterator[Sequence[Values]]:
        """Yield rows `start` to `stop` of several leaves that join, this one among them, a few at a time."""
        raise NotImplementedError

    def together_nbytes(self, leaves: "Sequence[Chunked]", num_rows: int) -> int:
        """Return what `staging_nbytes` is of several leaves that are decoded together."""
        raise NotImplementedError

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Decode chunks that are wanted whole straight to their places; copy other rows from retained chunks."""
        if isinstance(rows, slice):
            self.read_runs([(rows.start, rows.stop - rows.start)], sink, context)
            return
        if self.field.nbytes == 0 and isinstance(sink, Fixed):
            return
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        for start, stop, first, last, is_whole in self.spans(ascending):
            slots = order[start:stop]
            if is_whole:
                self._decode_to(sink.at(slots), 0, first, last, context)
            else:
                values = self._recent(first, last, context)
                put_rows(sink.at(slots), values, ascending[start:stop] - first)

    def read_runs(self, runs: Runs, sink: Sink, context: Context) -> None:
        """Read runs of rows: nothing is done for each row of them."""
        if self.field.nbytes == 0 and isinstance(sink, Fixed):
            return
        for place, start, stop, first, last in self.grid.cut(runs, self.piece_rows):
            if (start, stop) == (first, last):
                self._decode_to(sink, place, first, last, context)
            else:
                values = self._recent(first, last, context)
                put_slice(sink, place, values, start - first, stop - first)

    @property
    def piece_rows(self) -> int:
        """How many rows are decoded at once, if chunks are smaller than that."""
        return max(1, PIECE_NBYTES // max(1, self.field.nbytes))

    def cuts(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the first row of each chunk that has some of the rows, and the row after its last."""
        first, last = self.grid.chunk_of(np.array([start, stop - 1])).tolist()
        for bounds in zip(*self.grid.bounds(np.arange(first, last + 1)), strict=True):
            begin, end = map(int, bounds)
            if begin < end:  # Row groups may be empty.
                yield begin, end

    def spans(self, ascending: Index) -> list[tuple[int, int, int, int, bool]]:
        """Return spans: (start, stop, first, last, whether all rows of the span are wanted).

        Rows `ascending[start:stop]` are taken from the decoded rows `first` to `last`. Chunks that are
        wanted whole and follow each other are one span, so that there are few spans.
        """
        chunks = self.grid.chunk_of(ascending)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(chunks)) + 1])
        stops = np.concatenate([starts[1:], [len(ascending)]])
        firsts, lasts = self.grid.bounds(chunks[starts])
        # How many rows up to here do not follow the one before: a row wanted twice must not make up for a missing one.
        breaks = np.concatenate([[0], np.cumsum(np.diff(ascending) != 1)])
        whole = (stops - starts == lasts - firsts) & (breaks[stops - 1] == breaks[starts])
        pieces = firsts // self.piece_rows
        joins = whole[1:] & whole[:-1] & (firsts[1:] == lasts[:-1]) & (pieces[1:] == pieces[:-1])
        begins = np.concatenate([[0], np.flatnonzero(~joins) + 1])
        ends = np.concatenate([begins[1:], [len(starts)]]) - 1
        return list(
            zip(
                starts[begins].tolist(),
                stops[ends].tolist(),
                firsts[begins].tolist(),
                lasts[ends].tolist(),
                whole[begins].tolist(),
                strict=True,
            )
        )

    def recent(self, context: Context) -> "RecentChunks[Values]":
        """Return its retained chunks, those of all files together."""
        return context.resources.get(
            ("chunks", self.key), lambda: RecentChunks[Values](self.num_retained)
        )

    def _recent(self, first: int, last: int, context: Context) -> Values:
        return self.recent(context).get(
            (self.file, first), lambda: self.decoded_rows(first, last, context)
        )

    def _decode_to(self, sink: Sink, done: int, first: int, last: int, context: Context) -> None:
        """Decode rows of whole chunks to their places, from row `done` of the sink on."""
        row = first
        try:
            place = None
            if self.decodes_in_place and isinstance(sink, Fixed):
                place = sink.place(done, done + last - first)
            if place is not None:
                self.decode_into(place, first, last, context)
                return
            for found in self.decode_pieces(first, last, context):
                values = self.checked(found, row, min(last, row + len(found)))
                put_slice(sink, done + row - first, values, 0, len(found))
                row += len(found)
        except (MemoryError, PenstockError):
            raise
        except Exception as error:
            raise self._bad_chunk(error, first, last, context) from error
        if row != last:
            raise self.wrong_shape(first, last, (row - first, *self.field.spec.shape))

    def decoded_rows(self, first: int, last: int, context: Context) -> Values:
        """Return rows of whole chunks, decoded and checked; the error of a bad chunk names it."""
        try:
            values = self.decode(first, last, context)
        except (MemoryError, PenstockError):
            raise
        except Exception as error:
            raise self._bad_chunk(error, first, last, context) from error
        return self.checked(values, first, last)

    def _bad_chunk(self, error: Exception, first: int, last: int, context: Context) -> Exception:
        """Return the error of the first bad chunk among rows that can't be decoded, found by halving them."""
        chunks = self.grid.chunk_of(np.array([first, last - 1]))
        low, high = chunks.tolist()
        while low < high:
            middle = (low + high) // 2
            start, stop = (int(one[0]) for one in self.grid.bounds(np.array([low])))
            stop = int(self.grid.bounds(np.array([middle]))[1][0])
            try:
                self.checked(self.decode(start, stop, context), start, stop)
            except (MemoryError, PenstockError) as found:
                return found
            except Exception as found:  # noqa: BLE001  # Whatever a library raises for damage.
                error, high = found, middle
            else:
                low = middle + 1
        start, stop = (int(one[0]) for one in self.grid.bounds(np.array([low])))
        return self.failure(error, start, stop)

    def checked(self, values: Values, first: int, last: int) -> Values:
        """Return decoded rows after checking their shape and dtype: from here on they are copied as bytes."""
        spec = self.field.spec
        shape = (last - first, *spec.shape)
        found = values.shape if isinstance(values, np.ndarray) else (len(values), *spec.shape)
        if found != shape:
            raise self.wrong_shape(first, last, found)
        if isinstance(values, np.ndarray) and values.dtype != spec.dtype:
            return values.astype(spec.numpy_dtype)  # The same numbers in another byte order.
        return values

    def wrong_shape(self, first: int, last: int, found: tuple[int | None, ...]) -> DataError:
        """Return the error for rows that did not come out in their number or shape."""
        shape = (last - first, *self.field.spec.shape)
        return DataError(
            f"rows {first} to {last} must have shape {shape}, got {found}",
            file=self.file,
            row=first,
            cure="It is not what its index says: copy it again from its original.",
        )

    def failure(self, error: Exception, first: int, last: int) -> FileError:
        """Return the error for a chunk that can't be decoded."""
        cause: BaseException | None = error
        while cause is not None:  # A library may pass on an error of our reading layer.
            if isinstance(cause, FileError):
                return cause
            cause = cause.__cause__ or cause.__context__
        return DataError(
            f"rows {first} to {last} can't be decoded: {type(error).__name__}: {error}",
            file=self.file,
            row=first,
            cure="It may be damaged or cut off: compare it with its original.",
        )

    def memory(self, num_rows: int, context: Context) -> Array:
        """Return an empty array for rows of one size."""
        shape = (num_rows, *self.field.spec.fixed_shape)
        return typed(
            context.allocate(num_rows * self.field.nbytes), 0, shape, self.field.spec.numpy_dtype
        )

    @property
    def chunk_nbytes(self) -> int:
        """The bytes of the largest chunk, decoded."""
        if self.grid.nbytes is not None:
            return self.grid.nbytes
        return min(self.chunk_rows, self.num_rows) * self.field.nbytes

    def retained_nbytes(self) -> int:
        """Return the bytes of the decoded chunks that are retained from one read to the next."""
        return self.num_retained * (self.chunk_nbytes + (1 << 13)) if self.chunk_rows > 1 else 0

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the rows decoded at once, and of what decoding them takes."""
        at_once = max(self.chunk_nbytes, min(num_rows * self.field.nbytes, PIECE_NBYTES))
        if self.field.tops:  # A piece is cut by rows, and some are larger than others.
            at_once = max(at_once, self.field.most_nbytes(min(num_rows, self.piece_rows)))
        # A piece may be longer by a chunk: it ends where its last chunk does.
        nbytes = (1 + self.overhead) * min(
            at_once + self.chunk_nbytes, self.num_rows * self.field.nbytes
        )
        # Rows that differ in size are put together from pieces, and then in order.
        return nbytes if self.field.spec.is_fixed else nbytes + 2 * self.field.most_nbytes(num_rows)


def put_rows(sink: Sink, values: Values, rows: Index | None) -> None:
    """Copy these rows of decoded values (None: all of them) to their places."""
    if isinstance(sink, Pieces):
        assert isinstance(values, Text | Ragged | Coded)
        if isinstance(values, Coded):
            values.put(sink, rows)
        elif rows is None:
            sink.add(values)
        else:
            sink.copy_from(values, rows)
        return
    assert isinstance(values, np.ndarray)
    if values.flags.c_contiguous:
        sink.gather(raw_rows(values, 1), np.arange(len(values)) if rows is None else rows)
    else:
        sink.put(values if rows is None else values[rows])


def put_slice(sink: Sink, place: int, values: Values, start: int, stop: int) -> None:
    """Copy decoded rows `start` to `stop` to the places from `place` on."""
    is_all = start == 0 and stop == len(values)
    if isinstance(sink, Pieces):
        put_rows(
            sink.span(place, place + stop - start),
            values,
            None if is_all else np.arange(start, stop),
        )
        return
    assert isinstance(values, np.ndarray)
    sink.put(values if is_all else values[start:stop], place)


def check_unchanged(leaf: Chunked, shape: tuple[int, ...]) -> None:
    """Raise if an array that the user has open has another shape than when it was given."""
    known = (leaf.num_rows, *leaf.field.spec.shape)
    if leaf.field.spec.is_fixed and shape != known and shape != known[: len(shape)]:
        raise SpecMismatchError(
            f"{leaf.file}: an array of shape {known} has shape {shape} now; "
            "did it change since from_arrays?"
        )


class RecentChunks(Generic[Kept]):
    """The retained chunks: those decoded last. Two threads that want the same chunk decode it once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry[Kept]] = OrderedDict()

    def get(self, key: Hashable, decode: Callable[[], Kept]) -> Kept:
        """Return the chunk under `key`; decode it first if it is not retained."""
        entry = self._entry(key)
        with entry.lock:
            if entry.values is None:
                entry.values = decode()
            return entry.values

    def offer(self, key: Hashable, values: Kept) -> None:
        """Retain a chunk that was decoded on the way, unless it is there, or another thread decodes it just now."""
        entry = self._entry(key)
        if entry.lock.acquire(blocking=False):
            try:
                if entry.values is None:
                    entry.values = values
            finally:
                entry.lock.release()

    def _entry(self, key: Hashable) -> "_Entry[Kept]":
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry()
            self._entries.move_to_end(key)
            while len(self._entries) > self._most:
                self._entries.popitem(last=False)
            return entry

    def close(self) -> None:
        """Drop the chunks."""
        with self._lock:
            self._entries.clear()


class _Entry(Generic[Kept]):
    __slots__ = ("lock", "values")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.values: Kept | None = None
