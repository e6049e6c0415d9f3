"""Rows on their way to the buckets of an exact shuffle, and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.core.order import Permutation
from penstock.core.rows import plain_context
from penstock.stages.shuffle.buckets import Buckets, Records, Scattering


def node_of(value):
    return ps.from_arrays(value).node


def block_of(node, rows):
    context = plain_context()
    block = context.block(node, len(rows))
    node.read(rows, block, context)
    return block.finish()


@given(
    num_rows=st.integers(1, 500),
    bucket_rows=st.integers(1, 200),
    modulus=st.integers(1, 7),
    seed=st.integers(0, 9),
)
def test_each_row_is_in_the_bucket_and_the_place_that_its_position_says(
    num_rows, bucket_rows, modulus, seed
):
    order = Permutation(num_rows, (seed,))
    for residue in range(min(modulus, num_rows)):
        buckets = Buckets(order, bucket_rows, residue, modulus)
        rows, owners = buckets.wanted(np.arange(num_rows))
        seen = []
        for number in range(buckets.num_windows):
            window = buckets.window(number)
            assert buckets.bucket_of(window.start) == number
            positions = np.arange(window.start, window.stop, modulus)
            stored = rows[owners == number]
            assert (stored[window.stored(positions)] == order.rows(positions)).all()
            seen += positions.tolist()
        assert seen == list(range(residue, num_rows, modulus))


@pytest.mark.parametrize("step_rows", [1, 7, 64, 1000])
@pytest.mark.parametrize("bucket_rows", [1, 10, 333, 1000])
def test_buckets_come_back_whole_and_in_pieces(tmp_path, monkeypatch, step_rows, bucket_rows):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x = np.arange(3 * 333, dtype="i2").reshape(333, 3)
    node = node_of((x, x[:, 0].astype("f8")))
    for residue, modulus in ((0, 1), (1, 3)):
        buckets = Buckets(Permutation(333, (1, 2)), bucket_rows, residue, modulus)
        records = Records(node.fields, aligned=False)
        scattering = Scattering(node, buckets, records, step_rows, plain_context())
        scattering.work.complete()
        rows, owners = buckets.wanted(np.arange(333))
        for bucket in range(buckets.num_windows):
            stored = rows[owners == bucket]
            for first, stop in ((0, len(stored)), (len(stored) // 3, len(stored) - 1)):
                context = plain_context()
                out = context.block(node, max(0, stop - first))
                scattering.read(bucket, first, out, context)
                out.finish()
                assert (out.columns[0].rows == x[stored[first:stop]]).all()
                assert (out.columns[1].rows == x[stored[first:stop], 0]).all()
        scattering.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(40, dtype="u1").reshape(20, 2),
        np.arange(20, dtype="c8"),
        np.arange(20, dtype=np.longdouble),
        np.arange(20).astype("M8[ns]"),
        np.arange(20).astype("U3"),
        np.zeros(20, [("a", "i4"), ("b", "S3")]),
        np.zeros((20, 0), "f4"),
        (np.arange(20), {"a": np.zeros((20, 0)), "b": np.arange(60.0).reshape(20, 3)}),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch_size", [None, 1, 3, 8])
def test_records_are_packed_and_unpacked_to_the_same_rows(rows, batch_size):
    ds = ps.from_arrays(rows)
    node = (ds if batch_size is None else ds.batch(batch_size)).node
    records = Records(node.fields, aligned=node.is_batched)
    index = np.random.default_rng(0).permutation(node.num_rows)
    packed = np.empty((len(index), records.nbytes), np.uint8)
    records.pack(block_of(node, np.arange(node.num_rows)), index, packed)
    out = plain_context().block(node, len(index))
    records.unpack(packed, out)
    found, expected = out.finish(), block_of(node, index)
    for column, wanted in zip(found.columns, expected.columns, strict=True):
        for one, other in zip(column.values(len(index)), wanted.values(len(index)), strict=True):
            assert np.array_equal(one, other)
            assert one.dtype == other.dtype
