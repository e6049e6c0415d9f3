"""The largest rows that a stream has met."""

import numpy as np

from penstock.core.fields import Field, allocate_block
from penstock.core.sizes import Sizes
from penstock.core.spec import ArraySpec
from penstock.memory import allocate_plain


def block_of(lengths: list[int]):
    block = allocate_block(
        [Field(ArraySpec((), bytes)), Field(ArraySpec((None,), np.dtype("f4")))],
        len(lengths),
        allocate_plain,
        aligned=False,
    )
    block.sinks[0].put([b"a" * length for length in lengths])
    block.sinks[1].put([np.zeros(length, "f4") for length in lengths])
    return block.finish()


def test_the_largest_row_is_known_with_its_number_and_where_its_block_began():
    sizes, node = Sizes(), object()
    assert sizes.of(node).largest == 0
    sizes.note(node, block_of([1, 2]), 2, None, "first")
    sizes.note(node, block_of([1, 9, 3]), 3, None, "second")
    sizes.note(node, block_of([4]), 1, None, "third")
    seen = sizes.of(node)
    assert (seen.num_rows, seen.largest, seen.row) == (6, 9 * 5, 3)
    assert (seen.cursor_after, seen.offset) == ("second", 1)


def test_rows_with_random_access_have_their_own_numbers():
    sizes, node = Sizes(), object()
    sizes.note(node, block_of([1, 2, 5]), 3, 100)
    assert sizes.of(node).row == 102
