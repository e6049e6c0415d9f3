"""What feeds know of a dataset before they read it, and what they refuse."""

import numpy as np
import pytest

import penstock as ps
from penstock.feeds.facts import (
    batch_size,
    check_batched,
    has_random_access,
    named_specs,
    num_batches,
)


def rows():
    return ps.from_arrays({"x": np.zeros((10, 3), "float32"), "n": np.arange(10)})


def test_batches_are_counted_where_their_number_is_known():
    assert num_batches(rows().batch(4).node) == 3
    assert num_batches(rows().batch(4, drop_remainder=True).node) == 2
    assert num_batches(rows().batch(4).repeat().node) is None
    assert num_batches(rows().filter(lambda row: True).batch(4).node) is None


def test_only_what_is_read_forward_has_no_random_access():
    assert has_random_access(rows().shuffle(seed=0).batch(4).node)
    assert not has_random_access(rows().filter(lambda row: True).batch(4).node)


def test_the_size_of_a_batch_is_that_of_a_whole_one():
    assert batch_size(rows().batch(4).node) == 4
    assert batch_size(rows().batch(4, drop_remainder=True).node) == 4
    assert batch_size(rows().filter(lambda row: True).batch(4).node) == 4
    assert batch_size(ps.zip(rows().batch(4), rows().batch(5), strict=False).node) is None


def test_leaves_are_told_by_name():
    found = named_specs(rows().batch(4).node)
    assert found == [
        ("n", ps.ArraySpec((None,), "int64")),
        ("x", ps.ArraySpec((None, 3), "float32")),
    ]
    assert [name for name, _ in named_specs(ps.from_arrays(np.arange(3)).node)] == ["value"]


def test_single_rows_are_refused_with_the_line_to_write():
    check_batched(rows().batch(4).node, "to_any()")
    message = (
        r"^to_any\(\) needs batches, and this dataset gives single rows: .*float32.*\n"
        r"  wrong: ds\.to_any\(\)\n  right: ds\.batch\(32\)\.to_any\(\)$"
    )
    with pytest.raises(ValueError, match=message):
        check_batched(rows().node, "to_any()")
