"""Dtypes that a framework lacks are refused by the names of their fields; the rest come in this machine's order."""

import numpy as np
import pytest
from tests.feeds.dtypes_of_numpy import DTYPES, batches_of_dtype, dtype_of

import penstock as ps
from penstock.core.nest import flatten
from penstock.feeds.alignment import is_aligned
from penstock.feeds.dtypes import byte_order, byte_orders, check_dtypes, native


def is_number(dtype):
    return dtype.kind in "biufc"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_a_framework_lacks_is_refused_when_the_feed_is_made(dtype):
    for form, ds in batches_of_dtype(dtype).items():
        if is_number(dtype_of(dtype)):
            check_dtypes(ds.node, "Abacus", is_number)
            continue
        lacks = "numbers only" if dtype_of(dtype).kind in "SU" else "no such dtype"
        name = "x.in.0" if form == "nested" else "x"
        message = (
            rf"^field '{name}' is ArraySpec.*, and Abacus has {lacks}; .*\.map\(\.\.\.\) before"
        )
        with pytest.raises(TypeError, match=message):
            check_dtypes(ds.node, "Abacus", is_number)


def test_text_is_for_frameworks_that_have_it():
    ds = ps.from_arrays({"s": ["a", "b"], "w": np.array(["a", "b"])}).batch(2)
    check_dtypes(ds.node, "Abacus", is_number, has_text=True)


@pytest.mark.parametrize(
    ("dtype", "cure"),
    [
        ("M8[s]", "int64"),
        ("longdouble", "float32"),
        ("clongdouble", "complex64"),
        ("V3", "float32"),
    ],
)
def test_the_cure_names_a_dtype(dtype, cure):
    ds = ps.from_arrays(np.zeros((4, 2), dtype)).batch(2)
    with pytest.raises(TypeError, match=rf"value\.astype\('{cure}'\)"):
        check_dtypes(ds.node, "Abacus", lambda _: False)
    columns = ps.from_arrays(np.zeros(4, [("a", "i4")])).batch(2)
    with pytest.raises(TypeError, match="a field of each of its columns"):
        check_dtypes(columns.node, "Abacus", is_number)


def test_another_byte_order_becomes_that_of_the_machine():
    values = np.arange(6, dtype=">i4").reshape(3, 2)
    ds = ps.from_arrays({"a": (values, values[:, 0].copy()), "b": np.arange(3)}).batch(2)
    convert = byte_orders(ds.node)
    for batch in ds:
        found, wanted = flatten(convert(batch))[0], flatten(batch)[0]
        assert all(leaf.dtype.isnative and is_aligned(leaf) for leaf in found)
        assert [leaf.tolist() for leaf in found] == [leaf.tolist() for leaf in wanted]
    assert native(ds.spec["a"][0]) == ps.ArraySpec((None, 2), "int32")


def test_what_needs_no_change_is_left_alone():
    assert byte_orders(ps.from_arrays(np.zeros((4, 2), "f4")).batch(2).node) is None
    for dtype in ("int8", "S3", "bool", str):
        spec = ps.ArraySpec((None,), dtype)
        assert byte_order(spec) is None
        assert native(spec) is spec
