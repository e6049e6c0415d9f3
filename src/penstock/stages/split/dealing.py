"""Rows dealt to several parts in closed form: each run of rows gives every part its exact share.

A run is as short as it can be for the shares to be whole numbers: 10 rows for 0.9, 1,000 for 0.125 and 0.001. A few
patterns say who gets which row of a run; a hash of the seed and the run picks one, and turns it by a random number of
rows. So it takes no memory to know which row of the input any row of a part is, and the order stays that of the input.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.order import Permutation, hashes, mix_all

_FINEST = 10_000  # Shares are whole ten-thousandths, or fractions with a smaller denominator.
_LONGEST = 100_000  # The rows of a run: of several shares, their common denominator.
_TABLE_ROWS = 1 << 14  # Rows of all patterns together: their tables stay in a core's cache.
_MOST_PATTERNS = 64
_WORD = 0x53504C4954  # Keeps these patterns apart from the order of a shuffle with the same seed.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Deal:
    """How rows are dealt: of every `run_rows` rows, part k gets `edges[k + 1] - edges[k]`."""

    run_rows: int
    edges: tuple[int, ...]
    seed: int

    @property
    def num_parts(self) -> int:
        """How many parts there are."""
        return len(self.edges) - 1

    def share(self, part: int) -> int:
        """Return the rows of each run that belong to a part."""
        return self.edges[part + 1] - self.edges[part]

    def cuts(self, num_rows: int) -> list[int]:
        """Return how many of `num_rows` rows the first k parts have together, for each k: rounded down.

        >>> Deal(10, (0, 9, 10), 0).cuts(25)
        [0, 22, 25]
        """
        return [edge * num_rows // self.run_rows for edge in self.edges]

    def size(self, part: int, num_rows: int) -> int:
        """Return how many of `num_rows` rows belong to a part."""
        cuts = self.cuts(num_rows)
        return cuts[part + 1] - cuts[part]

    def choice(self, part: int, num_rows: int) -> _native.Dealt:
        """Return which row of the input each row of a part is."""
        return _choice(self, part, num_rows)

    def owners(self, rows: Index, num_rows: int | None) -> Index:
        """Return the part that each row of the input belongs to; `num_rows` is None where nobody knows it."""
        owners = self.owners_in_runs(rows, self.key())
        if num_rows is not None:
            whole = num_rows - num_rows % self.run_rows
            late = np.flatnonzero(rows >= whole)
            owners[late] = self._tail_owners(num_rows)[rows[late] - whole]
        return owners

    def owners_in_runs(
        self, rows: Index, keys: "npt.NDArray[np.uint64] | np.uint64"
    ) -> npt.NDArray[np.int64]:
        """Return the owners of rows as if all runs were whole; each row may have a key of its own."""
        patterns = _patterns(self)
        runs, places = np.divmod(rows, self.run_rows)
        found = mix_all(keys + (runs + 1).astype(np.uint64) * _GOLDEN)
        turns = _high(found, self.run_rows)
        picked = (found & np.uint64(len(patterns) - 1)).astype(np.int64)
        owners: Index = patterns[picked, (places - turns) % self.run_rows].astype(np.int64)
        return owners

    def key(self, *words: int) -> np.uint64:
        """Return the key of the hash that picks patterns."""
        return np.uint64(hashes((self.seed, _WORD, *words), 1)[0])

    def keys(self, count: int) -> npt.NDArray[np.uint64]:
        """Return a key for each of `count` classes."""
        return hashes((self.seed, _WORD, 1), count)

    def order(self, num_rows: int, word: int) -> Permutation:
        """Return a random order for what is left over after all whole runs."""
        return Permutation(num_rows, (self.seed, _WORD, 2, word))

    def tail(self, part: int, num_rows: int) -> Index:
        """Return the rows after the last whole run that belong to a part."""
        whole = num_rows - num_rows % self.run_rows
        return whole + np.flatnonzero(self._tail_owners(num_rows) == part)

    def _tail_owners(self, num_rows: int) -> Index:
        left = num_rows % self.run_rows
        owners = np.empty(left, np.int64)
        rows = self.order(left, num_rows // self.run_rows).rows(np.arange(left))
        owners[rows] = np.repeat(np.arange(self.num_parts), np.diff(self.cuts(left)))
        return owners

    def fingerprint(self) -> list[Any]:
        """Return what the parts follow from, as JSON."""
        return [self.run_rows, list(self.edges), self.seed]


def deal_of(fractions: Sequence[Any], seed: int) -> Deal:
    """Return how rows are dealt to parts with these fractions of them; the rest is the last part.

    >>> deal_of([0.8, 0.1], 0)
    Deal(run_rows=10, edges=(0, 8, 9, 10), seed=0)
    """
    shares = [_checked(fraction) for fraction in fractions]
    if not shares:
        raise TypeError("split needs the fraction of the rows that a part gets: ds.split(0.9)")
    total = sum(shares, Fraction(0))
    shown = ", ".join(f"{fraction:g}" for fraction in map(float, fractions))
    if total > 1:
        raise ValueError(
            f"the fractions of split must add up to 1 at most, got {shown}, together {float(total):g}."
        )
    if total < 1:
        shares.append(1 - total)
    if len(shares) < 2:
        raise ValueError(
            f"split needs two parts or more, got {shown}: write ds.split(0.9) for 90 % and the rest."
        )
    run_rows = math.lcm(*(share.denominator for share in shares))
    sums = [sum(shares[:count], Fraction(0)) for count in range(len(shares) + 1)]
    if run_rows > _LONGEST:
        run_rows = _FINEST
    edges = tuple(round(one * run_rows) for one in sums)
    if any(first == second for first, second in itertools.pairwise(edges)):
        raise ValueError(
            f"each part of split must be at least 1/{_FINEST} of the rows, got {shown}."
        )
    return Deal(run_rows, edges, seed)


def _checked(fraction: Any) -> Fraction:
    if isinstance(fraction, list | tuple):
        inner = ", ".join(map(repr, fraction))
        raise TypeError(f"split takes fractions one by one: write ds.split({inner}).")
    try:
        is_number = not isinstance(fraction, bool | str | bytes)
        value = Fraction(fraction if isinstance(fraction, Fraction) else float(fraction))
    except (TypeError, ValueError, OverflowError):
        is_number = False
    if not is_number:
        raise TypeError(f"the fractions of split must be numbers, as 0.9 is, got {fraction!r}.")
    if not 0 < value < 1:
        hint = f" Write {float(value) / 100:g} for {float(value):g} %." if 1 < value < 100 else ""
        raise ValueError(f"the fractions of split must be between 0 and 1, got {fraction!r}.{hint}")
    # 0.9 is no binary number: the nearest fraction with a small denominator is what was meant.
    share = value.limit_denominator(_FINEST)
    if share in (0, 1):
        raise ValueError(
            f"each part of split must be at least 1/{_FINEST} of the rows, got {fraction!r}."
        )
    return share


@lru_cache(maxsize=64)
def _patterns(deal: Deal) -> npt.NDArray[np.int32]:
    """Return, for each pattern, the part that each row of a run belongs to."""
    most = max(1, min(_MOST_PATTERNS, _TABLE_ROWS // deal.run_rows))
    count = 1 << (most.bit_length() - 1)
    owners = np.repeat(np.arange(deal.num_parts, dtype=np.int32), np.diff(deal.edges))
    patterns = np.empty((count, deal.run_rows), np.int32)
    for number in range(count):
        order = Permutation(deal.run_rows, (deal.seed, _WORD, 0, number))
        patterns[number, order.rows(np.arange(deal.run_rows))] = owners
    return patterns


@lru_cache(maxsize=64)
def _choice(deal: Deal, part: int, num_rows: int) -> _native.Dealt:
    patterns = _patterns(deal)
    count, run_rows = patterns.shape
    share = deal.share(part)
    places = np.nonzero(patterns == part)[1].reshape(count, share).astype(np.uint32)
    inside = np.arange(run_rows, 0, -1)  # Places that a turn leaves inside the run: those below it.
    firsts = np.stack([np.searchsorted(mine, inside) for mine in places]) % share
    tail = deal.tail(part, num_rows)
    return _native.Dealt(
        int(deal.key()), num_rows // run_rows, places, firsts.astype(np.uint32), tail
    )


def _high(numbers: npt.NDArray[np.uint64], factor: int) -> Index:
    """Return the high 64 bits of each product; `factor` has at most 32."""
    by = np.uint64(factor)
    low = (numbers & _LOW) * by >> _HALF
    high: Index = (((numbers >> _HALF) * by + low) >> _HALF).astype(np.int64)
    return high
