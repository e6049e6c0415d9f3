"""Rows of a flow that are held back until others come, in any order: buckets that fill, bins with room left.

A state must tell which rows are held. Of an input with random access it has their numbers, and they are read again by
these. Of a flow it also has the cursor before the oldest of them: from there the input is read again, and only the
rows that were held are taken.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block, varying_nbytes
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.rows import Context, Flow, Node, Rows
from penstock.core.state import wrong_cursor

MOST_BLOCKS = 8
"""Blocks that held rows may lie in: with more, they are copied into one."""

PutBack = Callable[[Index, Block, Index], None]
"""Takes rows that were held when the state was saved: their numbers, a block, and their places in it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """New rows of the input: those from `start` on of a parcel whose first row has the number `first`."""

    parcel: Parcel
    first: int
    start: int

    @property
    def numbers(self) -> Index:
        """The numbers of the new rows."""
        return np.arange(self.first + self.start, self.first + self.parcel.size)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage that holds rows stands: the rows it holds, how many it has seen, and where to read from."""

    held: Index
    """Numbers of the rows that are held, in ascending order."""
    passed: int
    """How many rows of the input were seen."""
    since: int
    """The number of the row that `inner` stands before."""
    inner: Cursor


class Anchors:
    """The cursors of the input before any row of the parcels that came: to read rows again that are held."""

    __slots__ = ("_afters", "_firsts")

    def __init__(self, firsts: tuple[int, ...], afters: tuple[CursorAfter, ...]) -> None:
        self._firsts = firsts
        self._afters = afters

    @staticmethod
    def at(place: Place) -> "Anchors":
        """Return those of a place that was saved."""
        return Anchors((place.since,), (partial(_given, place.inner),))

    def cursor(self, number: int) -> Cursor:
        """Return the cursor of the input before a row."""
        at = bisect_right(self._firsts, number) - 1
        return self._afters[at](number - self._firsts[at])

    def with_parcel(self, first: int, parcel: Parcel, held: Index) -> "Anchors":
        """Return the anchors of a further parcel, and of the earlier ones that have rows which are held."""
        ends = (*self._firsts[1:], first)
        found = np.searchsorted(held, self._firsts) < np.searchsorted(held, ends)
        kept = [at for at, has_rows in enumerate(found.tolist()) if has_rows]
        firsts = [self._firsts[at] for at in kept if self._firsts[at] != first]
        afters = [self._afters[at] for at in kept if self._firsts[at] != first]
        return Anchors((*firsts, first), (*afters, parcel.cursor_after))


def _given(inner: Cursor, offset: int) -> Cursor:
    assert offset == 0
    return inner


class HeldInput:
    """The input of a flow that holds rows back: its rows from a place on, by number."""

    def __init__(
        self, node: Node, flow: Flow, direct: Rows | None, place: Place, context: Context
    ) -> None:
        """Read `flow`, whose rows are those of `direct` by their numbers, if there is random access."""
        self._node = node
        self._flow = flow
        self._direct = direct
        self._place = place
        self._context = context
        self.anchors = Anchors.at(place)

    @property
    def is_direct(self) -> bool:
        """Whether rows that are held can be read again by their numbers."""
        return self._direct is not None

    def arrivals(self, put_back: PutBack, held: Callable[[], Index]) -> Iterator[Arrival]:
        """Put back the rows that were held, then yield the new ones; `held` tells which are held by now."""
        place, number = self._place, self._place.since
        if self._direct is not None:
            step = self._context.rows_per_block(self._direct)
            for start in range(0, len(place.held), step):
                some = place.held[start : start + step]
                block = self._context.block(self._direct, len(some))
                self._direct.read(some, block, self._context)
                put_back(some, block.finish(), np.arange(len(some)))
                del block
        for parcel in self._flow.parcels(place.inner, self._context):
            old = held() if number >= place.passed else place.held
            self.anchors = self.anchors.with_parcel(number, parcel, old)
            stop = number + parcel.size
            if self._direct is None and number < place.passed:
                first, last = np.searchsorted(place.held, (number, stop))
                if last > first:
                    again = place.held[first:last]
                    put_back(again, parcel.block, again - number)
            if stop > place.passed:
                yield Arrival(parcel, number, max(0, place.passed - number))
            number = stop
        if number < place.passed:
            raise wrong_cursor(self._node, [place.passed])


def place_of(node: Node, groups: Any, direct: Rows | None, cursor: Sequence[Any]) -> Place:
    """Return the place that a cursor tells: [..., passed, since, inner]; `groups` are lists of the rows it holds.

    Raise a StateError if it can't be one.
    """
    passed, since, inner = cursor
    flat = [number for group in groups for number in group]
    if any(type(number) is not int for number in flat):
        raise wrong_cursor(node, cursor)
    held = np.array(sorted(flat), np.int64)
    is_wrong = since > passed or (len(held) and (held[0] < 0 or held[-1] >= passed))
    is_wrong |= len(held) > 1 and not (np.diff(held) > 0).all()
    if direct is None:
        is_wrong |= bool(len(held)) and held[0] < since
    else:
        is_wrong |= since != passed or passed > direct.num_rows
    if is_wrong:
        raise wrong_cursor(node, cursor)
    return Place(held, passed, since, inner)


def saved(anchors: Anchors, passed: int, held: Sequence[int], *, is_direct: bool) -> list[Any]:
    """Return the end of a cursor, [passed, since, inner], after `passed` rows, of which some are held."""
    since = passed if is_direct or not held else min(held)
    return [passed, since, anchors.cursor(since)]


class HeldRows:
    """The rows that are held, by number; in the blocks that they came in, or copied from these."""

    def __init__(self, node: Node, context: Context) -> None:
        self._node = node
        self._context = context
        self._blocks: list[Block] = []
        self.numbers = self._owners = self._places = self.nbytes = np.empty(0, np.int64)

    def add(self, numbers: Index, block: Block, places: Index) -> None:
        """Hold further rows, with higher numbers than those before."""
        sizes = varying_nbytes(block, int(places.max()) + 1)[places] if len(places) else places
        self.numbers = np.concatenate([self.numbers, numbers])
        self._owners = np.concatenate([self._owners, np.full(len(numbers), len(self._blocks))])
        self._places = np.concatenate([self._places, places])
        self.nbytes = np.concatenate([self.nbytes, sizes])
        self._blocks.append(block)

    def sizes(self, numbers: Index) -> Index:
        """Return the bytes of rows, as far as they differ in size."""
        return self.nbytes[np.searchsorted(self.numbers, numbers)]

    def copy_to(self, out: Block, numbers: Index) -> None:
        """Copy rows."""
        at = np.searchsorted(self.numbers, numbers)
        out.collect_from(self._blocks, self._owners[at], self._places[at])

    def keep(self, numbers: Index) -> None:
        """Let go of all rows but these; they are in ascending order."""
        at = np.searchsorted(self.numbers, numbers)
        self.numbers, self.nbytes = self.numbers[at], self.nbytes[at]
        used, self._owners = np.unique(self._owners[at], return_inverse=True)
        self._places = self._places[at]
        self._blocks = [self._blocks[owner] for owner in used.tolist()]
        nbytes = sum(block.nbytes for block in self._blocks)
        if len(self._blocks) > MOST_BLOCKS or 4 * nbytes > self._context.block_nbytes:
            self._pack()

    def _pack(self) -> None:
        block = self._context.block(self._node, len(self.numbers))
        block.collect_from(self._blocks, self._owners, self._places)
        self._blocks = [block.finish()]
        self._owners = np.zeros(len(self.numbers), np.int64)
        self._places = np.arange(len(self.numbers))
