"""Where rows that come one after the other are cut into shards."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shards.nests import NUM_ROWS, words
from tests.stages.conformance import keep

import penstock as ps
from penstock.shards.rows import read_manifest
from penstock.shards.sequence import ends_by_nbytes


def test_shards_do_not_depend_on_threads_or_the_budget(tmp_path):
    ds = ps.from_arrays((words() * 50, np.arange(NUM_ROWS * 50))).filter(keep)
    ds.write(tmp_path / "a", shard_rows=1001)
    ds.with_options(threads=0, memory="1MB").write(tmp_path / "b", shard_rows=1001)
    mine, theirs = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab")
    assert mine == theirs


def test_long_text_is_cut_into_shards_by_its_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.shards.sequence.SHARD_NBYTES", 10_000)
    ds = ps.from_arrays([b"x" * 999 for _ in range(100)])
    ds.write(tmp_path / "out")
    assert [shard.num_rows for shard in read_manifest(str(tmp_path / "out")).shards] == [11] * 9 + [
        1
    ]


def test_batches_of_one_size_are_cut_into_shards_by_their_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.shards.sequence.SHARD_NBYTES", 10_000)
    ps.from_arrays(np.zeros((1000, 2))).batch(16).write(tmp_path / "out")  # Of 256 bytes each.
    shards = read_manifest(str(tmp_path / "out")).shards
    assert [shard.num_rows for shard in shards] == [39, 24]


def test_text_beside_batches_counts_the_bytes_of_both(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.shards.sequence.SHARD_NBYTES", 10_000)
    ds = ps.from_arrays((np.zeros((1600, 2)), ["x"] * 1600)).batch(16)
    ds.write(tmp_path / "out")
    sizes = [shard.num_rows for shard in read_manifest(str(tmp_path / "out")).shards]
    assert sum(sizes) == 100
    assert max(sizes) <= 39


@given(
    sizes=st.lists(st.integers(0, 30), max_size=60),
    pieces=st.integers(1, 7),
    start=st.integers(0, 5),
    limit=st.integers(1, 50),
)
def test_ends_by_bytes_are_those_of_adding_up_row_by_row(sizes, pieces, start, limit):
    expected, nbytes = [], 0
    for row, size in enumerate(sizes):
        nbytes += size
        if nbytes >= limit:
            expected.append(start + row + 1)
            nbytes = 0
    parts = np.array_split(np.array(sizes, np.uint8), pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.shards.sequence.SHARD_NBYTES", limit)
        assert list(ends_by_nbytes(start, parts)) == expected
