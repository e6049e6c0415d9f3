"""A process that is killed while it writes or caches: the next one goes on if all is proven the same, else not.

Each test runs a script, which kills itself in the middle, and runs it again, with the same inputs or with others. What
comes out must be what a run without a kill gives. How often the user's function ran tells what was gone on from.
"""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import penstock as ps

SCRIPT = """
import functools, os, sys, warnings
import numpy as np, penstock as ps
import penstock.shards.sequence, penstock.stages.cache.filling
penstock.shards.sequence.SHARD_NBYTES = penstock.stages.cache.filling._SHARD_NBYTES = 800
KIND, HOW, FOLDER, KILL = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
LOG = FOLDER + "/log"

def note(x):
    "Count the rows, and die in the middle of them."
    with open(FOLDER + "/log", "a") as file:
        file.write(f"{int(x)}\\n")
    if os.path.exists(FOLDER + "/kill") and os.path.getsize(FOLDER + "/log") > 2000:
        os.kill(os.getpid(), 9)

{function}

def memory():
    return np.load(FOLDER + "/x.npy")

def generated():
    return iter(np.load(FOLDER + "/x.npy"))

def source():
    x = FOLDER + "/x"
    if KIND == "memory":
        return ps.from_arrays(memory())
    if KIND == "strided":
        return ps.from_arrays(np.repeat(memory(), 2)[::2])
    if KIND == "text":
        return ps.from_arrays([str(one) for one in memory()]).map(int)
    if KIND == "mapped":
        return ps.from_arrays(np.load(x + ".npy", mmap_mode="r"))
    if KIND == "mapped for writing":
        return ps.from_arrays(np.load(x + ".npy", mmap_mode="r+"))
    if KIND == "generator":
        return ps.from_generator(generated, ps.ArraySpec((), "int64"))
    if KIND == "npy":
        return ps.from_files(x + ".npy")
    if KIND == "open hdf5":
        import h5py
        return ps.from_arrays(h5py.File(x + ".h5")["x"])
    if KIND == "hdf5":
        return ps.from_files(x + ".h5", "x")
    if KIND == "open zarr":
        import zarr
        return ps.from_arrays(zarr.open(x + ".zarr", mode="r"))
    if KIND == "zarr":
        return ps.from_files(x + ".zarr")
    if KIND == "parquet":
        return ps.from_files(x + ".parquet", "x")
    if KIND == "tfrecord":
        return ps.from_tfrecord(x + ".tfrecord").map(lambda row: row["x"])
    if KIND == "written":
        return ps.from_files(x + "-written").map(lambda row: row["x"] + len(row["t"]) - 2)

ds = source().map(f, spec=ps.ArraySpec((), "int64")).with_options(threads=0, processes=0)
if HOW == "cache" or HOW.startswith("key"):
    ds = ds.cache(FOLDER + "/out", key=HOW if HOW.startswith("key") else None)
    list(ds)
else:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ds.write(FOLDER + "/out", format=HOW, shard_rows=100)
    print(*(one.message for one in caught))
"""
DOUBLE = "def f(x):\n    note(x)\n    return 2 * x"


def put(folder: Path, kind: str, values) -> None:
    """Write the file that a source of this kind reads."""
    path = folder / "x"
    if "hdf5" in kind:
        with h5py.File(f"{path}.h5", "w") as file:
            file.create_dataset("x", data=values, chunks=(100,))
    elif "zarr" in kind:
        mode = "r+" if Path(f"{path}.zarr").exists() else "w"
        if mode == "w":
            zarr.create_array(f"{path}.zarr", shape=(1000,), chunks=(100,), dtype="int64")
        zarr.open(f"{path}.zarr", mode="r+")[:] = (
            values  # In place: the folder itself does not change.
        )
    elif kind == "parquet":
        pq.write_table(pa.table({"x": values}), f"{path}.parquet")
    elif kind == "tfrecord":
        ps.from_arrays({"x": values}).write(f"{path}.tfrecord", format="tfrecord", overwrite=True)
    elif kind == "written":
        text = [f"{one % 7}" * 2 for one in values]
        ps.from_arrays({"x": values, "t": text}).write(f"{path}-written", overwrite=True)
    else:
        np.save(f"{path}.npy", values)


def start(folder: Path, kind: str, how: str, function: str) -> subprocess.CompletedProcess:
    script = folder / "script.py"
    script.write_text(SCRIPT.replace("{function}", function))
    (folder / "log").write_text("")
    command = [sys.executable, str(script), kind, how, str(folder), "0"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def kill_in_the_middle(folder: Path, kind: str, how: str, function: str = DOUBLE) -> None:
    (folder / "kill").touch()
    killed = start(folder, kind, how, function)
    assert killed.returncode == -9, killed.stderr
    (folder / "kill").unlink()


def rows_made(folder: Path) -> set[int]:
    """Return the rows that the function was called with in the last run."""
    return set(map(int, (folder / "log").read_text().split()))


def result(folder: Path, how: str) -> list[int]:
    if how != "tfrecord":
        return [int(x) for x in ps.from_files(folder / "out")]
    return [int(row["value"]) for row in ps.from_tfrecord(folder / "out")]


FILES = [
    "npy",
    "hdf5",
    "open hdf5",
    "zarr",
    "open zarr",
    "parquet",
    "tfrecord",
    "written",
    "mapped",
]
ARRAYS = ["memory", "strided", "text", "mapped for writing"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["npy", "cache"])
@pytest.mark.parametrize("kind", FILES + ARRAYS)
def test_the_same_inputs_are_gone_on_with(kind, how, tmp_path):
    put(tmp_path, kind, np.arange(1000))
    kill_in_the_middle(tmp_path, kind, how)
    again = start(tmp_path, kind, how, DOUBLE)
    assert again.returncode == 0, again.stderr
    assert result(tmp_path, how) == list(range(0, 2000, 2))
    assert min(rows_made(tmp_path)) >= 300
    assert again.stdout.strip() == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *itertools.product([*FILES, *ARRAYS, "generator"], ["npy", "cache"]),
        *itertools.product(["npy", "memory", "generator"], ["tfrecord"]),
    ],
)
def test_other_values_of_the_same_shape_are_not_mixed_with_the_old_ones(kind, how, tmp_path):
    put(tmp_path, kind, np.arange(1000))
    kill_in_the_middle(tmp_path, kind, how)
    put(tmp_path, kind, np.arange(1000) + 5000)
    again = start(tmp_path, kind, how, DOUBLE)
    if how == "cache":
        assert "StaleCacheError" in again.stderr
        assert "rm -r" in again.stderr
        return
    assert again.returncode == 0, again.stderr
    assert result(tmp_path, how) == list(range(10_000, 12_000, 2))
    if how == "npy":
        assert "write starts over: the" in again.stdout


@pytest.mark.slow
def test_a_generator_is_started_over_and_a_key_vouches_for_it(tmp_path):
    put(tmp_path, "generator", np.arange(1000))
    kill_in_the_middle(tmp_path, "generator", "npy")
    again = start(tmp_path, "generator", "npy", DOUBLE)
    assert "from_generator(generated) can't be compared" in again.stdout
    assert result(tmp_path, "npy") == list(range(0, 2000, 2))
    os.rename(tmp_path / "out", tmp_path / "written")
    kill_in_the_middle(tmp_path, "generator", "key 1")
    assert "key='key 1'" in start(tmp_path, "generator", "key 2", DOUBLE).stderr
    assert "StaleCacheError" in start(tmp_path, "generator", "cache", DOUBLE).stderr
    again = start(tmp_path, "generator", "key 1", DOUBLE)
    assert again.returncode == 0, again.stderr
    assert result(tmp_path, "key 1") == list(range(0, 2000, 2))
    assert min(rows_made(tmp_path)) >= 100


METHOD = """
class By:
    def __init__(self, by):
        self.by = by
    def __call__(self, x):
        note(x)
        return x * self.by
f = By(2).__call__
"""
# A function, and another that gives other values.
FUNCTIONS = {
    "body": (DOUBLE, DOUBLE.replace("2 * x", "2 + x")),
    "constant": (DOUBLE, DOUBLE.replace("2 * x", "3 * x")),
    "default": (
        "def f(x, by=2):\n    note(x)\n    return x * by",
        "def f(x, by=3):\n    note(x)\n    return x * by",
    ),
    "keyword default": (
        "def f(x, *, by=2):\n    note(x)\n    return x * by",
        "def f(x, *, by=3):\n    note(x)\n    return x * by",
    ),
    "closure": (
        "def make(by):\n    def f(x):\n        note(x)\n        return x * by\n    return f\nf = make(2)",
        "def make(by):\n    def f(x):\n        note(x)\n        return x * by\n    return f\nf = make(3)",
    ),
    "global": (f"BY = 2\n{DOUBLE.replace('2 *', 'BY *')}", f"BY = 3\n{DOUBLE.replace('2 *', 'BY *')}"),
    "global array": (
        "BY = np.arange(9000)\ndef f(x):\n    note(x)\n    return BY[x]",
        "BY = np.arange(9000) + 1\ndef f(x):\n    note(x)\n    return BY[x]",
    ),
    "called function": (
        "def g(x):\n    return 2 * x\ndef f(x):\n    note(x)\n    return g(x)",
        "def g(x):\n    return 3 * x\ndef f(x):\n    note(x)\n    return g(x)",
    ),
    "instance of a method": (METHOD, METHOD.replace("By(2)", "By(3)")),
    "method": (METHOD, METHOD.replace("x * self", "x + self")),
    "partial": (
        "def g(by, x):\n    note(x)\n    return by * x\nf = functools.partial(g, 2)",
        "def g(by, x):\n    note(x)\n    return by * x\nf = functools.partial(g, 3)",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("how", ["npy", "cache"])
@pytest.mark.parametrize("change", FUNCTIONS)
def test_a_changed_function_is_not_gone_on_with_and_the_same_one_is(change, how, tmp_path):
    one, other = FUNCTIONS[change]
    moved = f"# Another comment\n\n\n{one}\n# And one here"
    put(tmp_path, "npy", np.arange(1000))
    kill_in_the_middle(tmp_path, "npy", how, one)
    again = start(tmp_path, "npy", how, other)
    if how == "cache":
        assert "the function of map(" in again.stderr
        assert "is not what it was" in again.stderr
        assert start(tmp_path, "npy", how, moved).returncode == 0
        assert min(rows_made(tmp_path)) >= 100
        return
    assert again.returncode == 0, again.stderr
    assert "is not what it was" in again.stdout
    mended = result(tmp_path, how)
    (tmp_path / "out").rename(tmp_path / "mended")
    assert start(tmp_path, "npy", how, other).returncode == 0
    assert mended == result(tmp_path, how)
    (tmp_path / "out").rename(tmp_path / "fresh")
    kill_in_the_middle(tmp_path, "npy", how, one)
    assert start(tmp_path, "npy", how, moved).stdout.strip() == ""
    assert min(rows_made(tmp_path)) >= 300


@pytest.mark.slow
def test_a_function_that_can_not_be_compared_is_named(tmp_path):
    function = (
        "RANDOM = np.random.default_rng(0)\ndef f(x):\n    note(x)\n    RANDOM\n    return 2 * x"
    )
    put(tmp_path, "npy", np.arange(1000))
    kill_in_the_middle(tmp_path, "npy", "npy", function)
    again = start(tmp_path, "npy", "npy", function)
    assert "the function of map(f) can't be compared: RANDOM, a Generator of numpy" in again.stdout
    assert result(tmp_path, "npy") == list(range(0, 2000, 2))


@pytest.mark.slow
def test_a_function_of_another_module_counts_as_what_it_does(tmp_path):
    function = (
        "sys.path.insert(0, FOLDER)\nimport helper\ndef f(x):\n    note(x)\n    return helper.g(x)"
    )
    put(tmp_path, "npy", np.arange(1000))
    (tmp_path / "helper.py").write_text("BY = 2\ndef g(x):\n    return x * BY\n")
    kill_in_the_middle(tmp_path, "npy", "npy", function)
    (tmp_path / "helper.py").write_text("BY = 3\ndef g(x):\n    return x * BY\n" + "# longer\n")
    again = start(tmp_path, "npy", "npy", function)
    assert "is not what it was" in again.stdout
    assert result(tmp_path, "npy") == list(range(0, 3000, 3))


@pytest.mark.slow
def test_convert_goes_on_and_starts_over_likewise(tmp_path):
    put(tmp_path, "npy", np.arange(1_000_000))
    out = tmp_path / "out"
    main = "import sys; from penstock.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", main, "convert", str(tmp_path / "x.npy"), str(out)]
    command += ["--shard-rows", "1000"]
    journal = tmp_path / ".out.penstock-part" / ".unfinished.jsonl"
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        while not (journal.exists() and journal.read_text().count('"shard"') > 5):
            assert process.poll() is None, process.stderr.read()
        process.kill()
    put(tmp_path, "npy", np.arange(1_000_000) * 2)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "x.npy was written to since" in again.stderr
    assert ps.from_files(out).reduce(0, lambda total, x: total + int(x)) == 999_999_000_000
    assert json.loads((out / "manifest.json").read_text())["num_rows"] == 1_000_000
