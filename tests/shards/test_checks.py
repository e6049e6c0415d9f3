"""Written and cached shards: a byte that changed is found, wherever it is, however the rows are read."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.shards.nests import NESTS

import penstock as ps
from penstock import _native
from penstock.core.fields import Field
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, MissingFileError
from penstock.shards.checks import run_rows_of
from penstock.sources.reading.read_blocks import block_rows

NUM_ROWS = 3000
SHARD_ROWS = 1100


def rows_of_all_kinds():
    random = np.random.default_rng(0)
    sizes = random.integers(0, 40, (NUM_ROWS, 2))
    return {
        "wide": random.random((NUM_ROWS, 200), np.float32),
        "narrow": np.arange(NUM_ROWS, dtype=np.int32),
        "text": ["t" * int(size) for size in sizes[:, 0]],
        "ragged": [random.random(int(size), np.float32) for size in sizes[:, 1]],
        "planes": [random.random((int(a) % 5, int(b) % 5)) for a, b in sizes],
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("written") / "out"
    ps.from_arrays(rows_of_all_kinds()).write(folder, shard_rows=SHARD_ROWS)
    return folder


@contextlib.contextmanager
def flipped(path: Path, at: int):
    """Change one bit of a file for a while."""
    content = path.read_bytes()
    changed = bytearray(content)
    changed[at] ^= 8
    path.write_bytes(changed)
    try:
        yield
    finally:
        path.write_bytes(content)


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.npy"))


WAYS = {
    "forward": lambda ds: ds,
    "forward in batches": lambda ds: ds.padded_batch(7),
    "shuffled": lambda ds: ds.shuffle(seed=1),
    "by one thread": lambda ds: ds.with_options(threads=1),
    "in little memory": lambda ds: ds.with_options(memory="32MB"),
}


@pytest.mark.parametrize("place", ["start", "middle", "end"])
@pytest.mark.parametrize("way", WAYS)
def test_a_changed_byte_of_any_file_is_an_error_that_names_it(written, way, place):
    for path in data_files(written):
        size = path.stat().st_size
        at = {"start": 128, "middle": (128 + size) // 2, "end": size - 1}[place]
        with flipped(path, at), pytest.raises(DataError) as caught:
            run(WAYS[way](ps.from_files(written)))
        assert path.name.partition("-")[0].partition(".")[0] in str(caught.value.file)
        assert path.name[-10:] in caught.value.file  # The shard.
    assert len(run(WAYS[way](ps.from_files(written)))) > 0


@pytest.mark.parametrize("way", WAYS)
def test_verify_false_reads_on(written, way):
    path = written / "wide-00001.npy"
    with flipped(path, path.stat().st_size // 2):
        run(WAYS[way](ps.from_files(written, verify=False)))


def test_the_error_says_which_rows_and_what_to_do(tmp_path):
    ps.from_arrays(np.zeros((1000, 100), np.float32)).write(tmp_path / "out", shard_rows=600)
    with (
        flipped(tmp_path / "out" / "value-00001.npy", 128 + 400 * 200),
        pytest.raises(DataError, match="rows 52 to 215 are not what was written") as caught,
    ):
        run(ps.from_files(tmp_path / "out"))
    assert caught.value.file.endswith("value-00001.npy")
    assert caught.value.row == 52
    assert "verify=False" in str(caught.value)
    assert "write the folder again" in str(caught.value)


@pytest.mark.parametrize("name", NESTS)
@pytest.mark.parametrize("shard_rows", [None, 30, 64])
def test_intact_rows_of_all_nests_pass(tmp_path, name, shard_rows):
    ds = ps.from_arrays(NESTS[name])
    ds.write(tmp_path / "out", shard_rows=shard_rows)
    for change in (lambda d: d, lambda d: d.shuffle(seed=2)):
        checked = run(change(ps.from_files(tmp_path / "out")))
        assert_same(checked, run(change(ps.from_files(tmp_path / "out", verify=False))))
    assert_same(run(ps.from_files(tmp_path / "out")), run(ds))


def test_arrays_of_text_are_checked_too(tmp_path):
    words = [["w" * (k % 7)] * (k % 4) for k in range(2000)]
    spec = ps.ArraySpec((None,), str)
    ps.from_generator(lambda: iter(words), spec).write(tmp_path / "out", shard_rows=900)
    assert len(run(ps.from_files(tmp_path / "out"))) == 2000
    names = {path.name.partition("-")[0] for path in data_files(tmp_path / "out")}
    assert names == {"value.values", "value.offsets", "value.items"}
    for path in data_files(tmp_path / "out"):
        with flipped(path, (128 + path.stat().st_size) // 2), pytest.raises(DataError):
            run(ps.from_files(tmp_path / "out"))


def test_batches_with_gaps_between_them_are_checked(tmp_path):
    rows = np.random.default_rng(0).integers(0, 255, (100, 20_001), np.uint8)  # Three rows a run.
    ps.from_arrays(rows).write(tmp_path / "out")
    path = tmp_path / "out" / "value-00000.npy"
    for batch_size in (1, 3, 7, 100):
        for row in (0, 50, 99):
            with flipped(path, 128 + row * 20_001 + 77), pytest.raises(DataError, match="rows "):
                run(ps.from_files(tmp_path / "out").batch(batch_size))
        assert len(run(ps.from_files(tmp_path / "out").batch(batch_size))) == -(-100 // batch_size)


def test_large_rows_are_checked_one_by_one(tmp_path):
    rows = np.random.default_rng(0).integers(0, 255, (20, 100_000), np.uint8)
    ps.from_arrays({"x": rows, "y": np.arange(20)}).write(tmp_path / "out")
    with flipped(tmp_path / "out" / "x-00000.npy", 128 + 100_000 * 7 + 5):
        for ds in (
            ps.from_files(tmp_path / "out"),
            ps.from_files(tmp_path / "out").shuffle(seed=0),
        ):
            with pytest.raises(DataError, match=r"rows 7 to 8 "):
                run(ds)
        run(ps.from_files(tmp_path / "out").take(7))  # Not that row.


def test_anyone_can_compute_the_checksums(written):
    manifest = json.loads((written / "manifest.json").read_text())
    done = 0
    for number, shard in enumerate(manifest["shards"]):
        run_rows, first = shard["run_rows"], shard["first_run_rows"]
        assert (done + first) % run_rows == 0
        edges = [0, *range(first, shard["num_rows"], run_rows), shard["num_rows"]]
        pairs = list(itertools.pairwise(edges))
        wide = np.load(written / f"wide-{number:05d}.npy")
        sums = [_native.crc32c(wide[a:b].tobytes()) for a, b in pairs]
        assert np.load(written / f"wide-{number:05d}.npy.crc32c").tolist() == sums
        values = np.load(written / f"text.values-{number:05d}.npy")
        offsets = np.load(written / f"text.offsets-{number:05d}.npy")
        sums = [_native.crc32c(values[offsets[a] : offsets[b]].tobytes()) for a, b in pairs]
        assert np.load(written / f"text.values-{number:05d}.npy.crc32c").tolist() == sums
        sums = [_native.crc32c(offsets[a + 1 if a else 0 : b + 1].tobytes()) for a, b in pairs]
        assert np.load(written / f"text.offsets-{number:05d}.npy.crc32c").tolist() == sums
        done += shard["num_rows"]


def test_checksums_are_no_rows_of_a_glob(tmp_path):
    ps.from_arrays(np.arange(10)).write(tmp_path / "out", shard_rows=4)
    assert len(list((tmp_path / "out").glob("*.npy"))) == 3
    assert len(ps.from_files(str(tmp_path / "out" / "*.npy"))) == 10
    (tmp_path / "out" / "manifest.json").unlink()
    assert len(ps.from_files(tmp_path / "out")) == 10


def test_folders_of_older_versions_are_read_without(written, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(written, old)
    manifest = json.loads((old / "manifest.json").read_text())
    for shard in manifest["shards"]:
        del shard["run_rows"], shard["first_run_rows"]
        for name in [one for one in shard["files"] if one.endswith(".crc32c")]:
            del shard["files"][name]
            (old / name).unlink()
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert_same(run(ps.from_files(old)), run(ps.from_files(written)))
    with flipped(old / "wide-00000.npy", 5000):
        run(ps.from_files(old))


@pytest.mark.parametrize("damage", ["missing", "header", "sums", "short"])
def test_damaged_checksums_are_an_error_that_names_their_file(written, tmp_path, damage):
    folder = tmp_path / "out"
    shutil.copytree(written, folder)
    path = folder / "wide-00001.npy.crc32c"
    content = bytearray(path.read_bytes())
    content[3 if damage == "header" else -1] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-4] if damage == "short" else content)
    with pytest.raises(MissingFileError if damage == "missing" else DataError) as caught:
        run(ps.from_files(folder))
    assert caught.value.file.endswith("wide-00001.npy.crc32c")
    assert "verify=False" in str(caught.value) or damage in ("header", "short")
    run(ps.from_files(folder, verify=False))


@pytest.mark.parametrize(
    "runs", [{"run_rows": -1}, {"first_run_rows": 0}, {"first_run_rows": 1 << 40}]
)
def test_runs_that_can_not_be_are_refused(written, tmp_path, runs):
    shutil.copytree(written, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    manifest["shards"][0] |= runs
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="manifest is damaged"):
        ps.from_files(tmp_path / "out")


def test_fields_of_a_folder_are_read_in_whole_runs_too(written):
    ds = ps.from_files(written, fields="narrow")
    run_rows = json.loads((written / "manifest.json").read_text())["shards"][0]["run_rows"]
    assert block_rows(ds.node) % run_rows == 0
    path = written / "narrow-00002.npy"
    with flipped(path, path.stat().st_size - 200), pytest.raises(DataError, match="narrow-00002"):
        run(ds.shuffle(seed=4))


@pytest.mark.parametrize("nbytes", [4, 400, 60_000, 65_536, 200_000])
def test_a_run_is_a_read_of_rows_of_one_size(nbytes):
    fields = [Field(ArraySpec((nbytes - 1,), "u1")), Field(ArraySpec((), "u1"))]
    assert run_rows_of(fields) == max(1, 65_536 // nbytes)


@pytest.mark.parametrize("estimate", [1, 64, 72, 1000, 70_000])
def test_runs_of_rows_of_unknown_size_are_shorter(estimate):
    rows = run_rows_of([Field(ArraySpec((), str), estimate=estimate)])
    assert max(1, 65_536 // estimate // 16) <= rows <= max(1, 65_536 // estimate // 4)


# -- caches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flow", [False, True])
def test_a_damaged_cache_is_an_error_with_the_cure(tmp_path, flow):
    ds = ps.from_arrays((np.random.default_rng(0).random((3000, 50)), np.arange(3000)))
    if flow:
        ds = ds.filter(lambda x, y: True)
    ds = ds.cache(str(tmp_path / "cache"))
    run(ds)
    for path in data_files(tmp_path / "cache"):
        for way in ("forward", "shuffled"):
            with (
                flipped(path, path.stat().st_size // 2),
                pytest.raises(DataError, match=r"rm -r .*cache") as caught,
            ):
                run(WAYS[way](ds))
            assert caught.value.file.endswith(path.name)
    assert len(run(ds)) == 3000


# -- interrupted writes ----------------------------------------------------------------------------

WRITER = """
import os, signal, sys
import numpy as np
import penstock as ps
def step(x, y):
    if y == 2500 and sys.argv[2] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return x, y
x = np.random.default_rng(0).random((4000, 30))
ps.from_arrays((x, np.arange(4000))).map(step).with_options(threads=1, processes=0).write(sys.argv[1], shard_rows=700)
"""


def test_a_write_that_was_killed_goes_on_with_right_checksums(tmp_path):
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", WRITER, str(out), "killed"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not out.exists()
    subprocess.run([sys.executable, "-c", WRITER, str(out), "on"], check=True)
    assert len(run(ps.from_files(out).shuffle(seed=0))) == 4000
    path = out / "f0-00001.npy"
    path = path if path.exists() else data_files(out)[1]
    with flipped(path, path.stat().st_size // 2), pytest.raises(DataError, match=path.name):
        run(ps.from_files(out))
    listed = {
        n for s in json.loads((out / "manifest.json").read_text())["shards"] for n in s["files"]
    }
    assert listed | {"manifest.json"} == set(os.listdir(out))
