"""Blocks that the rows of many results are put into, with the cursor after each row."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.columns import Fixed
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.rows import Context, Node
from penstock.stages.base.functions import UserFunction
from penstock.stages.base.results import Results
from penstock.stages.flat_map.returned import Result


@dataclass(frozen=True, slots=True)
class Source:
    """The input row that a result is of: its number, and the input's cursors before and after it."""

    number: int
    before: Callable[[], Cursor]
    after: Callable[[], Cursor]


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Rows of a block that are of one result, from row `first` of the block on, `used` rows into the result."""

    first: int
    source: Source
    used: int
    within: CursorAfter | None = None
    """For a dataset: its cursor after so many rows of the stretch."""


class Filling:
    """A block that rows of results are put into."""

    def __init__(
        self, node: Node, function: UserFunction, context: Context, *, is_declared: bool
    ) -> None:
        self._node = node
        self._is_declared = is_declared
        self._function = function
        self._context = context
        self._most = context.rows_per_block(node)
        self._room = 1  # The first blocks are small: the consumer is waiting.
        self._begin()

    def _begin(self) -> None:
        self._results: Results | None = None
        self.size = 0
        self._nbytes = 0
        self._stretches: list[_Stretch] = []
        self._ends: list[tuple[int, Source]] = []

    def _started(self) -> Results:
        """Return what takes the rows of the block; it gets its room when the first of them comes."""
        if self._results is None:
            node = self._node
            self._results = Results(
                self._function,
                node.structure,
                node.fields,
                self._context.block(node, self._room),
                is_declared=self._is_declared,
            )
        return self._results

    def _stretch(self, source: Source, used: int, within: CursorAfter | None = None) -> None:
        self._stretches.append(_Stretch(self.size, source, used, within))

    def _is_full(self) -> bool:
        return self.size == self._room or self._nbytes >= self._context.block_nbytes

    def add_rows(
        self, source: Source, rows: Iterator[Any], used: int, where: Callable[[], str]
    ) -> Iterator[bool]:
        """Add rows one by one."""
        self._stretch(source, used)
        for row in rows:
            self._put(row, where)
            used += 1
            if self._is_full():
                yield True
                self._stretch(source, used)

    def _put(self, row: Any, where: Callable[[], str]) -> None:
        results = self._started()
        before = [len(one) for one in results.lists]
        results.put(self.size, row, where)
        for values, count in zip(results.lists, before, strict=True):
            self._nbytes += sum(_nbytes(value) for value in values[count:])
        self.size += 1

    def add_arrays(
        self, source: Source, result: Result, used: int, where: Callable[[], str]
    ) -> Iterator[bool]:
        """Add rows of arrays: many at once, where they are just as declared."""
        if result.structure != self._node.structure or not all(
            leaf.dtype == field.spec.dtype and leaf.shape[1:] == field.spec.shape
            for leaf, field in zip(result.leaves, self._node.fields, strict=True)
        ):
            yield from self.add_rows(source, result.rows(used), used, where)
            return
        while used < result.size:
            self._stretch(source, used)
            stop = min(result.size, used + self._room - self.size)
            sinks = self._started().out.sinks
            for leaf, sink in zip(result.leaves, sinks, strict=True):
                assert isinstance(sink, Fixed)
                sink.put(leaf[used:stop], self.size)
            self.size += stop - used
            used = stop
            if self._is_full():
                yield True

    def add_block(
        self, source: Source, parcel: Parcel, used: int, where: Callable[[], str]
    ) -> Iterator[bool]:
        """Add the rows of a parcel of a dataset."""
        done = 0
        while done < parcel.size:
            self._stretch(source, used + done, partial(_later, parcel.cursor_after, done))
            count = min(parcel.size - done, self._room - self.size)
            for row in range(done, done + count):
                leaves = parcel.block.row(row)
                self._put(self._node.structure.unflatten(leaves), where)
                done = row + 1
                if self._is_full():
                    break
            if self._is_full():
                yield True

    def end(self, source: Source) -> None:
        """Note that the result of a row has no more rows."""
        self._ends.append((self.size, source))

    def parcel(self) -> Parcel:
        """Return the rows, and begin another block."""
        results = self._started()
        results.finish(self.size)
        after = partial(_after, tuple(self._stretches), tuple(self._ends))
        made = Parcel(results.out.finish(), self.size, after)
        self._room = min(self._most, 2 * self._room)
        self._begin()
        return made


def _later(cursor_after: CursorAfter, first: int, offset: int) -> Cursor:
    return cursor_after(first + offset)


def _nbytes(value: Any) -> int:
    """Return about how many bytes a value takes in a column of text or of ragged rows."""
    if not isinstance(value, np.ndarray):
        return len(value) + 16
    return value.nbytes + (sum(map(len, value.flat)) if value.dtype.hasobject else 0) + 16


def _after(
    stretches: Sequence[_Stretch], ends: Sequence[tuple[int, Source]], offset: int
) -> Cursor:
    """Return the cursor after `offset` rows of a block."""
    at = max(0, bisect_right([one.first for one in stretches], offset - 1) - 1)
    stretch = stretches[at]
    done = offset - stretch.first
    source = stretch.source
    if any(end == offset and one is source for end, one in ends):
        return [source.number + 1, 0, source.after(), None]
    within = None if stretch.within is None else stretch.within(done)
    return [source.number, stretch.used + done, source.before(), within]
