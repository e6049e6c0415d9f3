"""write(format="npy"): what it writes, that NumPy alone can read it, and that nothing breaks it half-way."""

import json
import os
import random
import signal
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
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance
from tests.stages.conformance import keep

import penstock as ps
from penstock.io.errors import DataError, DiskFullError, TargetExistsError, WriteError
from penstock.shards.rows import read_manifest

NUM_ROWS = 200
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


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def words():
    return ["é" * (i % 5) + str(i) for i in range(NUM_ROWS)]


NESTS = {
    "bare": np.arange(NUM_ROWS),
    "tuple": (np.arange(NUM_ROWS), np.ones((NUM_ROWS, 2), "f4")),
    "dict": {"b": np.arange(NUM_ROWS), "a": words()},
    "numbered": {0: np.arange(NUM_ROWS), 1: np.arange(NUM_ROWS) * 2},
    "nested": {"x": (np.arange(NUM_ROWS), {"y": words()}), "z": [w.encode() for w in words()]},
    "odd names": {
        "a/../b": np.arange(NUM_ROWS),
        "a b": words(),
        ".x": np.ones(NUM_ROWS),
        "A B": words(),
    },
    "same names": {"x": words(), "x.values": np.arange(NUM_ROWS), "x.offsets": np.zeros(NUM_ROWS)},
    "ragged": [np.arange(i % 7, dtype="i2") for i in range(NUM_ROWS)],
    "ragged rows": [np.full((i % 4, 3), i, "f4") for i in range(NUM_ROWS)],
    "ragged inside": {"r": [np.full((2, i % 4), i) for i in range(NUM_ROWS)]},
    "ragged all over": (
        [np.full((i % 3, 2, i % 4), i, "f8") for i in range(NUM_ROWS)],
        np.arange(NUM_ROWS),
    ),
    "ragged and empty": [np.zeros((i % 3, 0), "u1") for i in range(NUM_ROWS)],
    "surrogates": ["\ud800" + str(i) for i in range(NUM_ROWS)],
}


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


class TestConformance(SourceConformance):
    @pytest.fixture(params=["tuple", "dict", "ragged all over", "ragged rows", "nested"])
    def case(self, request, tmp_path):
        nest = NESTS[request.param]
        ps.from_arrays(nest).take(31).write(tmp_path / "out", shard_rows=9)
        return Case(lambda: ps.from_files(tmp_path / "out"), run(ps.from_arrays(nest).take(31)))


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


def test_fields_can_be_chosen(tmp_path):
    ps.from_arrays({"x": np.arange(9), "t": words()[:9]}).write(tmp_path / "out", shard_rows=4)
    back = ps.from_files(tmp_path / "out", fields=("t", "x"))
    assert_same(run(back), list(zip(words()[:9], np.arange(9), strict=True)))
    with pytest.raises(DataError, match="has no field 'y'"):
        ps.from_files(tmp_path / "out", fields="y")


def test_a_shuffle_of_what_was_written_is_the_same_however_it_is_sharded(tmp_path):
    ds = ps.from_arrays(np.arange(20_000))
    ds.write(tmp_path / "a", shard_rows=999)
    ds.write(tmp_path / "b")
    shuffled = [run(ps.from_files(tmp_path / name).shuffle(seed=5).batch(500)) for name in "ab"]
    assert_same(*shuffled)


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
    with pytest.raises(ValueError, match="format must be one of npy"):
        ds.write(tmp_path / "out", format="nyp")
    with pytest.raises(ValueError, match="shard_rows must be at least 1, got 0"):
        ds.write(tmp_path / "out", shard_rows=0)
    with pytest.raises(ValueError, match="without end"):
        ds.repeat().write(tmp_path / "out")


# -- interruptions --------------------------------------------------------------------------------


def test_the_same_call_goes_on_after_an_error_and_redoes_no_finished_shard(tmp_path):
    seen, fails = [], [True]

    def f(x):
        if fails[0] and x[0] == 700:
            raise RuntimeError("not yet")
        seen.append(int(x[0]))
        return x

    rows = np.repeat(np.arange(1000), 1000).reshape(1000, 1000)
    ds = ps.from_arrays(rows).map(f, spec=ps.ArraySpec((1000,), "int64")).filter(keep)
    ds = ds.with_options(threads=0)
    with pytest.raises(ps.FunctionError, match="not yet") as raised:
        ds.write(tmp_path / "out", shard_rows=100)
    assert "finished shards are kept" in "".join(raised.value.__notes__)
    assert not (tmp_path / "out").exists()
    hidden = tmp_path / ".out.penstock-part"
    done = len(list(hidden.glob("value-*.npy")))
    before = {file.name: file.stat().st_mtime_ns for file in hidden.glob("value-*.npy")}
    assert done > 0
    seen.clear()
    fails[0] = False
    ds.write(tmp_path / "out", shard_rows=100)
    assert min(seen) >= 100 * done
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in before} == before
    assert_same(run(ps.from_files(tmp_path / "out")), list(rows))
    assert names(tmp_path) == ["out"]


def test_what_is_left_of_something_else_is_not_gone_on_with(tmp_path):
    def f(x):
        if x == 700:
            raise RuntimeError("no")
        return x

    with pytest.raises(ps.FunctionError):
        ps.from_arrays(np.arange(1000)).map(f).write(tmp_path / "out", shard_rows=100)
    ps.from_arrays(np.arange(1000) * 2).write(tmp_path / "out", shard_rows=100)
    assert_same(run(ps.from_files(tmp_path / "out")), list(np.arange(1000) * 2))


WRITER = """
import sys, numpy as np, penstock as ps
x = np.arange(6_000_000)
ds = ps.from_arrays((x, x.astype("f4")))
if sys.argv[1] == "flow":
    ds = ds.batch(1000).filter(lambda a, b: True).unbatch()
print("ready", flush=True)
ds.write(sys.argv[2], shard_rows=200_000)
print("done", flush=True)
"""


def start(kind, path):
    command = [sys.executable, "-c", WRITER, kind, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(kind, path, seconds):
    process = start(kind, path)
    process.stdout.readline()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def check_whole(path):
    back = ps.from_files(path)
    assert len(back) == 6_000_000
    at = 0
    for x, y in back.batch(500_000):
        assert (x == np.arange(at, at + len(x))).all()
        assert (y == np.arange(at, at + len(x)).astype("f4")).all()
        at += len(x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_kill_at_any_moment_can_be_gone_on_from(kind, tmp_path):
    rng = random.Random(kind)
    for _ in range(3):
        if (tmp_path / "out").exists():
            break
        kill_after(kind, tmp_path / "out", rng.uniform(0.0, 0.3))
    if not (tmp_path / "out").exists():
        process = start(kind, tmp_path / "out")
        assert process.communicate(timeout=120)[0].endswith("done\n")
    check_whole(tmp_path / "out")
    assert names(tmp_path) == ["out"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_fifty_kills_can_be_gone_on_from(kind, tmp_path):
    rng = random.Random(kind)
    for number in range(25):
        path = tmp_path / f"out{number}"
        kill_after(kind, path, rng.uniform(0.0, 1.0))
        if not path.exists():
            process = start(kind, path)
            assert process.communicate(timeout=120)[0].endswith("done\n")
        check_whole(path)


@pytest.mark.slow
def test_of_two_processes_one_writes_and_the_other_says_so(tmp_path):
    processes = [start("rows", tmp_path / "out") for _ in range(2)]
    ends = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert min(code for _, code in ends) == 0
    for (_, error), code in ends:
        assert code == 0 or "another process is writing this" in error or "exists already" in error
    check_whole(tmp_path / "out")


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


@pytest.mark.parametrize("wrong", [[0, 5, 3, 9], [-1, 0, 1, 2], [0, 1, 2, 1 << 60]])
def test_offsets_that_lie_are_an_error(wrong, tmp_path):
    ps.from_arrays([b"abc", b"def", b"ghi"]).write(tmp_path / "out")
    np.save(tmp_path / "out" / "value.offsets-00000.npy", np.array(wrong))
    with pytest.raises(DataError, match="offsets must rise"):
        run(ps.from_files(tmp_path / "out"))


def test_shapes_that_lie_are_an_error(tmp_path):
    ps.from_arrays([np.ones((2, 3)), np.ones((3, 2))]).write(tmp_path / "out")
    np.save(tmp_path / "out" / "value.shapes-00000.npy", np.array([[2, 3], [1 << 40, 2]]))
    with pytest.raises(DataError, match="shapes do not fit"):
        run(ps.from_files(tmp_path / "out"))


def test_a_missing_file_is_an_error(tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", shard_rows=4)
    (tmp_path / "out" / "value-00001.npy").unlink()
    with pytest.raises(DataError, match=r"value-00001\.npy: there is no such file"):
        ps.from_files(tmp_path / "out")


# -- progress and memory --------------------------------------------------------------------------


def test_there_is_no_bar_unless_stderr_is_a_terminal(tmp_path, capfd):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out")
    assert capfd.readouterr().err == ""


def test_a_bar_can_be_asked_for(tmp_path, capfd):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", progress=True)
    assert "9 rows" in capfd.readouterr().err


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
