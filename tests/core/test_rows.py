"""What nodes of both kinds promise: row numbers, contexts, and what is counted when they are read."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.blocks import Block
from penstock.core.fields import Field
from penstock.core.grains import Grain
from penstock.core.nest import flatten
from penstock.core.parcels import Parcel
from penstock.core.rows import (
    ENDLESS,
    Context,
    Flow,
    Node,
    Rows,
    as_index,
    bounds,
    count,
    plain_context,
    rows_per_block,
    run_rows,
    shifted,
)
from penstock.core.spec import ArraySpec

SLICES = st.tuples(st.integers(0, 99), st.integers(1, 99)).map(lambda p: slice(p[0], sum(p)))
ROW_SETS = SLICES | st.lists(st.integers(0, 99), min_size=1).map(lambda r: np.array(r, np.int64))


class Squares(Rows):
    """Row i is i * i; negative rows are an error."""

    def __init__(self, num_rows: int = 100) -> None:
        self.fields = (Field(ArraySpec((), "i8")),)
        self.structure = flatten(0)[1]
        self.num_rows = num_rows

    def fill(self, rows: Any, out: Block, context: Context) -> None:
        numbers = as_index(rows)
        if (numbers < 0).any():
            raise ValueError("a negative row")
        out.sinks[0].put(numbers**2)

    def locate(self, row: int, epoch: int) -> str:
        return f"row {row}"

    def describe(self) -> str:
        return "squares()"

    def fingerprint(self) -> Any:
        return "squares"


class Like(Squares):
    """A stage that leaves its input, or its inputs, unchanged."""

    def __init__(self, *inputs: Node) -> None:
        super().__init__()
        if len(inputs) == 1:
            self.like(inputs[0])
        else:
            self.like_all(inputs)

    def rebuilt(self, inputs: Any) -> Node:
        return Like(*inputs)


class Halves(Flow):
    """Squares forward, in parcels of at most two rows."""

    def __init__(self, rows: Rows) -> None:
        self.like(rows)
        self.is_closed = False

    def make_parcels(self, cursor: Any, context: Context) -> Iterator[Parcel]:
        try:
            for start in range(cursor or 0, self.num_rows, 2):
                rows = slice(start, min(start + 2, self.num_rows))
                block = context.block(self, count(rows))
                self.inputs[0].read(rows, block, context)
                yield Parcel(block.finish(), count(rows), lambda j, start=start: start + j)
        finally:
            self.is_closed = True

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        return block_nbytes

    def describe(self) -> str:
        return "halves()"

    def fingerprint(self) -> Any:
        return "halves"


def values(block: Block) -> list[int]:
    return [int(value) for (value,) in map(block.row, range(block.num_rows))]


@given(rows=ROW_SETS, offset=st.integers(0, 50))
def test_a_slice_and_an_array_of_rows_mean_the_same(rows: Any, offset: int):
    numbers = list(range(rows.start, rows.stop)) if isinstance(rows, slice) else rows.tolist()
    assert as_index(rows).tolist() == numbers
    assert count(rows) == len(numbers)
    assert bounds(rows) == (min(numbers), max(numbers))
    moved = shifted(rows, offset)
    assert type(moved) is type(rows)
    assert as_index(moved).tolist() == [number + offset for number in numbers]


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 9)), max_size=6))
def test_runs_are_read_as_their_rows_one_after_the_other(runs: list[tuple[int, int]]):
    numbers = [number for start, size in runs for number in range(start, start + size)]
    assert run_rows(runs).tolist() == numbers
    node, context = Squares(), plain_context()
    block = context.block(node, len(numbers))
    node.read_runs(runs, block, context)
    assert values(block.finish()) == [number**2 for number in numbers]
    assert context.clock.num_rows(node) == len(numbers)


def test_reads_count_their_rows_and_one_that_fails_leaves_the_clock_in_order():
    node, context = Squares(), plain_context()
    with pytest.raises(ValueError, match=r"^a negative row$"):
        node.read(np.array([-1]), context.block(node, 1), context)
    block = context.block(node, 3)
    node.read(slice(4, 7), block, context)
    assert values(block.finish()) == [16, 25, 36]
    assert context.clock.num_rows(node) == 4
    assert context.clock.seconds(node) >= 0


def test_parcels_go_on_from_the_cursor_of_any_row_and_close_what_makes_them():
    rows = Squares(5)
    flow, context = Halves(rows), plain_context()
    parcels = list(flow.parcels(None, context))
    assert [parcel.size for parcel in parcels] == [2, 2, 1]
    assert context.clock.num_rows(flow) == context.clock.num_rows(rows) == 5
    cursor = parcels[1].cursor_after(1)
    rest = [value for parcel in flow.parcels(cursor, context) for value in values(parcel.block)]
    assert rest == [9, 16]
    flow.is_closed = False
    begun = flow.parcels(None, context)
    next(begun)
    begun.close()
    assert flow.is_closed
    assert list(begun) == []


def test_a_node_takes_over_what_its_inputs_are():
    one, other = Squares(3), Squares(ENDLESS)
    one.num_shuffles, one.grains, one.calls_functions = 2, (Grain(10, 8),), True
    other.num_shuffles, other.grains, other.follows_epoch = 1, (Grain(30, 8),), True
    alike = Like(one)
    assert (alike.num_rows, alike.num_shuffles, alike.grains) == (3, 2, (Grain(10, 8),))
    assert alike.inputs == (one,)
    assert alike.spec == ArraySpec((), "i8")
    assert (alike.is_endless, Like(other).is_endless) == (False, True)
    both = Like(one, other, Squares())
    assert (both.num_shuffles, both.grains) == (2, (Grain(10, 8), Grain(30, 8)))
    assert both.calls_functions
    assert both.follows_epoch
    assert not both.is_batched
    assert Like(Squares(), Squares()).grains == ()


def test_nodes_are_built_anew_only_after_one_that_skips_bad_rows():
    class Skips(Squares):
        def with_errors(self, on_error: str) -> Node:
            return Halves(self) if on_error == "skip" else self

    untouched = Like(Like(Squares()))
    assert untouched.with_errors("skip") is untouched
    chain = Like(Like(Skips()), untouched)
    assert chain.with_errors("raise") is chain
    built = chain.with_errors("skip")
    assert built is not chain
    assert isinstance(built.inputs[0].inputs[0], Halves)
    assert built.inputs[1] is untouched


@pytest.mark.parametrize(
    ("nbytes", "expected"), [(0, 1), (1, 1), (8, 1), (15, 1), (16, 2), (80, 10)]
)
def test_a_block_has_as_many_rows_as_fit_and_never_none(nbytes: int, expected: int):
    node = Squares()
    assert rows_per_block(node, nbytes) == expected
    node.is_batched = True  # each row of 8 bytes then takes 64
    assert rows_per_block(node, nbytes) == max(1, nbytes // 64)
