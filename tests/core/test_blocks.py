"""A block is filled in any order and in any parts, and then holds its rows in theirs."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.blocks import Block, Pieces
from penstock.core.fields import Field, allocate_block
from penstock.core.nest import flatten, joiner
from penstock.core.spec import ArraySpec
from penstock.memory import allocate_plain

FIELDS = (
    Field(ArraySpec((2,), "i4")),
    Field(ArraySpec((), str)),
    Field(ArraySpec((None,), "u1")),
)


def index(rows: Any) -> np.ndarray:
    return np.array(list(rows), np.int64)


def row_of(number: int) -> list[Any]:
    """Row `number` of a made-up table, as lists."""
    return [[number, -number], "é" * (number % 4), [number] * (number % 3)]


def put(block: Block, numbers: list[int]) -> None:
    fixed, text, ragged = block.sinks
    rows = [row_of(number) for number in numbers]
    fixed.put(np.array([row[0] for row in rows], np.int32).reshape(-1, 2))
    text.put([row[1] for row in rows])
    ragged.put([np.array(row[2], np.uint8) for row in rows])


def rows_of(block: Block) -> list[list[Any]]:
    return [[a.tolist(), b, c.tolist()] for a, b, c in map(block.row, range(block.num_rows))]


def empty_block(num_rows: int) -> Block:
    return allocate_block(FIELDS, num_rows, allocate_plain, aligned=False)


@given(order=st.permutations(range(9)), data=st.data())
def test_pieces_put_in_any_order_come_in_the_order_of_their_slots(
    order: list[int], data: st.DataObject
):
    cuts = sorted(data.draw(st.sets(st.integers(0, 9))))
    pieces = Pieces(ArraySpec((), bytes), allocate_plain, aligned=False)
    for start, stop in zip([0, *cuts], [*cuts, 9], strict=True):
        # A view of a view: first of the whole in this order, then of a span of it.
        pieces.at(index(order)).span(start, stop).put([b"%d" % slot for slot in order[start:stop]])
    column = pieces.finish()
    assert list(column.values(len(column))) == [b"%d" % slot for slot in range(9)]


def test_a_column_put_whole_is_not_copied_and_one_never_put_is_empty():
    pieces = Pieces(ArraySpec((), str), allocate_plain, aligned=False)
    assert len(pieces.finish()) == 0
    pieces.put(["a", "b"])
    assert pieces.finish() is pieces.pieces[0][1]
    assert list(pieces.finish().values(2)) == ["a", "b"]


@given(order=st.permutations(range(7)), cut=st.integers(0, 7), data=st.data())
def test_a_block_filled_by_parts_holds_the_rows_and_copies_them(
    order: list[int], cut: int, data: st.DataObject
):
    block = empty_block(7)
    put(block.at(index(order[:cut])), order[:cut])
    put(block.at(index(order)).span(cut, 7), order[cut:])
    block.finish()
    assert rows_of(block) == [row_of(number) for number in range(7)]
    rows = data.draw(st.lists(st.integers(0, 6), max_size=9))
    copy = empty_block(len(rows))
    copy.copy_from(block, index(rows))
    assert rows_of(copy.finish()) == [row_of(row) for row in rows]


@given(order=st.permutations(range(9)), data=st.data())
def test_rows_collected_from_several_blocks_are_theirs(order: list[int], data: st.DataObject):
    cuts = sorted(data.draw(st.sets(st.integers(1, 8))))
    edges = [0, *cuts, 9]
    blocks = []
    for start, stop in itertools.pairwise(edges):
        blocks.append(empty_block(stop - start))
        put(blocks[-1], order[start:stop])
        blocks[-1].finish()
    wanted = index(data.draw(st.lists(st.integers(0, 8), max_size=12)))
    owners = np.searchsorted(edges[1:], wanted, side="right")
    found = empty_block(len(wanted))
    found.collect_from(blocks, owners, wanted - np.array(edges)[owners])
    assert rows_of(found.finish()) == [row_of(order[place]) for place in wanted.tolist()]


def test_a_slice_of_a_block_is_copied_whatever_its_columns():
    block, found = empty_block(7), empty_block(3)
    put(block, list(range(7)))
    found.copy_from(block.finish(), slice(2, 5))
    assert rows_of(found.finish()) == [row_of(number) for number in (2, 3, 4)]


@pytest.mark.parametrize("nest", [(0, 1, 2), {"a": 0, "b": (1, 2)}])
@pytest.mark.parametrize("size", [0, 2, 3])
def test_elements_are_the_first_rows_as_nests(nest: Any, size: int):
    block = empty_block(3)
    put(block, [5, 6, 7])
    structure = flatten(nest)[1]
    found = list(block.finish().elements(size, joiner(structure))[0])
    assert [flatten(one)[1] for one in found] == [structure] * size
    leaves = [flatten(one)[0] for one in found]
    assert [[a.tolist(), b, c.tolist()] for a, b, c in leaves] == [row_of(n) for n in [5, 6, 7]][
        :size
    ]


def test_rows_without_any_field_are_still_as_many_as_there_are():
    block = allocate_block((), 3, allocate_plain, aligned=False).finish()
    assert list(block.leaves(2)) == [(), ()]
    assert list(block.elements(2, joiner(flatten({})[1]))[0]) == [{}, {}]
    assert block.row(0) == []
    assert block.nbytes == 0


def test_parts_of_a_block_fill_its_columns_and_the_bytes_are_those_of_all():
    block = empty_block(2)
    fixed, others = block.part(0, 1), block.part(1, 3)
    assert (fixed.num_rows, others.num_rows, len(others.sinks)) == (2, 2, 2)
    fixed.sinks[0].put(np.array([[3, -3], [5, -5]]))
    others.sinks[0].put([row_of(3)[1], row_of(5)[1]])
    others.sinks[1].put([row_of(3)[2], row_of(5)[2]])
    assert rows_of(block.finish()) == [row_of(3), row_of(5)]
    assert block.nbytes == 2 * 8 + (8 + 3 * 8) + (2 + 2 * 8 + 2 * 8)
