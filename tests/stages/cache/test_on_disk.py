"""cache(path): what it keeps, when it writes, what it refuses, and that nothing can break it half-way."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import INPUTS, ROWS, StageConformance, batches, keep

import penstock as ps
from penstock.io.errors import DataError, DiskFullError, TargetExistsError, WriteError

NUM_ROWS = 500


@pytest.fixture
def fresh(tmp_path):
    """A new path at each call."""
    return lambda: Path(tempfile.mkdtemp(dir=tmp_path)) / "cache"


class TestConformance(StageConformance):
    @pytest.fixture(params=[*INPUTS, "batches", "batched flow"])
    def case(self, request, fresh):
        if request.param in INPUTS:
            source = INPUTS[request.param]
            return Case(lambda: source().cache(fresh()), ROWS, has_length=request.param == "rows")
        source = INPUTS["rows" if request.param == "batches" else "flow"]
        has_length = request.param == "batches"
        return Case(
            lambda: source().batch(5).cache(fresh()), batches(ROWS, 5), has_length=has_length
        )


def nests():
    rng = np.random.default_rng(0)
    x = rng.random((NUM_ROWS, 3)).astype("f4")
    words = ["é" * (i % 5) + str(i) for i in range(NUM_ROWS)]
    ragged = [np.arange(i % 7, dtype="i2") for i in range(NUM_ROWS)]
    return {
        "bare": x,
        "text": (x, words),
        "bytes": {"b": [w.encode() for w in words], "n": np.arange(NUM_ROWS)},
        "ragged": {"r": ragged, "s": [np.ones((i % 3, 2, i % 4)) for i in range(NUM_ROWS)]},
        "nested": {"meta": {"id": np.arange(NUM_ROWS), "name": words}, "x": (x,)},
    }


@pytest.mark.parametrize("name", nests())
@pytest.mark.parametrize("is_flow", [False, True])
def test_every_pass_gives_the_rows_of_the_first(name, is_flow, tmp_path):
    source = ps.from_arrays(nests()[name])
    ds = source.filter(keep) if is_flow else source
    cached = ds.cache(tmp_path / "c")
    expected = run(source)
    assert_same(run(cached), expected)
    assert (tmp_path / "c" / "manifest.json").exists()
    assert_same(run(cached, epoch=1), expected)
    assert_same(run(ps.from_files(tmp_path / "c")), expected)
    assert sorted(map(repr, run(cached.shuffle()))) == sorted(map(repr, expected))


def test_functions_run_once_and_not_again_in_another_dataset(tmp_path):
    calls = []

    def count(x):
        calls.append(1)
        return x * 2

    def made():
        ds = ps.from_arrays(np.arange(100)).map(count, spec=ps.ArraySpec((), "int64"))
        return ds.cache(tmp_path / "c").with_options(processes=0)  # Else they are tried out first.

    ds = made()
    assert [int(x) for x in ds] == list(range(0, 200, 2))
    assert [int(x) for x in ds] == list(range(0, 200, 2))
    assert [int(x) for x in made()] == list(range(0, 200, 2))
    assert len(calls) == 100


def test_it_freezes_the_order_of_epoch_0(tmp_path):
    shuffled = ps.from_arrays(np.arange(50)).shuffle(seed=4)
    first = run(shuffled)
    cached = shuffled.cache(tmp_path / "c")
    assert_same(run(cached, epoch=3), first)
    assert_same(run(cached, epoch=0), first)


def test_a_shuffle_of_it_is_the_same_before_and_after_it_is_whole(tmp_path):
    def made(path):
        return ps.from_arrays(np.arange(3000)).filter(keep).cache(path).shuffle(seed=2).batch(7)

    while_filling = run(made(tmp_path / "a"))
    assert_same(run(made(tmp_path / "a")), while_filling)
    state = None
    with made(tmp_path / "b").stream() as stream:
        for _ in range(11):
            next(stream)
        state = json.loads(json.dumps(stream.state()))
    assert_same(run(made(tmp_path / "a"), state=state), while_filling[11:])
    assert len({int(x) for batch in while_filling for x in batch}) == 3000


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_pass_that_stops_early_leaves_no_whole_cache(is_flow, tmp_path):
    source = ps.from_arrays(np.arange(200_000))
    ds = (source.filter(keep) if is_flow else source).cache(tmp_path / "c").with_options(threads=0)
    with ds.stream() as stream:
        for _ in range(5):
            next(stream)
    assert not (tmp_path / "c" / "manifest.json").exists()
    if (tmp_path / "c").exists():
        with pytest.raises(DataError, match="never finished"):
            ps.from_files(tmp_path / "c")
    assert_same(run(ds.batch(1000)), batches(list(np.arange(200_000)), 1000))
    assert len(ps.from_files(tmp_path / "c")) == 200_000


def test_a_failing_function_leaves_no_whole_cache_and_the_next_pass_goes_on(tmp_path):
    fails = [True]

    def f(x):
        if fails[0] and x == 700:
            raise RuntimeError("not yet")
        return x

    ds = (
        ps.from_arrays(np.arange(1000)).map(f, spec=ps.ArraySpec((), "int64")).cache(tmp_path / "c")
    )
    with pytest.raises(ps.FunctionError, match="not yet"):
        run(ds)
    assert not (tmp_path / "c" / "manifest.json").exists()
    fails[0] = False
    assert_same(run(ds), list(np.arange(1000)))


def test_two_streams_at_once_agree(tmp_path):
    for name, source in (
        ("rows", ps.from_arrays(np.arange(5000))),
        ("flow", ps.from_arrays(np.arange(5000)).filter(keep)),
    ):
        ds = source.cache(tmp_path / name).batch(10)
        with ds.stream() as one, ds.stream() as other:
            for a, b in zip(one, other, strict=True):
                assert (a == b).all()
        assert_same(run(ds), batches(list(np.arange(5000)), 10))


def test_a_shuffle_says_when_a_stream_of_this_process_fills_it(tmp_path):
    ds = ps.from_arrays(np.arange(500_000)).filter(keep).cache(tmp_path / "c")
    with ds.with_options(threads=0).stream() as stream:
        next(stream)
        with pytest.raises(ps.PenstockError, match="another stream of this process"):
            run(ds.shuffle())


# -- what it is made from -------------------------------------------------------------------------


def saved(path, array):
    np.save(path, array)
    return path


def test_a_changed_file_is_an_error_that_names_it(tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(10))
    run(ps.from_files(file).cache(tmp_path / "c"))
    saved(file, np.arange(12))
    with pytest.raises(ps.StaleCacheError, match=r"(?s)x\.npy.*rm -r"):
        ps.from_files(file).cache(tmp_path / "c")
    saved(file, np.arange(10))
    os.utime(file, ns=(1, 1))
    with pytest.raises(ps.StaleCacheError, match=r"x\.npy was written to since"):
        ps.from_files(file).cache(tmp_path / "c")


def test_a_changed_chain_is_an_error_that_names_the_stage(tmp_path):
    source = ps.from_arrays(np.arange(10))
    run(source.shuffle(seed=1).cache(tmp_path / "c"))
    with pytest.raises(ps.StaleCacheError, match=r"shuffle\(seed=1\).*shuffle\(seed=2\)"):
        source.shuffle(seed=2).cache(tmp_path / "c")
    with pytest.raises(ps.StaleCacheError, match="made from something else"):
        ps.from_arrays(np.arange(11)).shuffle(seed=1).cache(tmp_path / "c")


def test_what_was_left_of_other_inputs_is_started_over(tmp_path):
    with ps.from_arrays(np.arange(500_000)).filter(keep).cache(tmp_path / "c").stream() as stream:
        next(stream)
    ds = ps.from_arrays(np.arange(100.0)).filter(keep).cache(tmp_path / "c")
    assert_same(run(ds), list(np.arange(100.0)))


def test_a_folder_or_file_of_the_users_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    for path in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(TargetExistsError):
            ps.from_arrays(np.arange(3)).cache(path)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_a_file_that_was_cut_off_is_an_error(tmp_path):
    ds = ps.from_arrays(np.arange(1000)).cache(tmp_path / "c")
    run(ds)
    file = tmp_path / "c" / "value-00000.npy"
    os.truncate(file, 1000)
    with pytest.raises(DataError, match=r"1000 bytes, and the manifest says 8128"):
        run(ds)


def test_endless_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match="without end"):
        ps.from_arrays(np.arange(3)).repeat().cache(tmp_path / "c")


# -- kills, other processes, full disks -----------------------------------------------------------

FILLER = """
import sys, numpy as np, penstock as ps
kind, path, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
x = np.arange(3_000_000)
ds = ps.from_arrays((x, x.astype("f4") / 2))
if kind == "flow":
    ds = ds.batch(1000).filter(lambda a, b: True).unbatch()
import penstock.shards.sequence as sequence, penstock.stages.cache.filling as filling
sequence.SHARD_NBYTES = filling._SHARD_NBYTES = 2 << 20
ds = ds.cache(path).batch(1000).with_options(threads=threads)
print("ready", flush=True)
total = sum(int(a.sum()) + int(2 * b.astype("f8").sum()) for a, b in ds)
print(total, flush=True)
"""
TOTAL = 2 * (3_000_000 * 2_999_999 // 2)


def start(kind, path, threads=2):
    command = [sys.executable, "-c", FILLER, kind, str(path), str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return abs(int(out.split()[-1]) - TOTAL) < TOTAL * 1e-6


def kill_and_go_on(kind, path, seconds):
    process = start(kind, path)
    process.stdout.readline()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()
    if (path / "manifest.json").exists():
        assert len(ps.from_files(path)) == 3_000_000
    elif path.exists() and (path / ".unfinished.jsonl").exists():
        with pytest.raises(DataError, match="never finished"):
            ps.from_files(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_kill_at_any_moment_leaves_nothing_that_looks_whole(kind, tmp_path):
    rng = random.Random(kind)
    for _ in range(3):
        kill_and_go_on(kind, tmp_path / "c", rng.uniform(0.0, 0.4))
    assert finished(start(kind, tmp_path / "c"))
    x, y = next(iter(ps.from_files(tmp_path / "c").batch(3_000_000)))
    assert (x == np.arange(3_000_000)).all()
    assert (y == np.arange(3_000_000).astype("f4") / 2).all()
    assert not list((tmp_path / "c").glob(".*"))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_fifty_kills_leave_nothing_that_looks_whole(kind, tmp_path):
    rng = random.Random(kind)
    for number in range(25):
        kill_and_go_on(kind, tmp_path / f"c{number % 5}", rng.uniform(0.0, 1.0))
    for number in range(5):
        assert finished(start(kind, tmp_path / f"c{number}"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_two_processes_at_once_both_get_every_row(kind, tmp_path):
    processes = [start(kind, tmp_path / "c") for _ in range(2)]
    ends = [finished(process) for process in processes]  # Each is waited for.
    assert all(ends)
    assert len(ps.from_files(tmp_path / "c")) == 3_000_000


def test_a_limit_on_file_sizes_is_a_clear_error(tmp_path):
    code = (
        "import resource, sys, numpy as np, penstock as ps\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "ds = ps.from_arrays(np.arange(1_000_000)).cache(sys.argv[1])\n"
        "try:\n    list(ds.batch(1000))\n"
        "except OSError as error:\n    print(type(error).__name__, error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "c")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "files may not be larger" in found.stdout
    assert not (tmp_path / "c" / "manifest.json").exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 4 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs takes root; a limit on file sizes is tested instead")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_full_disk_is_a_clear_error_and_no_cache(is_flow, small_disk):
    source = ps.from_arrays(np.arange(1_000_000))
    ds = (source.filter(keep) if is_flow else source).cache(small_disk / "c")
    with pytest.raises(DiskFullError, match="the disk is full"):
        run(ds.batch(1000))
    assert not (small_disk / "c" / "manifest.json").exists()


def test_no_permission_is_a_clear_error(tmp_path):
    if os.geteuid() == 0:
        path = Path("/proc/penstock-cache")
        with pytest.raises(WriteError):
            run(ps.from_arrays(np.arange(3)).cache(path))
        return
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(WriteError, match="no permission"):
        run(ps.from_arrays(np.arange(3)).cache(tmp_path / "locked" / "c"))


def test_a_reader_of_every_third_row_makes_it_whole(tmp_path):
    ds = ps.from_arrays(np.arange(300_000)).cache(tmp_path / "c")
    assert_same(run(ds.shard(0, 3).batch(100_000)), [np.arange(0, 300_000, 3)])
    assert len(ps.from_files(tmp_path / "c")) == 300_000


def test_many_threads_fill_it_in_any_order(tmp_path):
    ds = ps.from_arrays(np.arange(300_000)).cache(tmp_path / "c")
    found = []

    def read(seed):
        found.append(sum(int(b.sum()) for b in ds.shuffle(seed=seed).batch(500)))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [300_000 * 299_999 // 2] * 4
    assert (tmp_path / "c" / "manifest.json").exists()
