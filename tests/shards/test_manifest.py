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
        ({"fields": {"value": {"shape": [float("inf")], "dtype": "<f8"}}}, "damaged"),
        ({"row": ["value", "value"]}, "name each field once"),
        ({"num_rows": 9.0}, "damaged"),
        ({"num_rows": "9"}, "damaged"),
        ({"num_rows": 2**70}, "damaged"),
        (
            {"shards": [{"num_rows": 9, "files": {"precious.txt": {"nbytes": 4, "crc32": "0"}}}]},
            "precious.txt",
        ),
        (
            {"shards": [{"num_rows": 9, "files": {"../x-00000.npy": {"nbytes": 4, "crc32": "0"}}}]},
            "no file of its",
        ),
        (
            {"shards": [{"num_rows": 9, "files": {"/etc/passwd": {"nbytes": 4, "crc32": "0"}}}]},
            "no file of its",
        ),
        ({"shards": [{"num_rows": 9, "run_rows": 2**62, "files": {}}]}, "damaged"),
    ],
)
def test_a_manifest_that_lies_is_an_error(change, message, tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", shard_rows=4)
    file = tmp_path / "out" / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(DataError, match=message):
        ps.from_files(tmp_path / "out")


def test_a_manifest_that_lists_a_file_of_someone_else_does_not_make_it_ours(tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out")
    file = tmp_path / "out" / "manifest.json"
    (tmp_path / "out" / "precious.txt").write_text("mine")
    value = json.loads(file.read_text())
    value["shards"][0]["files"]["precious.txt"] = {"nbytes": 4, "crc32": "0"}
    file.write_text(json.dumps(value))
    with pytest.raises(ps.PenstockError, match="not written by penstock"):
        ps.from_arrays(np.arange(9)).write(tmp_path / "out", overwrite=True)
    assert (tmp_path / "out" / "precious.txt").read_text() == "mine"


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b"\xff\xff", b"[" * 100_000])
def test_a_manifest_that_is_none_is_an_error(text, tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_bytes(text)
    with pytest.raises(DataError, match=r"manifest"):
        ps.from_files(tmp_path / "out")
