"""write(format="zarr"): a store that zarr reads, and that gives back the rows that went in."""

from typing import ClassVar

import numpy as np
import pytest
import zarr
from tests.conformance import assert_same, run
from tests.shards.nests import words
from tests.writers.other_formats import OtherFormat
from tests.writers.test_npy import DTYPES

import penstock as ps


class TestZarr(OtherFormat):
    format = "zarr"
    refused_dtypes: ClassVar = {
        "f16": "map it to float32 or float64",
        "S5": "map it to bytes",
        "S0": "map it to bytes",
        "U3": "map it to str",
        "V7": "make a dict of its columns",
        "bfloat16": "map it to float32",
        "float8_e4m3fn": "map it to float32",
        **{str(one): "make a dict of its columns" for one in DTYPES if isinstance(one, np.dtype)},
    }
    refused_nests: ClassVar = {}


def test_zarr_alone_can_read_it(tmp_path):
    x = np.random.default_rng(0).random((200, 3)).astype(">f4")
    rows = [np.arange(2 * i, dtype="i4").reshape(i, 2) for i in range(200)]
    nest = {"x": x, "meta": {"text": words()}, "rows": rows}
    ps.from_arrays(nest).write(tmp_path / "out.zarr", format="zarr", shard_rows=64)
    group = zarr.open(tmp_path / "out.zarr", mode="r")
    assert sorted(dict(group.members())) == [
        "meta.text.offsets", "meta.text.values", "rows.offsets", "rows.values", "x",
    ]  # fmt: skip
    assert (group["x"][:] == x).all()
    values, offsets = group["meta.text.values"][:], group["meta.text.offsets"][:]
    assert values[offsets[3] : offsets[4]].tobytes().decode() == words()[3]
    values, offsets = group["rows.values"][:], group["rows.offsets"][:]
    assert values[offsets[9] : offsets[10]].tolist() == rows[9].tolist()
    assert group["x"].shards == (64, 3)


def test_negative_zeros_and_nans_come_back(tmp_path):
    x = np.array([-0.0, 0.0, np.nan, -np.nan] * 1000)
    ps.from_arrays(x).write(tmp_path / "out", format="zarr")
    assert_same(run(ps.from_files(tmp_path / "out")), list(x))
    ps.from_arrays(np.full(5000, -0.0)).write(tmp_path / "zeros", format="zarr")
    assert np.signbit(run(ps.from_files(tmp_path / "zeros"))).all()


def test_what_a_store_is_not_is_refused_with_the_cure(tmp_path):
    ds = ps.from_arrays(np.zeros((1000, 1000)))
    with pytest.raises(ValueError, match="shard_rows may be 8 at most"):
        ps.from_arrays(np.zeros((100, 1 << 20))).write(tmp_path / "a", format="zarr", shard_rows=50)
    with pytest.raises(ValueError, match="without shards; shard_rows sets"):
        ds.write(tmp_path / "a", format="zarr", shards=2)
    with pytest.raises(ValueError, match="a Zarr store is one thing: write it without engine"):
        ds.write(tmp_path / "a", format="zarr", engine="ray")
    with pytest.raises(TypeError, match=r"map it to m8\[us\]"):
        ps.from_arrays(np.zeros(3, "m8")).write(tmp_path / "a", format="zarr")
    assert list(tmp_path.iterdir()) == []


def test_a_field_called_as_the_metadata_is_comes_back(tmp_path):
    nest = {"zarr.json": np.arange(5), "c": np.arange(5) * 2}
    ps.from_arrays(nest).write(tmp_path / "out", format="zarr")
    assert_same(run(ps.from_files(tmp_path / "out")), run(ps.from_arrays(nest)))


def test_an_array_that_was_removed_or_changed_is_noticed(tmp_path):
    ps.from_arrays({"t": words(), "x": np.arange(200)}).write(tmp_path / "out", format="zarr")
    group = zarr.open(tmp_path / "out", mode="a")
    group["t.offsets"][100] = 10**9
    with pytest.raises(ps.DataError, match="offsets must rise"):
        run(ps.from_files(tmp_path / "out"))
    ds = ps.from_files(tmp_path / "out").with_options(on_error="skip")
    with ds.stream() as stream:
        assert len(list(stream)) == 200 - 64
        (told,) = stream.report().skipped
        assert f"{tmp_path}/out/t.offsets, row 64" in told
    del group["t.offsets"]
    # Without it, the arrays are what they are.
    with pytest.raises(ps.LengthError):
        ps.from_files(tmp_path / "out")
    assert len(ps.from_files(tmp_path / "out", fields="x")) == 200
