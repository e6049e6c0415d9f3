"""Manifests that lie, or are none: an error when the folder is opened."""

import json

import numpy as np
import pytest

import penstock as ps
from penstock.errors import DataError


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 9}, "version 9 is not known"),
        ({"format": "other"}, "must be one of format"),
        ({"num_rows": 7}, "claims 7 rows"),
        ({"shards": []}, "at least one shard"),
        ({"fields": {"../value": {"shape": [], "dtype": "<i8"}}, "row": "../value"}, "damaged"),
        ({"fields": {"value": {"shape": [], "dtype": "|O"}}}, "damaged"),
        ({"fields": {"value": {"shape": [], "dtype": "<f8"}}}, "the manifest says otherwise"),
        ({"fields": {"value": {"shape": [-1], "dtype": "<f8"}}}, "damaged"),
        ({"row": ["value", "value"]}, "name each field once"),
    ],
)
def test_a_manifest_that_lies_is_an_error(change, message, tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", shard_rows=4)
    file = tmp_path / "out" / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DataError, match=message):
        ps.from_files(tmp_path / "out")


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xff", b"[" * 100_000])
def test_a_manifest_that_is_none_is_an_error(text, tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_bytes(text)
    with pytest.raises(DataError, match=r"manifest"):
        ps.from_files(tmp_path / "out")
