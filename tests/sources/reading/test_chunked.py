"""Chunks: any rows, in any order and as often as wanted, from chunks of any lengths."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.fields import Field, allocate_block
from penstock.core.rows import Context, plain_context
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.memory import allocate_plain
from penstock.sources.reading.chunked import Chunked, Grid, Values


class Counted(Chunked):
    how = "for a test"

    def __init__(self, grid: Grid) -> None:
        super().__init__(Field(ArraySpec((), "i8")), grid, file="a.test", key="x")
        self.decoded: list[tuple[int, int]] = []

    def decode(self, start: int, stop: int, context: Context) -> Values:
        self.decoded.append((start, stop))
        return np.arange(start, stop)


def grid_of(lengths: list[int], *, regular: int) -> Grid:
    total = sum(lengths)
    return Grid(total, regular) if regular else Grid.of_lengths(np.array(lengths))


def read(leaf: Chunked, rows: slice | np.ndarray, context: Context) -> list[int]:
    size = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
    block = allocate_block((leaf.field,), size, allocate_plain, aligned=False)
    leaf.read(rows, block.sinks[0], context)
    return block.finish().columns[0].rows[:size].tolist()


@given(st.data(), st.lists(st.integers(0, 9), min_size=1, max_size=12), st.integers(0, 9))
def test_any_rows_are_read(data: st.DataObject, lengths: list[int], regular: int) -> None:
    leaf = Counted(grid_of(lengths, regular=regular))
    context = plain_context()
    if leaf.num_rows:
        rows = np.array(data.draw(st.lists(st.integers(0, leaf.num_rows - 1), min_size=1)))
        assert read(leaf, rows, context) == rows.tolist()
        first = data.draw(st.integers(0, leaf.num_rows - 1))
        last = data.draw(st.integers(first + 1, leaf.num_rows))
        assert read(leaf, slice(first, last), context) == list(range(first, last))
        edges = set(leaf.grid.bounds(leaf.grid.chunk_of(np.arange(leaf.num_rows)))[0].tolist())
        assert all(start in edges for start, _ in leaf.decoded)


def test_whole_chunks_in_a_row_are_decoded_at_once_and_shared_ones_once() -> None:
    leaf = Counted(Grid(1000, 10))
    context = plain_context()
    read(leaf, slice(0, 500), context)
    assert leaf.decoded == [(0, 500)]
    leaf.decoded.clear()
    for start in range(3, 100, 7):
        read(leaf, slice(start, start + 7), context)
    assert leaf.decoded == [(start, start + 10) for start in range(0, 110, 10)]


def test_two_threads_decode_a_shared_chunk_once() -> None:
    leaf = Counted(Grid(1000, 100))
    context = plain_context()
    barrier = threading.Barrier(4)

    def work(start: int) -> None:
        barrier.wait()
        read(leaf, slice(start, start + 20), context)

    threads = [threading.Thread(target=work, args=(20 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert leaf.decoded == [(0, 100)]


def test_rows_of_another_shape_than_stated_are_an_error() -> None:
    class Lying(Counted):
        def decode(self, start: int, stop: int, context: Context) -> Values:
            return np.arange(start, stop - 1)

    with pytest.raises(
        ValueError, match=r"a\.test, row 0: rows 0 to 10 must have shape \(10,\), got \(9,\)"
    ):
        read(Lying(Grid(100, 10)), slice(0, 10), plain_context())


@pytest.mark.parametrize("grid", [Grid(4, 10**20), Grid(10**20, 4), Grid(1, 1 << 61)])
def test_more_rows_or_larger_chunks_than_can_be_numbered_are_an_error(grid: Grid) -> None:
    with pytest.raises(DataError, match=r"a\.test: claims \d+ rows of 8 bytes, in chunks of \d+"):
        Counted(grid)


@pytest.mark.parametrize("bad", [0, 1, 977, 2999])
def test_one_bad_chunk_among_thousands_is_found_and_named(bad: int) -> None:
    """By halving: a call within a call for each chunk would end at Python's limit."""

    class Damaged(Counted):
        def decode(self, start: int, stop: int, context: Context) -> Values:
            if start <= bad < stop:
                raise ValueError("damaged")
            return super().decode(start, stop, context)

    leaf = Damaged(Grid(3000, 1))
    with pytest.raises(DataError, match=f"row {bad}: rows {bad} to {bad + 1} can't be decoded"):
        read(leaf, slice(0, 3000), plain_context())
