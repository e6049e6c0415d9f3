"""Blocks: many rows at once, a column for each leaf of the nest.

A block is filled once, when its rows are read, and is not written to after that.
"""

import weakref
from collections.abc import Iterator, Sequence
from types import GeneratorType
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.columns import Column, Fixed, Ragged, Text, collect, column_of, merge
from penstock.core.nest import Join
from penstock.core.spec import ArraySpec
from penstock.memory import Allocate, Lease


class Pieces:
    """A column of text or ragged rows while it is being filled, in any order."""

    __slots__ = ("aligned", "allocate", "pieces", "slots", "spec")

    def __init__(self, spec: ArraySpec, allocate: Allocate, *, aligned: bool) -> None:
        self.spec = spec
        self.allocate = allocate
        self.aligned = aligned
        self.pieces: list[tuple[Index | None, Text | Ragged]] = []
        self.slots: Index | None = None

    def at(self, slots: Index) -> "Pieces":
        """Return a view of this column, to be filled: row j of the view is the row in slot `slots[j]`."""
        view = Pieces(self.spec, self.allocate, aligned=self.aligned)
        view.pieces = self.pieces
        view.slots = slots if self.slots is None else self.slots[slots]
        return view

    def span(self, start: int, stop: int) -> "Pieces":
        """Return rows `start` to `stop` of this column, to be filled."""
        return self.at(np.arange(start, stop))

    def put(self, values: Sequence[Any]) -> None:
        """Add all rows, from Python objects or arrays."""
        self.add(column_of(values, self.spec, self.allocate, aligned=self.aligned))

    def add(self, column: Text | Ragged) -> None:
        """Add all rows, as a column that nothing else refers to."""
        self.pieces.append((self.slots, column))

    def copy_from(self, column: Column, rows: Index) -> None:
        """Copy the given rows of a finished column here."""
        assert not isinstance(column, Fixed)
        self.add(column.take(rows, self.allocate, aligned=self.aligned))

    def finish(self) -> Text | Ragged:
        """Return the column, its rows in the order of their slots."""
        if len(self.pieces) == 1 and self.pieces[0][0] is None:
            return self.pieces[0][1]
        if not self.pieces:
            return column_of([], self.spec, self.allocate, aligned=self.aligned)
        slots = np.concatenate([np.arange(len(c)) if at is None else at for at, c in self.pieces])
        merged = merge([column for _, column in self.pieces], self.allocate)
        self.pieces.clear()  # Their memory is needed for the copy in order.
        if not self.aligned and bool((slots[1:] > slots[:-1]).all()):
            return merged
        return merged.take(np.argsort(slots, kind="stable"), self.allocate, aligned=self.aligned)


Sink = Fixed | Pieces


class Block:
    """`num_rows` rows being read, or read: a column for each leaf."""

    __slots__ = ("columns", "leases", "num_rows", "sinks")

    def __init__(self, sinks: list[Sink], num_rows: int, leases: "list[weakref.ref[Any]]") -> None:
        self.sinks = sinks
        self.num_rows = num_rows
        self.leases = leases
        """Weak references to the leases of its memory: they tell whether anything still refers to it."""
        self.columns: list[Column] = []

    def at(self, slots: Index) -> "Block":
        """Return a view of this block, to be filled: row j of the view is row `slots[j]` of the block."""
        return Block([sink.at(slots) for sink in self.sinks], len(slots), self.leases)

    def span(self, start: int, stop: int) -> "Block":
        """Return rows `start` to `stop` of this block, to be filled."""
        return Block([sink.span(start, stop) for sink in self.sinks], stop - start, self.leases)

    def part(self, start: int, stop: int) -> "Block":
        """Return a view of the columns `start` to `stop`, to be filled: those of one input of a zip."""
        return Block(self.sinks[start:stop], self.num_rows, self.leases)

    def beside(self, allocate: Allocate) -> "Block":
        """Return a block for the same rows, all of one size, with memory of its own."""
        sinks: list[Sink] = []
        for sink in self.sinks:
            assert isinstance(sink, Fixed)
            sinks.append(sink.beside(self.num_rows, allocate))
        return Block(sinks, self.num_rows, [])

    def finish(self) -> "Block":
        """Return this block, finished: all rows are filled, and `columns` holds them from now on."""
        self.columns = [s if isinstance(s, Fixed) else s.finish() for s in self.sinks]
        for column in self.columns:
            if not isinstance(column, Fixed):  # It may be in memory that others took for it.
                self.leases += map(weakref.ref, _leases_of(column))
        return self

    def copy_from(self, source: "Block", rows: Index | slice) -> None:
        """Copy the given rows of a finished block here."""
        index = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        for sink, column in zip(self.sinks, source.columns, strict=True):
            if isinstance(sink, Fixed):
                sink.copy_from(column, rows)
            else:
                sink.copy_from(column, index)

    def gather_from(self, first: "Block", rest: "Block", rows: Index) -> None:
        """Copy rows of two finished blocks here, of rows of one size, as if `rest` followed `first`."""
        for sink, column, more in zip(self.sinks, first.columns, rest.columns, strict=True):
            assert isinstance(sink, Fixed)
            sink.gather_from(column, more, rows)

    def collect_from(self, sources: "Sequence[Block]", owners: Index, rows: Index) -> None:
        """Copy rows of several finished blocks here: row j is row `rows[j]` of block `owners[j]`."""
        for number, sink in enumerate(self.sinks):
            columns = [source.columns[number] for source in sources]
            if isinstance(sink, Pieces):
                varying = [column for column in columns if not isinstance(column, Fixed)]
                sink.add(collect(varying, owners, rows, sink.allocate, aligned=sink.aligned))
                continue
            for owner, column in enumerate(columns):
                slots = np.flatnonzero(owners == owner)
                if len(slots):
                    sink.at(slots).copy_from(column, rows[slots])

    def row(self, row: int) -> list[Any]:
        """Return the leaves of one row."""
        return [column.value(row) for column in self.columns]

    def elements(self, size: int, join: Join) -> tuple[Iterator[Any], bool]:
        """Return an iterator over the first `size` rows as nests; and whether it is in C all through.

        It is for arrays, and then several threads may share it.
        """
        columns = [column.values(size) for column in self.columns]
        return join(columns, size), GeneratorType not in map(type, columns)

    def leaves(self, size: int) -> Iterator[tuple[Any, ...]]:
        """Return an iterator over the leaves of the first `size` rows."""
        if not self.columns:
            return iter([()] * size)
        # The columns are of one length by construction; strict would cost a check for each row.
        return zip(*(column.values(size) for column in self.columns), strict=False)

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        return sum([column.nbytes for column in self.columns])


def _leases_of(column: Text | Ragged) -> Iterator[Lease]:
    """Yield what the memory of a column is on loan from."""
    arrays: list[Any] = [column.offsets, column.data] if isinstance(column, Text) else []
    if isinstance(column, Ragged):
        arrays = [column.starts, column.shapes]
        if isinstance(column.values_, Text):
            yield from _leases_of(column.values_)
        else:
            arrays.append(column.values_)
    for one in arrays:
        while isinstance(one, np.ndarray):
            one = one.base
        if isinstance(one, Lease):
            yield one


def rows_in_batches(block: Block, size: int) -> int:
    """Return how many rows the first `size` batches of a block have: the first axis of a field says it."""
    for column in block.columns:
        if isinstance(column, Fixed):
            if column.grouped.ndim > 2:
                full = column.grouped.shape[2]
                return size * full if column.lengths is None else int(column.lengths[:size].sum())
        elif isinstance(column, Ragged) and column.shapes.shape[1]:
            return int(column.shapes[:size, 0].sum())
    return size


def varying_nbytes(block: Block, size: int) -> Index:
    """Return the bytes that each row of a block takes in columns of text and of ragged rows."""
    total = np.zeros(size, np.int64)
    for column in block.columns:
        if not isinstance(column, Fixed):
            total += column_nbytes(column, size)
    return total


def column_nbytes(column: Text | Ragged, size: int) -> Index:
    """Return the bytes of the values of each of the first `size` rows of a column."""
    if isinstance(column, Text):
        return _lengths(column.offsets[:size], column.offsets[1 : size + 1])
    sizes: Index = column.shapes[:size].prod(axis=1)
    values = column.values_
    if isinstance(values, Text):
        starts = column.starts[:size]
        return _lengths(values.offsets[starts], values.offsets[starts + sizes])
    return sizes * values.dtype.itemsize


def _lengths(starts: Index, ends: Index) -> Index:
    return ends - starts
