"""What is written follows the ending of a path, and no path says that something else is there."""

import numpy as np
import pyarrow.parquet
import pytest
import zarr

import penstock as ps

ROWS = ps.from_arrays({"x": np.arange(8.0).reshape(4, 2), "y": np.arange(4)})


def test_the_ending_says_the_format(tmp_path):
    ROWS.write(tmp_path / "out.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "out.parquet").num_rows == 4
    ROWS.write(str(tmp_path / "OUT.ZARR"))
    assert zarr.open_group(tmp_path / "OUT.ZARR")["y"].shape == (4,)
    for name in ("out.tfrecord", "out.tfrecords"):
        ROWS.write(tmp_path / name)
        features = {"y": ps.FixedFeature((), "int64")}
        assert [int(row["y"]) for row in ps.from_tfrecord(tmp_path / name, features)] == [
            0,
            1,
            2,
            3,
        ]


@pytest.mark.parametrize("name", ["out", "out.v2", "2026.11.18"])
def test_other_names_are_folders_of_shards(tmp_path, name):
    ROWS.write(tmp_path / name)
    assert (tmp_path / name / "manifest.json").exists()
    ROWS.write(tmp_path / f"{name}.as_told", format="parquet")
    assert len(list((tmp_path / f"{name}.as_told").glob("*.parquet"))) == 1


@pytest.mark.parametrize(
    "name", ["out.h5", "out.npz", "out.npy", "out.csv", "out.jsonl", "out.tar"]
)
def test_what_can_not_be_written_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="which can't be written: write a folder"):
        ROWS.write(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "format"),
    [("out.zarr", "parquet"), ("out.parquet", "npy"), ("out.tfrecord", "zarr"), ("out.h5", "npy")],
)
def test_a_name_of_another_format_is_refused(tmp_path, name, format):
    with pytest.raises(ValueError, match=f"and format='{format}' makes something else"):
        ROWS.write(tmp_path / name, format=format)
    assert not list(tmp_path.iterdir())
