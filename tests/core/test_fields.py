"""Sizes that are promised are kept, and blocks are laid out on their boundaries."""

import gc
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.blocks import Pieces
from penstock.core.fields import (
    Field,
    allocate_block,
    block_nbytes,
    round_up,
    row_nbytes,
    tops_of,
)
from penstock.core.spec import ArraySpec
from penstock.memory import ALIGNMENT, allocate_plain

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("field", "shape", "nbytes"),
    [
        (Field(ArraySpec((3, 2), "f4")), (3, 2), 24),
        (Field(ArraySpec((0, 2), "f4")), (0, 2), 0),
        (Field(ArraySpec((None, 2), "f4"), most=5), (5, 2), 40),
        (Field(ArraySpec((None, 2), "f4")), None, 64),
        (Field(ArraySpec((), str), estimate=7), None, 7),
    ],
)
def test_a_field_knows_the_memory_of_a_row(field: Field, shape: tuple[int, ...], nbytes: int):
    assert field.storage_shape == shape
    assert field.nbytes == nbytes
    assert field.stride(aligned=False) == nbytes
    assert field.stride(aligned=True) == -(-nbytes // 64) * 64
    assert field.most_nbytes(10) == 10 * nbytes
    assert row_nbytes([field, field]) == 2 * nbytes


@given(SIZES)
def test_tops_are_the_sums_of_the_largest_1_2_4_and_so_on_and_of_all(sizes: list[int]):
    sums = list(itertools.accumulate(sorted(sizes, reverse=True)))
    tops = tops_of(sizes)
    assert tops[-1] == sum(sizes)
    assert list(tops[:-1]) == [sums[(1 << power) - 1] for power in range(len(tops) - 1)]
    assert 1 << (len(tops) - 1) >= len(sizes)
    assert tops_of([]) == ()


@given(sizes=SIZES, is_aligned=st.booleans())
def test_no_rows_of_known_sizes_take_more_than_the_most(sizes: list[int], is_aligned: bool):
    field = Field(ArraySpec((None,), "u1"), tops=tops_of(sizes))
    for count in range(len(sizes) + 1):
        largest = sorted(sizes, reverse=True)[:count]
        taken = sum(round_up(size, ALIGNMENT) if is_aligned else size for size in largest)
        most = field.most_nbytes(count, aligned=is_aligned)
        assert taken <= most <= sum(sizes) + (ALIGNMENT * count if is_aligned else 0)


@given(
    shapes=st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), max_size=2).map(tuple),
            st.sampled_from(["u1", "i2", "f8", "c16", "S3"]),
        ),
        max_size=4,
    ),
    num_rows=st.integers(0, 5),
    is_aligned=st.booleans(),
)
def test_fixed_columns_share_one_memory_without_touching_each_other(
    shapes: list[tuple[tuple[int, ...], str]], num_rows: int, is_aligned: bool
):
    asked = []

    def allocate(nbytes: int) -> np.ndarray:
        asked.append(nbytes)
        return allocate_plain(nbytes)

    fields = [Field(ArraySpec(shape, dtype)) for shape, dtype in shapes]
    block = allocate_block(fields, num_rows, allocate, aligned=is_aligned)
    assert asked == [block_nbytes(fields, num_rows, aligned=is_aligned)] * bool(fields)
    assert block.num_rows == num_rows
    for number, (sink, field) in enumerate(zip(block.sinks, fields, strict=True)):
        assert sink.rows.shape == (num_rows, *field.spec.shape)
        assert sink.rows.dtype == field.spec.dtype
        sink.rows[...] = number
        for value in sink.rows[: num_rows if is_aligned else 1]:
            assert not value.size or sink.rows.ctypes.data % ALIGNMENT == 0
        if is_aligned and field.nbytes and num_rows:
            assert sink.rows.strides[0] % ALIGNMENT == 0
    for number, sink in enumerate(block.sinks):
        assert (sink.rows == np.array(number).astype(sink.rows.dtype)).all()


def test_rows_that_differ_get_their_memory_when_they_are_put_and_short_batches_have_lengths():
    fields = [Field(ArraySpec((), str)), Field(ArraySpec((None, 2), "i4"), most=3)]
    block = allocate_block(fields, 2, allocate_plain, aligned=True)
    text, batches = block.sinks
    assert isinstance(text, Pieces)
    assert text.aligned
    assert batches.lengths.tolist() == [3, 3]
    assert batches.rows.shape == (2, 3, 2)
    assert len(block.leases) == 1
    text.put(["a", "b"])
    assert len(block.leases) == 2


def test_leases_tell_when_nothing_refers_to_the_memory_of_a_block_any_more():
    block = allocate_block([Field(ArraySpec((2,), "i4"))], 3, allocate_plain, aligned=False)
    block.sinks[0].put(np.arange(6).reshape(3, 2))
    leases, last = block.leases, block.finish().row(2)[0]
    del block
    gc.collect()
    assert [lease() is None for lease in leases] == [False]
    assert last.tolist() == [4, 5]
    del last
    gc.collect()
    assert [lease() is None for lease in leases] == [True]
