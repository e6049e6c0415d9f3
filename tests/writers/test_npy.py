"""write(format="npy"): what it writes, that NumPy alone can read it, and what it refuses."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.conformance import assert_same, run
from tests.shards.nests import NESTS, NUM_ROWS, names, words

import penstock as ps
from penstock.errors import DiskFullError, TargetExistsError, WriteError

DTYPES = [
    "bool", "i1", "u2", "<i4", ">i4", "u8", "f2", "f4", ">f8", "f16", "c8", "c16", "S5", "U3", "V7", "S0",
    "M8[ns]", "M8[D]", "m8[us]", "bfloat16", "float8_e4m3fn",
    np.dtype([("a", "i4"), ("b", "f8", (2,))]),
    np.dtype([("a", "u1"), ("b", "f8")], align=True),
    np.dtype([("p", [("q", "i2")]), ("s", "U2")]),
]  # fmt: skip


def array_of(dtype, *shape):
    dtype = np.dtype(
        getattr(ml_dtypes, dtype) if str(dtype).startswith(("bf", "float8")) else dtype
    )
    size = int(np.prod(shape)) * dtype.itemsize
    if "S" in str(dtype) or "U" in str(dtype):  # Not every sequence of bytes is text.
        return np.zeros(shape, dtype)
    raw = np.random.default_rng(1).integers(0, 2, size, dtype=np.uint8)
    return np.ndarray(shape, dtype, raw.tobytes()).copy() if size else np.zeros(shape, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 1)])
def test_every_dtype_comes_back(dtype, shape, tmp_path):
    array = array_of(dtype, NUM_ROWS, *shape)
    ps.from_arrays(array).write(tmp_path / "out", shard_rows=77)
    back = ps.from_files(tmp_path / "out")
    assert back.spec == ps.ArraySpec(shape, array.dtype)
    assert len(back) == NUM_ROWS
    assert_same(run(back), run(ps.from_arrays(array)))


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("shard_rows", [None, 77])
def test_every_nest_comes_back(name, shard_rows, tmp_path):
    ds = ps.from_arrays(NESTS[name])
    ds.write(tmp_path / "out", shard_rows=shard_rows)
    back = ps.from_files(tmp_path / "out")
    assert back.spec == ds.spec
    assert_same(run(back), run(ds))
    assert all(path.parent == tmp_path / "out" for path in (tmp_path / "out").rglob("*"))


@pytest.mark.parametrize("name", NESTS)
def test_batches_come_back_as_they_are(name, tmp_path):
    ds = ps.from_arrays(NESTS[name]).padded_batch(7)
    ds.write(tmp_path / "out", shard_rows=13)
    assert_same(run(ps.from_files(tmp_path / "out")), run(ds))


@settings(max_examples=25)
@given(
    hnp.arrays(st.sampled_from(["u1", "i4", "f8"]), hnp.array_shapes(min_dims=1, max_dims=3)),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_any_array_comes_back(tmp_path_factory, array, shard_rows, threads):
    folder = tmp_path_factory.mktemp("any")
    ds = ps.from_arrays(array).with_options(threads=threads)
    ds.write(folder / "out", shard_rows=shard_rows)
    assert_same(run(ps.from_files(folder / "out")), list(array))


def test_no_rows_at_all_come_back(tmp_path):
    ds = ps.from_arrays({"x": np.zeros((5, 2)), "t": words()[:5]}).filter(lambda row: False)
    ds.write(tmp_path / "out")
    back = ps.from_files(tmp_path / "out")
    assert (len(back), run(back), back.spec) == (0, [], ds.spec)


def test_numpy_alone_can_read_it(tmp_path):
    x, text = np.random.default_rng(0).random((NUM_ROWS, 3)), words()
    rows = [np.arange(2 * i, dtype="i4").reshape(i, 2) for i in range(NUM_ROWS)]
    ps.from_arrays({"x": x, "text": text, "rows": rows}).write(tmp_path / "out", shard_rows=64)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["num_rows"] == NUM_ROWS
    assert manifest["row"] == {"x": "x", "text": "text", "rows": "rows"}
    assert manifest["fields"]["x"]["shape"] == [3]
    files = sorted((tmp_path / "out").glob("x-*.npy"))
    assert files[3].name == "x-00003.npy"
    assert (np.concatenate([np.load(file) for file in files]) == x).all()
    values, offsets = (
        np.load(tmp_path / "out" / f"text.{role}-00001.npy") for role in ("values", "offsets")
    )
    assert values[offsets[2] : offsets[3]].tobytes().decode() == text[64 + 2]
    values, offsets = (
        np.load(tmp_path / "out" / f"rows.{role}-00001.npy") for role in ("values", "offsets")
    )
    assert (values[offsets[2] : offsets[3]] == rows[64 + 2]).all()
    for shard in manifest["shards"]:
        for name, record in shard["files"].items():
            file = tmp_path / "out" / name
            assert file.stat().st_size == record["nbytes"]
            assert f"{zlib.crc32(np.load(file)):08x}" == record["crc32"]


# -- what is there already ------------------------------------------------------------------------


def test_what_exists_is_not_written_over(tmp_path):
    ds = ps.from_arrays(np.arange(3))
    ds.write(tmp_path / "out")
    with pytest.raises(TargetExistsError, match="overwrite=True"):
        ds.write(tmp_path / "out")
    ps.from_arrays(np.arange(5)).write(tmp_path / "out", overwrite=True)
    assert len(ps.from_files(tmp_path / "out")) == 5
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "x").write_text("precious")
    with pytest.raises(TargetExistsError, match="not written by penstock"):
        ds.write(tmp_path / "mine", overwrite=True)
    assert names(tmp_path) == ["mine", "out"]


def test_wrong_arguments_are_refused(tmp_path):
    ds = ps.from_arrays(np.arange(3))
    with pytest.raises(
        ValueError, match=r"format must be one of npy, parquet, tfrecord, zarr, got .nyp."
    ):
        ds.write(tmp_path / "out", format="nyp")
    with pytest.raises(ValueError, match="shard_rows must be at least 1, got 0"):
        ds.write(tmp_path / "out", shard_rows=0)
    with pytest.raises(ValueError, match="without end"):
        ds.repeat().write(tmp_path / "out")


# -- what can go wrong ----------------------------------------------------------------------------


def test_a_full_disk_is_a_clear_error_and_can_be_gone_on_from(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()

    def mount(*options):
        command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    if mount("size=4m"):
        pytest.skip("mounting a small tmpfs takes root; a limit on file sizes is tested instead")
    try:
        ds = ps.from_arrays(np.arange(1_000_000))
        with pytest.raises(DiskFullError, match="the disk is full") as raised:
            ds.write(folder / "out", shard_rows=100_000)
        assert "finished shards are kept" in "".join(raised.value.__notes__)
        assert not (folder / "out").exists()
        mount("remount", "size=32m")
        ds.write(folder / "out", shard_rows=100_000)
        assert len(ps.from_files(folder / "out")) == 1_000_000
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_limit_on_file_sizes_is_a_clear_error(tmp_path):
    code = (
        "import resource, sys, numpy as np, penstock as ps\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try:\n    ps.from_arrays(np.arange(1_000_000)).write(sys.argv[1])\n"
        "except OSError as error:\n    print(type(error).__name__, error)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "out")]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "files may not be larger" in found.stdout
    assert "shard_rows" in found.stdout
    assert names(tmp_path) == []


def test_no_permission_is_a_clear_error(tmp_path):
    if os.geteuid() == 0:
        with pytest.raises(WriteError, match=r"its folder does not exist|no permission"):
            ps.from_arrays(np.arange(3)).write(Path("/proc/out"))
        return
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(WriteError, match="no permission"):
        ps.from_arrays(np.arange(3)).write(tmp_path / "locked" / "out")


# -- memory ---------------------------------------------------------------------------------------


IN_A_CGROUP = """
import os, sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write(str(os.getpid()))
import numpy as np, penstock as ps
ds = ps.from_files(sys.argv[2], format="raw", spec=ps.ArraySpec((256,), "float32"))
ds = ds.with_options(memory="32MB")
if sys.argv[4] == "cache":
    assert sum(len(x) for x in ds.cache(sys.argv[3]).batch(256)) == len(ds)
else:
    ds.write(sys.argv[3])
print("whole", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["write", "cache"])
def test_a_file_larger_than_its_container_is_written_in_bounded_memory(how, tmp_path):
    parent = Path("/sys/fs/cgroup/memory")
    group = parent / f"penstock-{os.getpid()}-{how}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(200 << 20))
    except OSError as error:
        pytest.skip(f"no memory cgroup (version 1) can be made here: {error}")
    try:
        file = tmp_path / "big.bin"
        with file.open("wb") as out:
            for number in range(64):
                out.write(np.full((8 << 20) // 4, number, "f4").tobytes())
        command = [
            sys.executable,
            "-c",
            IN_A_CGROUP,
            str(group),
            str(file),
            str(tmp_path / "out"),
            how,
        ]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
        assert found.returncode == 0, found.stderr
        assert found.stdout == "whole\n"
    finally:
        group.rmdir()
    assert len(ps.from_files(tmp_path / "out")) == (512 << 20) // 1024
