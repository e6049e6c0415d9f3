"""What feeds know of a dataset before they read it, and what they refuse."""

import numpy as np
import pytest

import penstock as ps
from penstock.feeds.facts import (
    batch_size,
    check_batched,
    check_numeric,
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


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "complex64", "bfloat16"])
def test_numbers_of_any_kind_are_taken(dtype):
    kind = pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype
    check_numeric(ps.from_arrays(np.zeros(4, kind)).batch(2).node, "some framework")


@pytest.mark.parametrize("values", [["a", "b"], np.zeros(2, "M8[s]")])
def test_what_is_not_a_number_is_refused_by_the_name_of_its_field(values):
    ds = ps.from_arrays({"n": np.arange(2), "when": values}).batch(2)
    message = r"^field 'when' is .*, and Abacus has numbers only; .* with \.map\(\.\.\.\) before"
    with pytest.raises(TypeError, match=message):
        check_numeric(ds.node, "Abacus")
