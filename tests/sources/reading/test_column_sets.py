"""Columns that are decoded together give what each gives by itself."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fields import Field, allocate_block
from penstock.core.rows import Context, plain_context
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.memory import allocate_plain
from penstock.sources.reading import column_sets as module
from penstock.sources.reading.chunked import Chunked, Grid, Values
from penstock.sources.reading.column_sets import ColumnSet, column_sets
from penstock.sources.reading.leaves import InMemory

DTYPES = ("i8", "f4", "u1")


class Joining(Chunked):
    """Row r of column c is 100 * c + r; chunks of some rows are bad."""

    how = "for a test"
    joins = True

    def __init__(self, grid: Grid, number: int, bad: Sequence[int] = (), step: int = 100) -> None:
        field = Field(ArraySpec((), DTYPES[number % 3]))
        super().__init__(field, grid, file="a.test", key=("x", number))
        self.number = number
        self.bad = bad
        self.step = step
        self.together: list[tuple[int, int]] = []

    def decode(self, start: int, stop: int, context: Context) -> Values:
        if any(start <= row < stop for row in self.bad):
            raise RuntimeError("bits are wrong")
        values = 100 * self.number + np.arange(start, stop)
        return (values % 256).astype(self.field.spec.dtype)

    def decode_together(
        self, leaves: Sequence[Chunked], start: int, stop: int, context: Context
    ) -> Iterator[Sequence[Values]]:
        self.together.append((start, stop))
        for first in range(start, stop, self.step):
            last = min(stop, first + self.step)
            yield [leaf.decode(first, last, context) for leaf in leaves]


def read(leaves: Sequence[Joining], runs: list[tuple[int, int]], *, scattered: bool) -> list[list]:
    size = sum(length for _, length in runs)
    block = allocate_block([leaf.field for leaf in leaves], size, allocate_plain, aligned=False)
    context = plain_context()
    if scattered:
        rows = np.concatenate([np.arange(start, start + length) for start, length in runs])
        ColumnSet(leaves).read(rows, block.sinks, context)
    else:
        ColumnSet(leaves).read_runs(runs, block.sinks, context)
    return [column.rows.tolist() for column in block.finish().columns]


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    count=st.integers(1, 4),
    step=st.integers(1, 9),
    scattered=st.booleans(),
    data=st.data(),
)
def test_any_runs_are_those_of_each_column(
    lengths: list[int], count: int, step: int, scattered: bool, data: st.DataObject
) -> None:
    grid = Grid.of_lengths(np.array(lengths))
    if not grid.num_rows:
        return
    leaves = [Joining(grid, number, step=step) for number in range(count)]
    starts = data.draw(st.lists(st.integers(0, grid.num_rows - 1), min_size=1, max_size=4))
    runs = [(start, data.draw(st.integers(1, grid.num_rows - start))) for start in starts]
    rows = np.concatenate([np.arange(start, start + length) for start, length in runs])
    for leaf, found in zip(leaves, read(leaves, runs, scattered=scattered), strict=True):
        values = leaf.decode(0, grid.num_rows, plain_context())
        assert isinstance(values, np.ndarray)
        assert found == values[rows].tolist()
    edges = set(np.cumsum([0, *lengths]).tolist())
    assert all(start in edges and stop in edges for start, stop in leaves[0].together)


def test_a_chunk_that_two_reads_share_is_decoded_once() -> None:
    leaves = [Joining(Grid(40, 10), number) for number in range(3)]
    together = ColumnSet(leaves)
    context = plain_context()
    for start in range(0, 40, 4):
        block = allocate_block([leaf.field for leaf in leaves], 4, allocate_plain, aligned=False)
        together.read_runs([(start, 4)], block.sinks, context)
    assert leaves[0].together == [(0, 10), (10, 20), (20, 30), (30, 40)]


@pytest.mark.parametrize("scattered", [False, True])
def test_the_column_that_is_bad_says_which_of_its_chunks(scattered: bool) -> None:
    leaves = [Joining(Grid(40, 10), 0), Joining(Grid(40, 10), 1, bad=[27])]
    with pytest.raises(DataError, match=r"rows 20 to 30 can't be decoded: RuntimeError: bits") as e:
        read(leaves, [(0, 40)], scattered=scattered)
    assert e.value.row == 20


def test_only_small_chunks_of_one_grid_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, other = Grid(100, 10), Grid(100, 10)
    wide = [Joining(grid, number) for number in (0, 3, 6, 9)]  # 80 bytes a chunk.
    assert column_sets(wide) == [(0, 1, 2, 3)]
    monkeypatch.setattr(module, "MOST_NBYTES", 160)
    assert column_sets(wide) == [(0, 1), (2, 3)]
    monkeypatch.setattr(module, "MOST_NBYTES", 100)
    assert column_sets(wide) == [(0,), (1,), (2,), (3,)]
    monkeypatch.setattr(module, "MOST_NBYTES", 1000)
    mixed = [wide[0], InMemory(np.zeros(100)), wide[1], Joining(other, 2), wide[2], wide[2]]
    assert column_sets(mixed) == [(0,), (1,), (2,), (3,), (4,), (5,)]
