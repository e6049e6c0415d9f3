"""Which piece of which row goes into which bin: arithmetic alone, no values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index, spans
from penstock.core.parcels import Cursor
from penstock.stages.base.held_rows import Anchors, saved

Piece = tuple[int, int, int]
"""The number of a row, and which of its values: from the second number up to the third."""
Bins = tuple[tuple[Piece, ...], ...]
"""The pieces in each open bin, the oldest bin first."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of new rows, in order, and the bins that they go to."""

    rows: Index
    """The number of the row that each piece is of."""
    begins: Index
    ends: Index
    bins: Index
    """The bin of each piece. Those that were open before have the first numbers."""
    offsets: Index
    """Where in its bin each piece begins."""
    closed: Index
    """The bins that closed, in order."""
    came: Index
    """For each of these, how many pieces were placed when it closed."""


def fills_of(bins: Bins) -> Index:
    """Return how much of each bin is used."""
    return np.array([sum(end - begin for _, begin, end in one) for one in bins], np.int64)


def cut(numbers: Index, lengths: Index, used: int, most: int) -> tuple[Index, Index, Index]:
    """Return rows, begins and ends of pieces of at most `most` values; `used` values of the first row are gone."""
    starts = np.zeros(len(lengths), np.int64)
    starts[:1] = used
    counts = -(-(lengths - starts) // most)
    begins = np.repeat(starts, counts) + spans(np.zeros(len(counts), np.int64), counts) * most
    rows = np.repeat(numbers, counts)
    return rows, begins, np.minimum(begins + most, np.repeat(lengths, counts))


def fitted(
    pieces: tuple[Index, Index, Index], open_bins: Bins, length: int, most_bins: int
) -> Pieces:
    """Put whole pieces into the first bin that has room for them."""
    rows, begins, ends = pieces
    bins, offsets = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    closed, came = np.empty(2 * len(rows), np.int64), np.empty(2 * len(rows), np.int64)
    fills = fills_of(open_bins)
    count, _ = _native.first_fit(
        ends - begins, length, most_bins, fills, bins, offsets, closed, came
    )
    return Pieces(rows, begins, ends, bins, offsets, closed[:count].copy(), came[:count].copy())


def joined(numbers: Index, lengths: Index, used: int, open_bins: Bins, length: int) -> Pieces:
    """Put the values of rows one after the other, and cut them wherever a bin is full."""
    starts = np.zeros(len(lengths), np.int64)
    starts[:1] = used
    left = lengths - starts
    ends = np.cumsum(left) + int(fills_of(open_bins).sum())
    firsts = ends - left
    first_bins = firsts // length
    counts = np.where(left > 0, (ends - 1) // length - first_bins + 1, 0)
    bins = np.repeat(first_bins, counts) + spans(np.zeros(len(counts), np.int64), counts)
    begins = np.maximum(np.repeat(firsts, counts), bins * length)
    stops = np.minimum(np.repeat(ends, counts), (bins + 1) * length)
    shift = np.repeat(starts - firsts, counts)
    filled = np.flatnonzero(stops == (bins + 1) * length)
    return Pieces(
        np.repeat(numbers, counts),
        begins + shift,
        stops + shift,
        bins,
        begins - bins * length,
        bins[filled],
        filled + 1,
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """The bins when some of them closed: gives the cursor after each of these."""

    before: Bins
    pieces: Pieces
    closed: tuple[int, ...]
    """The bins that closed: as in `pieces`, or all that are left at the end."""
    stop: int
    """The number of the row after the last new one."""
    anchors: Anchors
    is_direct: bool

    def __call__(self, offset: int) -> Cursor:
        """Return the cursor after `offset` bins: [pieces of the open bins, values used of the next row, ...]."""
        came = int(self.pieces.came[offset - 1]) if 0 < offset <= len(self.pieces.came) else 0
        if self.is_flush:
            came = len(self.pieces.rows)
        bins = self.bins_after(came, offset)
        passed, used = self.stop, 0
        if came < len(self.pieces.rows):
            passed, used = int(self.pieces.rows[came]), int(self.pieces.begins[came])
        held = [row for one in bins for row, _, _ in one]
        place = saved(self.anchors, passed, held, is_direct=self.is_direct)
        return [[list(map(list, one)) for one in bins], used, *place]

    @property
    def is_flush(self) -> bool:
        """Whether these are the bins that are left at the end."""
        return not len(self.pieces.closed) and bool(self.closed)

    def bins_after(self, came: int, num_closed: int) -> Bins:
        """Return the open bins after so many pieces were placed, and so many bins closed."""
        made: dict[int, list[Piece]] = {at: list(one) for at, one in enumerate(self.before)}
        bins = self.pieces.bins[:came]
        # Only those that are open then: there are few.
        gone = set(self.closed[:num_closed])
        kept = np.flatnonzero(~np.isin(bins, list(gone))) if gone else np.arange(came)
        for at in kept.tolist():
            piece = (
                int(self.pieces.rows[at]),
                int(self.pieces.begins[at]),
                int(self.pieces.ends[at]),
            )
            made.setdefault(int(bins[at]), []).append(piece)
        return tuple(tuple(made[number]) for number in sorted(made) if number not in gone)


def bins_from(value: Any) -> Bins | None:
    """Return the bins that a cursor has; None if it can't have them."""
    is_list = isinstance(value, list) and all(isinstance(one, list) for one in value)
    if not is_list or not all(_is_piece(piece) for one in value for piece in one):
        return None
    return tuple(tuple((row, begin, end) for row, begin, end in one) for one in value)


def _is_piece(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 3
        and all(type(one) is int for one in value)
        and 0 <= value[1] < value[2]
    )
