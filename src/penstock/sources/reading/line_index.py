"""Where lines of text and records of CSV begin: an entry for each run of up to 64 KB, found by one fast scan."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.io.formats.lines import MOST_NBYTES, Dialect
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Bytes, read_bytes
from penstock.io.sizes import PIECE_NBYTES, READ_NBYTES
from penstock.memory import allocate_plain
from penstock.sources.reading.saved_indexes import Scan, each_in_parallel, load, save

RUN_NBYTES = READ_NBYTES
"""Runs are at most so large: what is worth a random read. A longer record is a run of its own."""
_VERSION = 1
_SAVED_NBYTES = (
    1 << 20
)  # Of a smaller file the index is made anew each time: that is as fast as to open it.
_NUM_FACTS = 3  # Numbers at the beginning of a saved index: flags, whether the end is open, runs.


@dataclass(frozen=True, slots=True, eq=False)
class LineIndex:
    """The runs of one file: run i has rows `rows[i]` to `rows[i + 1]`, in bytes `edges[i]` to `edges[i + 1]`."""

    edges: Index
    rows: Index
    lengths: Index
    """How many rows there are of each length, in the buckets of `_native.scan_lines`."""
    flags: int
    """What the text has: `_native.HAS_QUOTES` and so on."""
    is_open: bool
    """Whether the last line lacks its end."""

    @property
    def num_rows(self) -> int:
        """How many rows the file has."""
        return int(self.rows[-1])

    def numbers(self) -> Index:
        """Return all of it as numbers, to be saved."""
        facts = np.array([self.flags, self.is_open, len(self.edges) - 1], np.int64)
        return np.concatenate([facts, self.lengths, self.edges, self.rows])

    @staticmethod
    def of(numbers: Index, start: int, location: Location) -> "LineIndex | None":
        """Return the index that was saved as `numbers`; None if it can't be that of this file."""
        first = _NUM_FACTS + _native.NUM_LENGTHS
        if len(numbers) < first or len(numbers) != first + 2 * (int(numbers[2]) + 1):
            return None
        edges, rows = numbers[first:].reshape(2, -1)
        is_sound = (
            edges[0] == start
            and rows[0] == 0
            and (edges[-1] == location.size or len(edges) == 1)
            and bool((np.diff(edges) > 0).all())
            and bool((np.diff(rows) > 0).all())
            and bool((np.diff(edges) >= np.diff(rows)).all())
        )
        lengths = numbers[_NUM_FACTS:first]
        if not is_sound or int(lengths.sum()) != int(rows[-1]):
            return None
        return LineIndex(edges, rows, lengths, int(numbers[0]), bool(numbers[1]))


def index_lines(
    locations: Sequence[Location], starts: Sequence[int], dialect: Dialect, *, direct: bool
) -> list[LineIndex] | None:
    """Return the index of each file, whose first row begins at `starts[i]`.

    Files are scanned in parallel, 4 MB at a time; an index takes 16 bytes for each run. None: a quote is never closed,
    or is closed within a cell, or a line has no end; then rows can't be numbered.
    """
    begin = dict(zip(locations, starts, strict=True))

    def scan(location: Location, all_files: Scan) -> LineIndex | None:
        start = begin[location]
        words = _VERSION, f"{start} {dialect.separator} {dialect.quote}"
        most = _NUM_FACTS + _native.NUM_LENGTHS + 2 * (_most_runs(location.size) + 1)
        if location.size < _SAVED_NBYTES:
            return _scan(location, start, dialect, direct=direct, all_files=all_files)
        saved = load("lines", location, words, lambda count: count <= most)
        found = None if saved is None else LineIndex.of(saved, start, location)
        if found is None:
            found = _scan(location, start, dialect, direct=direct, all_files=all_files)
            if found is not None:
                save("lines", location, words, found.numbers())
        return found

    indexes = [one for one in each_in_parallel(locations, scan) if one is not None]
    return indexes if len(indexes) == len(locations) else None


def _most_runs(nbytes: int) -> int:
    """Return how many runs there are at most: any two that follow each other have more bytes than one may have."""
    return 2 * (nbytes // RUN_NBYTES) + 2


def _scan(
    location: Location, start: int, dialect: Dialect, *, direct: bool, all_files: Scan
) -> LineIndex | None:
    edges, rows = [np.array([start])], [np.array([0])]
    lengths = np.zeros(_native.NUM_LENGTHS, np.int64)
    flags, offset, num_rows = 0, start, 0
    wanted, last = PIECE_NBYTES, b""
    buffer = allocate_plain(min(wanted, max(1, location.size - start)))
    with open_reader(location, direct=direct, access="sequential") as reader:
        while offset < location.size:
            piece = buffer[: location.size - offset]
            reader.read_into(piece, offset)
            is_last = offset + len(piece) == location.size
            ends, counts = np.empty((2, _most_runs(len(piece))), np.int64)
            scan = partial(_native.scan_lines, piece, dialect.separator, dialect.quote, RUN_NBYTES)
            count, found, fault, unclosed = scan(is_last, ends, counts, lengths)
            flags |= found
            if fault >= 0 or (is_last and unclosed >= 0):
                return None
            if not count and not is_last:
                # A record that is larger than the piece: it is looked at again, with more of what follows it.
                if wanted >= MOST_NBYTES:
                    return None
                all_files.passed(0)
                wanted *= 2
                del piece, buffer, scan  # Frees its memory before there is more.
                buffer = allocate_plain(min(wanted, location.size - offset))
                continue
            edges.append(offset + ends[:count])
            rows.append(num_rows + np.cumsum(counts[:count]))
            num_rows += int(counts[:count].sum())
            before, offset = offset, location.size if is_last else int(edges[-1][-1])
            all_files.passed(offset - before)
        if location.size > start:
            last = read_bytes(reader, location.size - 1, 1)
        reader.check_unchanged()
    is_open = last not in ((b"\n", b"\r", b"") if dialect.is_csv else (b"\n", b""))
    made = LineIndex(np.concatenate(edges), np.concatenate(rows), lengths, flags, is_open)
    return made if _longest(made) <= MOST_NBYTES else None


def facts_of(text: Bytes, dialect: Dialect) -> tuple[int | None, int]:
    """Return the flags of whole lines of text, None if a quote in it is broken; and how many rows it has."""
    ends, counts = np.empty((2, _most_runs(len(text))), np.int64)
    lengths = np.zeros(_native.NUM_LENGTHS, np.int64)
    scan = partial(_native.scan_lines, text, dialect.separator, dialect.quote, RUN_NBYTES)
    count, flags, fault, unclosed = scan(is_last=True, ends=ends, rows=counts, lengths=lengths)
    return None if fault >= 0 or unclosed >= 0 else flags, int(counts[:count].sum())


def _longest(index: LineIndex) -> int:
    """Return the bytes of the longest run."""
    return int(np.diff(index.edges).max(initial=0))


def length_sums(lengths: Index) -> tuple[int, ...]:
    """Return the bytes of the 1, 2, 4, ... longest rows, and of all, given how many have which length (rounded up).

    >>> counts = np.zeros(_native.NUM_LENGTHS, np.int64)
    >>> counts[[2, 5, 16]] = 3, 1, 1  # Three rows of 2 bytes, one of 5, and one of 16 or 17.
    >>> length_sums(counts)
    (17, 22, 26, 28)
    """
    buckets = np.arange(len(lengths))
    most = np.where(
        buckets < 16, buckets, ((buckets % 8 + 9) << np.maximum(buckets // 8 - 1, 0)) - 1
    )
    counts = np.cumsum(lengths[::-1])
    sums = np.cumsum(most[::-1] * lengths[::-1])
    num_rows = int(counts[-1])
    if not num_rows:
        return ()
    found = []
    for power in range((num_rows - 1).bit_length() + 1):
        wanted = min(num_rows, 1 << power)
        at = int(np.searchsorted(counts, wanted))
        found.append(int(sums[at] - (counts[at] - wanted) * most[::-1][at]))
    return tuple(found)
