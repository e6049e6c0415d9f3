"""shuffle(exact=True) of files: the in-memory order, by way of scratch files."""

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.stages.shuffle import scatter
from penstock.stages.shuffle import stage as shuffle


@pytest.fixture
def small_windows(monkeypatch):
    """Windows and buckets so small that a little data makes many of them."""
    monkeypatch.setattr(shuffle, "WINDOW_NBYTES", 1 << 16)
    monkeypatch.setattr(scatter, "_BUCKET_NBYTES", 1 << 16)
    monkeypatch.setattr(scatter, "_CHUNK_NBYTES", 1 << 15)
    monkeypatch.setattr(
        scatter, "_PIECE_NBYTES", 10_000
    )  # A bucket is several pieces, the last one shorter.


@pytest.fixture
def data(tmp_path):
    x = np.random.default_rng(0).random((5003, 10)).astype("float32")
    y = np.arange(5003)
    np.savez(tmp_path / "a.npz", x=x[:2000], y=y[:2000])
    np.savez(tmp_path / "b.npz", x=x[2000:], y=y[2000:])
    return ps.from_files(tmp_path / "*.npz", fields=("x", "y")), ps.from_arrays((x, y))


def assert_equal_streams(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert (a[0] == b[0]).all()
        assert (a[1] == b[1]).all()


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_the_order_is_that_of_the_same_data_in_memory(small_windows, data, threads):
    files, arrays = data
    exact = files.shuffle(seed=7, exact=True).batch(32).with_options(threads=threads)
    assert "exact, by scatter" in str(exact.explain())
    for epoch in (0, 3):
        assert_equal_streams(
            exact.stream(epoch=epoch), arrays.shuffle(seed=7).batch(32).stream(epoch=epoch)
        )


def test_it_resumes_at_any_batch(small_windows, data):
    files, arrays = data
    exact = files.shuffle(seed=1, exact=True).batch(100)
    expected = list(arrays.shuffle(seed=1).batch(100).stream(epoch=1))
    with exact.stream(epoch=1) as stream:
        for done in range(1, 51):
            next(stream)
            if done % 17 == 0:
                assert_equal_streams(exact.stream(state=stream.state()), expected[done:])


def test_it_runs_in_the_smallest_budget_that_explain_names(small_windows, data):
    files, arrays = data
    exact = files.shuffle(seed=1, exact=True).batch(64)
    least = exact.explain().need_nbytes
    with exact.with_options(memory=least).stream() as stream:
        assert_equal_streams(stream, arrays.shuffle(seed=1).batch(64).stream())
        assert stream.report().peak_nbytes <= least
    with pytest.raises(ps.BudgetError, match="too small"):
        exact.with_options(memory=least // 2).stream()


def test_data_that_fits_a_window_needs_no_scratch(data):
    files, arrays = data
    whole = files.shuffle(seed=2, exact=True).batch(64)
    assert "scatter" not in str(whole.explain())
    assert_equal_streams(whole, arrays.shuffle(seed=2).batch(64))


def test_scratch_goes_to_the_folder_that_is_named_and_has_no_name_there(
    small_windows, data, tmp_path
):
    files, _ = data
    folder = tmp_path / "scratch"
    folder.mkdir()
    exact = files.shuffle(exact=True).batch(32).with_options(scratch=folder)
    with exact.stream() as stream:
        next(stream)
        open_there = [
            target
            for fd in os.listdir("/proc/self/fd")
            if (target := _target(fd)).startswith(str(folder))
        ]
        assert len(set(open_there)) == 1
        assert list(folder.iterdir()) == []
    with pytest.raises(ValueError, match="scratch must be a folder that exists"):
        exact.with_options(scratch=tmp_path / "nowhere")


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def test_a_full_disk_is_a_clear_error_before_anything_is_written(small_windows, data, monkeypatch):
    files, _ = data
    monkeypatch.setattr("shutil.disk_usage", lambda folder: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match="bytes are needed here, and 100 are free"):
        list(files.shuffle(exact=True).batch(32))


def test_a_killed_run_leaves_nothing_on_the_disk(small_windows, data, tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    script = f"""
import os, signal
import penstock as ps
from penstock.stages.shuffle import scatter
from penstock.stages.shuffle import stage as shuffle
shuffle.WINDOW_NBYTES = scatter._BUCKET_NBYTES = 1 << 16
ds = ps.from_files({str(tmp_path)!r} + "/*.npz", fields=("x", "y")).shuffle(exact=True).batch(8)
stream = ds.with_options(scratch={str(folder)!r}).stream()
next(stream)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("threads", [0, 1, 2, 8])
@pytest.mark.parametrize("size", [32, 3000])
def test_passes_follow_each_other_though_a_block_may_hold_several(
    small_windows, data, threads, size
):
    files, arrays = data
    chains = [one.shuffle(seed=7, exact=exact) for one, exact in ((files, True), (arrays, False))]
    for make in (
        lambda one: one.repeat(7),
        lambda one: ps.concatenate(one.repeat(2), one, one.repeat(3)),  # It goes back to pass 0.
        lambda one: one.repeat(2).repeat(3).skip(4000),
    ):
        exact, wanted = (make(one).batch(size) for one in chains)
        for epoch in (0, 2):
            with exact.with_options(threads=threads).stream(epoch=epoch) as stream:
                assert_equal_streams(stream, wanted.stream(epoch=epoch))


# Whatever stands before the shuffle: batches with gaps between them, and cut short, here and there; fields of no bytes.
BEFORE = {
    "batches": lambda one: one.batch(7, drop_remainder=True),
    "the last batch is short": lambda one: one.batch(7),
    "batches of batches": lambda one: one.batch(3, drop_remainder=True).batch(4),
    "short batches within": lambda one: ps.concatenate(one.take(100).batch(7), one.batch(7)),
    "windows": lambda one: one.window(5, shift=2).map(lambda x, y: (x, y)),
    "one column": lambda one: one.map(lambda x, y: y).batch(9),
    "one column, with gaps": lambda one: one.map(lambda x, y: y).batch(9, drop_remainder=True),
    "no bytes": lambda one: one.map(lambda x, y: (x[:0], y)),
    "numbered, twice": lambda one: one.enumerate().repeat(2),
    "a part": lambda one: one.skip(11).shard(3, 1),
}


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("chain", BEFORE.values(), ids=BEFORE)
def test_whatever_stands_before_it_comes_in_the_order_of_memory(
    small_windows, monkeypatch, data, threads, chain
):
    for name in ("_BUCKET_NBYTES", "_CHUNK_NBYTES", "_PIECE_NBYTES"):
        monkeypatch.setattr(scatter, name, getattr(scatter, name) // 8)
    monkeypatch.setattr(shuffle, "WINDOW_NBYTES", 1 << 12)
    files, arrays = data
    exact = chain(files).shuffle(seed=3, exact=True).with_options(threads=threads)
    assert "exact, by scatter" in str(exact.explain())
    expected = list(chain(arrays).shuffle(seed=3).stream(epoch=1))
    found = list(exact.stream(epoch=1))
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert leaves_of(mine) == leaves_of(theirs)
    ranks = [chain(files).shuffle(seed=3, exact=True).shard(3, rank) for rank in range(3)]
    for rank, one in enumerate(ranks):
        parts = list(one.stream(epoch=1))
        assert [leaves_of(row) for row in parts] == [leaves_of(row) for row in expected[rank::3]]


def leaves_of(row):
    leaves = row if isinstance(row, tuple) else (row,)
    return [
        leaves_of(leaf) if isinstance(leaf, tuple) else (leaf.shape, leaf.dtype, leaf.tobytes())
        for leaf in leaves
    ]


@pytest.mark.parametrize("many", [1, 2, 100])
def test_large_data_has_larger_buckets_and_chunks_in_the_same_order(
    small_windows, monkeypatch, data, many
):
    monkeypatch.setattr(scatter, "_BUCKET_NBYTES", 1 << 12)
    monkeypatch.setattr(scatter, "_CHUNK_NBYTES", 1 << 12)
    monkeypatch.setattr(scatter, "_MOST_BUCKETS", 3)
    monkeypatch.setattr(scatter, "_MANY_BUCKETS", many)
    files, arrays = data
    exact = files.shuffle(seed=1, exact=True).batch(64)
    assert " 4 buckets" in str(exact.explain())
    least = exact.explain().need_nbytes
    with exact.with_options(memory=least).stream() as stream:
        assert_equal_streams(stream, arrays.shuffle(seed=1).batch(64).stream())
        assert stream.report().peak_nbytes <= least


@pytest.mark.parametrize("num_rows", [1637, 1638, 1639, 1700])
@pytest.mark.parametrize("kind", ["npy", "h5"])
def test_data_about_as_large_as_a_window_has_the_order_of_memory_too(
    small_windows, tmp_path, num_rows, kind
):
    # A window of 64 KB holds 1,638 rows; whole blocks, or chunks, of them are more.
    x = np.random.default_rng(0).random((num_rows, 10)).astype("float32")
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, x)
    else:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=x, chunks=(1000, 10))
    files = ps.from_files(path) if kind == "npy" else ps.from_files(path, fields="x")
    exact = files.shuffle(seed=5, exact=True)
    for epoch in (0, 2):
        found = list(exact.batch(100).stream(epoch=epoch))
        expected = list(ps.from_arrays(x).shuffle(seed=5).batch(100).stream(epoch=epoch))
        assert all((a == b).all() for a, b in zip(found, expected, strict=True))
    least = exact.explain().need_nbytes
    with exact.with_options(memory=least).stream() as stream:
        assert sum(1 for _ in stream) == num_rows
        assert stream.report().peak_nbytes <= least


def test_ragged_rows_just_below_a_window_are_mixed_exactly(small_windows, tmp_path):
    rows = [np.arange(number, number + number % 7) for number in range(1300)]
    ps.from_arrays(rows).write(tmp_path / "rows")
    exact = ps.from_files(tmp_path / "rows").shuffle(seed=5, exact=True, window="64KB")
    expected = ps.from_arrays(rows).shuffle(seed=5)
    assert all((a == b).all() for a, b in zip(exact, expected, strict=True))
