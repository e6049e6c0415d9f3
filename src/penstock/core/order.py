"""Seeded random orders: a bijection on row numbers, so that no array of all rows is ever made."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Index

WINDOWS_VERSION = 2
"""Of the way in which windowed shuffles cut rows into windows: a state of another version would lose or repeat rows."""
_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Permutation:
    """A random order of `num_rows` rows, given by whole numbers such as (seed, epoch).

    The order for given numbers is part of the interface: it never changes between versions.

    >>> Permutation(5, (0, 0)).rows(np.arange(5)).tolist()
    [2, 1, 3, 4, 0]
    """

    num_rows: int
    words: tuple[int, ...]

    def rows(self, positions: Index) -> Index:
        """Return the row that stands at each position; takes 8 bytes a position."""
        out = np.empty(len(positions), np.int64)
        if len(positions):
            keys = round_keys(self.words, num_rounds(self.num_rows))
            _native.permute(np.ascontiguousarray(positions, np.int64), out, self.num_rows, keys)
        return out

    def positions(self, rows: Index) -> Index:
        """Return the position at which each row stands: the inverse of `rows`."""
        out = np.empty(len(rows), np.int64)
        if len(rows):
            keys = round_keys(self.words, num_rounds(self.num_rows))
            _native.unpermute(np.ascontiguousarray(rows, np.int64), out, self.num_rows, keys)
        return out


def lane_orders(
    places: Index,
    block_rows: int,
    lanes: int,
    words: tuple[int, ...],
    *,
    first: int = 0,
    step: int = 1,
) -> Index:
    """Return the shuffled rows of each lane: entry [i, j] is the row at position i of lane j.

    `places` lists the blocks of the first lane, then those of the next, and so on: block k holds the rows from
    `places[k] * block_rows` on. Lane j is in the order of `Permutation(rows of a lane, (*words, j))`. All lanes
    are computed in one call, which is many times as fast as one call for each. With `first` and `step`, only those
    lanes are meant, of `lanes` in all: entry [i, j] is of lane first + j * step, and `places` has only their blocks.

    >>> lane_orders(np.array([2, 0, 1, 3]), 1, 2, (0,)).tolist()
    [[2, 1], [0, 3]]
    """
    chosen = np.arange(first, lanes, step, dtype=np.uint64)
    num_rows = len(places) // len(chosen) * block_rows
    out = np.empty((num_rows, len(chosen)), np.int64)
    keys = _lane_keys(words, chosen, num_rounds(num_rows))
    _native.permute_lanes(out, keys, places, block_rows)
    return out


def uneven_lane_orders(
    num_rows: int, places: Index, block_rows: int, lanes: int, words: tuple[int, ...]
) -> Index:
    """Return which of `num_rows` rows stands at each position, if lanes take turns and each has a run of rows.

    Position p belongs to lane p mod `lanes`. Rows are those of the blocks `places`, as in `lane_orders`; the first lane
    has the first of them, as many as it has positions, the next lane the rows after these, and so on. Lane j is in the
    order of `Permutation(rows of the lane, (*words, j))`.

    >>> uneven_lane_orders(5, np.array([0, 1, 2]), 2, 2, (0,)).tolist()
    [1, 3, 0, 4, 2]
    """
    out = np.empty(num_rows, np.int64)
    full, longer = divmod(num_rows, lanes)
    shape, steps = (full + 1, longer), (lanes * out.itemsize, out.itemsize)
    # The last row of a table of all lanes would not be full: the lanes that have a row more are a table of their own.
    of_longer = np.lib.stride_tricks.as_strided(out, shape, steps)
    of_others = out[: full * lanes].reshape(full, lanes)[:, longer:]
    for table, first in ((of_longer, 0), (of_others, longer)):
        if table.size:
            chosen = np.arange(first, first + table.shape[1], dtype=np.uint64)
            keys = _lane_keys(words, chosen, num_rounds(len(table)))
            _native.permute_lanes(table, keys, places, block_rows, first * (full + 1))
    return out


@lru_cache(maxsize=1024)
def num_rounds(num_rows: int) -> int:
    """Return how many rounds make the order of `num_rows` rows indistinguishable from uniform.

    Each pair of rounds divides the remaining bias by about sqrt(num_rows). So a handful of rows needs
    many rounds, and anything above a few thousand rows needs the same eight.
    """
    side = math.isqrt(max(num_rows - 1, 0)) + 1
    return min(64, max(8, 2 * math.ceil(24 / max(math.log2(side), 1.0))))


@lru_cache(maxsize=1024)
def round_keys(words: tuple[int, ...], count: int) -> npt.NDArray[np.uint64]:
    """Return `count` keys that depend on every word: a splitmix64 stream."""
    state = _state(words)
    keys = np.empty(count, np.uint64)
    for number in range(count):
        state = (state + _GOLDEN) & _MASK
        keys[number] = mix(state)
    keys.flags.writeable = False
    return keys


def _lane_keys(
    words: tuple[int, ...], lanes: npt.NDArray[np.uint64], count: int
) -> npt.NDArray[np.uint64]:
    """Return `round_keys((*words, lane), count)` for each lane."""
    golden = np.uint64(_GOLDEN)
    last = mix_all(lanes + golden)
    state = mix_all(np.uint64(_state(words)) ^ last)
    steps = np.arange(1, count + 1, dtype=np.uint64) * golden
    return mix_all(state[:, None] + steps)


def _state(words: tuple[int, ...]) -> int:
    state = 0
    for word in words:
        state = mix(state ^ mix((word + _GOLDEN) & _MASK))
    return state


def mix_all(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the hash of each word; whole numbers of 64 bits wrap around."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hashes(words: tuple[int, ...], count: int) -> npt.NDArray[np.uint64]:
    """Return `count` random numbers of 64 bits that depend on every word.

    >>> (hashes((0, 0), 3) % np.uint64(100)).tolist()
    [39, 44, 11]
    """
    state = np.uint64(_state(words))
    return mix_all(state + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GOLDEN))


def mix(word: int) -> int:
    """Return the splitmix64 hash of a 64-bit word."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
