"""cache(path) while it is filled: by any threads, streams and processes, until it is killed or the disk is full."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import batches, keep

import penstock as ps
from penstock.errors import DataError, DiskFullError, WriteError


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


def test_a_reader_of_every_third_row_makes_it_whole(tmp_path):
    ds = ps.from_arrays(np.arange(300_000)).cache(tmp_path / "c")
    assert_same(run(ds.shard(3, 0).batch(100_000)), [np.arange(0, 300_000, 3)])
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
