"""Rows dealt to parts by what is in them: each class by its exact share, or groups as a whole. A bit a row and part."""

import weakref
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Array, Index
from penstock.memory import Account, process_ledger
from penstock.stages.base.classes import Classes
from penstock.stages.split.dealing import Deal

_UNBOUNDED = 1 << 62
_NEAR = 0.1  # A part of whole groups that is this much of its share away from it is near enough.
_MOST_ORDERS = 256  # Of groups, in search of one whose parts are nearer.
_FEWEST_ORDERS = 8  # Where there are so many groups that each order takes a while.
_MOST_PLACED = 1 << 20  # Groups of all orders together.


class Marks:
    """For each part, a bit for every row that it has; the ledger counts them for as long as a dataset has them."""

    def __init__(self, words: list[npt.NDArray[np.uint64]], num_rows: int, budget: int) -> None:
        self.words = words
        self.num_rows = num_rows
        self.ranks = [_ranks(one) for one in words]
        self.checksum = zlib.crc32(b"".join(one.tobytes() for one in words[1:]))
        account = Account(process_ledger, "the bits of split")
        self.nbytes = nbytes = sum(one.nbytes for one in [*words, *self.ranks])
        account.open(budget=budget, need=nbytes, want=nbytes, why="a bit for each row and part")
        weakref.finalize(self, account.close)
        self._choices = [
            _native.Marked(one, ranks) for one, ranks in zip(words, self.ranks, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the bits; they are counted wherever they come to."""
        return Marks, (self.words, self.num_rows, _UNBOUNDED)

    def size(self, part: int) -> int:
        """Return how many rows a part has."""
        return int(self.ranks[part][-1])

    def choice(self, part: int) -> _native.Marked:
        """Return which row of the input each row of a part is."""
        return self._choices[part]

    def rows(self, part: int, start: int, stop: int) -> Index:
        """Return which of the rows `start` to `stop` a part has, counted from `start`."""
        first = start // 64
        words = self.words[part][first : -(-stop // 64)]
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits[start - first * 64 : stop - first * 64])


def marks_by_class(deal: Deal, classes: Classes, budget: int) -> Marks:
    """Return the parts, of which each has its exact share of the rows of every class."""
    counts = classes.counts()
    whole = counts - counts % deal.run_rows
    keys = deal.keys(len(counts))
    seen = np.zeros(len(counts), np.int64)
    left_rows: list[Index] = []
    left_classes: list[Index] = []
    marking = _Marking(deal.num_parts, classes.num_rows)
    for numbers in classes.pieces():
        order = np.argsort(numbers, kind="stable")
        mine = numbers[order]
        here = np.bincount(mine, minlength=len(counts))
        ordinals = np.arange(len(mine)) - (np.cumsum(here) - here)[mine] + seen[mine]
        seen += here
        owners = np.empty(len(mine), np.int64)
        owners[order] = deal.owners_in_runs(ordinals, keys[mine])
        late = order[ordinals >= whole[mine]]
        left_rows.append(marking.num_done + late)
        left_classes.append(numbers[late])
        marking.add(owners)
    if left_rows:
        rows, owned = np.concatenate(left_rows), np.concatenate(left_classes)
        order = np.argsort(rows)  # However they were cut into blocks.
        rows, owned = rows[order], owned[order]
        marking.move(rows, _leftovers(deal, rows, owned, len(counts)))
    return marking.finish(budget)


def _leftovers(deal: Deal, rows: Index, owned: Index, num_classes: int) -> Index:
    """Return who gets what is left of all classes after whole runs: of each, what is nearest to the share.

    All are put in a row, class after class, and dealt evenly from one end to the other: so every stretch of them, as is
    that of a class, and all together, have the share rounded up or down.
    """
    places = deal.order(num_classes, 0).positions(owned)
    order = np.lexsort((deal.order(len(rows), 1).rows(np.arange(len(rows))), places))
    owners = np.zeros(len(rows), np.int64)
    left = order
    for part in range(deal.num_parts - 1):
        share, total = deal.share(part), deal.run_rows - deal.edges[part]
        numbers = np.arange(len(left) + 1) * share // total
        is_mine = np.diff(numbers) == 1
        owners[left[is_mine]] = part
        left = left[~is_mine]
    owners[left] = deal.num_parts - 1
    return owners


def marks_by_group(deal: Deal, classes: Classes, budget: int) -> Marks:
    """Return the parts, of which each has whole groups, with as near as can be its share of the rows."""
    counts = classes.counts()
    if len(counts) < deal.num_parts:
        raise ValueError(
            f"split needs a group for each of {deal.num_parts} parts, and by= finds {len(counts)}."
        )
    owners = _owners_of_groups(deal, counts)
    marking = _Marking(deal.num_parts, classes.num_rows)
    for piece in classes.pieces():
        marking.add(owners[piece])
    return marking.finish(budget)


def _owners_of_groups(deal: Deal, counts: Index) -> Index:
    """Return the part that each group belongs to: a random order of groups, cut where the shares end.

    Of a few large groups, an order may leave a part with far too many rows, or too few. Then the nearest of several
    orders is taken. Where groups are small, the first one does.
    """
    wanted = np.maximum(1, np.diff(deal.cuts(int(counts.sum()))))
    most = min(_MOST_ORDERS, max(_FEWEST_ORDERS, _MOST_PLACED // len(counts)))
    nearest, found = np.inf, np.zeros(len(counts), np.int64)
    for number in range(most):
        owners = _cut(
            deal, counts, deal.order(len(counts), 3 + number).rows(np.arange(len(counts)))
        )
        away = np.abs(np.bincount(owners, counts, deal.num_parts) - wanted) / wanted
        if away.max() < nearest:
            nearest, found = away.max(), owners
        if number == 0 and nearest <= _NEAR:
            break
    return found


def _cut(deal: Deal, counts: Index, order: Index) -> Index:
    """Return the part that each group belongs to, if groups in this order are cut where the shares end."""
    middles = np.cumsum(counts[order]) - counts[order] / 2
    cuts = np.searchsorted(middles, deal.cuts(int(counts.sum()))[1:-1])
    # Each part has a group at least.
    numbers = np.arange(1, deal.num_parts)
    for number in numbers:
        before = cuts[number - 2] if number > 1 else 0
        cuts[number - 1] = max(cuts[number - 1], before + 1)
    cuts = np.minimum(cuts, len(counts) - (deal.num_parts - numbers))
    owners = np.empty(len(counts), np.int64)
    owners[order] = np.searchsorted(cuts, np.arange(len(counts)), side="right")
    return owners


class _Marking:
    """Sets the bits of rows that come one after the other."""

    def __init__(self, num_parts: int, num_rows: int) -> None:
        self.num_rows = num_rows
        self.num_done = 0
        self._bits = [np.zeros(-(-num_rows // 512) * 64, np.uint8) for _ in range(num_parts)]

    def add(self, owners: Index) -> None:
        first, start = divmod(self.num_done, 8)
        for part, bits in enumerate(self._bits):
            mine = np.zeros(start + len(owners), np.uint8)
            mine[start:] = owners == part
            packed = np.packbits(mine, bitorder="little")
            bits[first : first + len(packed)] |= packed
        self.num_done += len(owners)

    def move(self, rows: Index, owners: Index) -> None:
        """Give rows that were added to other parts."""
        places, masks = rows >> 3, (1 << (rows & 7)).astype(np.uint8)
        for part, bits in enumerate(self._bits):
            np.bitwise_and.at(bits, places, ~masks)
            mine = owners == part
            np.bitwise_or.at(bits, places[mine], masks[mine])

    def finish(self, budget: int) -> Marks:
        return Marks([bits.view(np.uint64) for bits in self._bits], self.num_rows, budget)


def _ranks(words: npt.NDArray[np.uint64]) -> Index:
    counts = _ones(words).reshape(-1, 8).sum(axis=1)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _ones(words: npt.NDArray[np.uint64]) -> Array:
    table: Array = np.array([number.bit_count() for number in range(256)], np.int64)
    counts: Array = table[words.view(np.uint8)].reshape(-1, 8).sum(axis=1)
    return counts
