"""Where rows that come one after the other are cut into shards."""

import json

import numpy as np
from tests.shards.nests import NUM_ROWS, words
from tests.stages.conformance import keep

import penstock as ps
from penstock.shards.rows import read_manifest


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
