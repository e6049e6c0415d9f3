"""Memory is a promise: what a plan says it needs does, and no stream ever takes more than its budget."""

import gc
import os
import re
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.chains import Model, chains, equal

import penstock as ps
from penstock.memory import process_ledger

CGROUP = Path("/sys/fs/cgroup/memory")


@pytest.fixture(autouse=True)
def _nothing_is_taken() -> None:
    _collect()
    assert process_ledger.granted == 0


def _collect() -> None:
    if process_ledger.granted:
        gc.collect()  # An exception may keep the frames it went through, a dataset, and so a cache.


@given(chains(), st.integers(0, 1), st.integers(0, 3))
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=150
)
def test_the_smallest_budget_that_a_plan_names_gives_all_rows(
    chain: tuple[ps.Dataset, Model], epoch: int, threads: int
) -> None:
    _collect()
    ds, model = chain
    assume(0 not in ds.node.cache_nbytes().values())  # A cache of nobody knows how many rows.
    ds = ds.with_options(threads=threads)
    need = ds.explain().need_nbytes
    expected = model.rows(epoch)
    with ds.with_options(memory=need).stream(epoch=epoch) as stream:
        for count, row in enumerate(expected):
            assert equal(next(stream), row), count
        assert next(stream, None) is None
        assert stream.report().peak_nbytes <= need


@given(chains(), st.integers(0, 2))
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=60)
def test_a_budget_below_that_is_refused_before_the_first_batch(
    chain: tuple[ps.Dataset, Model], threads: int
) -> None:
    _collect()
    ds, _ = chain
    ds = ds.with_options(threads=threads)
    need = ds.explain().need_nbytes
    tight = ds.with_options(memory=need - 1)
    assert not tight.explain().fits
    assert "TOO SMALL" in str(tight.explain())
    with pytest.raises(
        ps.BudgetError, match=r"is too small for .* Write with_options\(memory="
    ) as refused:
        tight.stream()
    named = int(re.search(r"memory=(\d+)\)", str(refused.value))[1])
    # A cache of nobody knew how many rows: they were counted.
    if 0 in ds.node.cache_nbytes().values():
        assert named > need
    else:
        assert named == need
    assert isinstance(refused.value, MemoryError)


def test_the_budget_that_a_refused_cache_names_does():
    ds = ps.from_arrays(np.zeros((1000, 1000))).map(lambda x: x + 1).cache().batch(10)
    with pytest.raises(ps.BudgetError, match="too small") as refused:
        ds.with_options(memory="4MB").stream()
    need = int(re.search(r"memory=(\d+)\)", str(refused.value))[1])
    assert need > 8_000_000
    ds = ds.with_options(memory=need)
    for _ in range(2):
        assert sum(len(batch) for batch in ds) == 1000


def test_list_ends_and_is_right_under_a_tiny_budget():
    rows = np.arange(3_000_000).reshape(3000, 1000)
    ds = ps.from_arrays(rows).shuffle().batch(10)
    ds = ds.with_options(memory=ds.explain().need_nbytes)
    with pytest.warns(ps.PenstockWarning, match="batches are still referred to"):
        kept = list(ds)
    assert (np.sort(np.concatenate(kept)[:, 0]) == rows[:, 0]).all()


RAGGED = [np.arange(number * 7 % 900, dtype="i4") for number in range(6000)]
MAKERS = {
    "shards": lambda path: ps.from_files(_written(path)),
    "zarr": lambda path: ps.from_files(_written(path, format="zarr")),
    "parquet": lambda path: ps.from_files(_written(path, format="parquet")),
    "tfrecord": lambda path: ps.from_tfrecord(
        _written(path, format="tfrecord"), {"x": ps.TensorFeature((None,), "int32")}
    ),
    "hdf5": lambda path: ps.from_files(_hdf5(path)),
    "taken": lambda path: ps.from_files(_written(path)).skip(1).take(5990),
    "zipped": lambda path: ps.zip(ps.from_files(_written(path)), ps.from_arrays(np.arange(6000))),
    "repeated": lambda path: ps.from_files(_written(path)).repeat(2),
    "shuffled": lambda path: ps.from_files(_written(path)).shuffle(),
    "cached": lambda path: ps.from_arrays({"x": RAGGED}).filter(len).cache(path / "cache"),
    "text": lambda path: ps.from_arrays({"x": ["x" * len(row) for row in RAGGED]}),
}


def _written(path, **options):
    ps.from_arrays({"x": RAGGED}).write(path / "rows", **options)
    return path / "rows"


def _hdf5(path):
    with h5py.File(path / "rows.h5", "w") as file:
        made = file.create_dataset("x", (len(RAGGED),), h5py.vlen_dtype("i4"), chunks=(100,))
        made[:] = np.array(RAGGED, object)
    return path / "rows.h5"


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.filterwarnings("ignore:.*still referred to:penstock.PenstockWarning")
def test_list_ends_for_rows_of_any_length_too(tmp_path, make, threads):
    ds = make(tmp_path).with_options(threads=threads)
    ds = ds.with_options(memory=ds.explain().need_nbytes + (1 << 20))  # They have 10 MB and more.
    kept = list(ds.stream(epoch=0))
    with ds.stream(epoch=0) as again:  # Nothing was used for other rows meanwhile.
        assert all(equal(one, other) for one, other in zip(kept, again, strict=True))


def test_two_streams_share_one_ledger():
    ds = ps.from_arrays(np.zeros((4000, 1000))).batch(10)
    budget = 32_000_000
    both = ds.with_options(memory=budget)
    with both.stream() as first, both.stream() as second:
        assert process_ledger.granted <= budget
        for a, b in zip(first, second, strict=True):
            assert a.shape == b.shape
            peak = first.report().peak_nbytes + second.report().peak_nbytes
            assert peak <= budget
    assert process_ledger.granted == 0


def test_a_stream_that_finds_the_budget_taken_says_by_whom():
    ds = ps.from_arrays(np.zeros((4000, 1000))).batch(10)
    ds = ds.with_options(memory=ds.explain().need_nbytes)
    with ds.stream() as first:
        next(first)
        with pytest.raises(ps.BudgetError, match=r"are taken \(batch\(10\) "):
            ds.stream()
    with ds.stream() as second:
        next(second)


def test_a_refused_stream_leaves_nothing_behind():
    ds = ps.from_arrays(np.zeros((10, 1 << 20))).batch(10).with_options(memory=1000)
    for _ in range(3):
        with pytest.raises(ps.BudgetError):
            iter(ds)
    assert process_ledger.granted == 0


def test_the_buffers_of_one_stream_serve_the_next_and_give_way_to_another():
    ds = ps.from_arrays(np.zeros((2000, 1000))).batch(100)
    list(map(len, ds))
    assert process_ledger.reserve_nbytes > 0
    tight = ps.from_arrays(np.zeros((100, 10))).with_options(memory=100_000)
    assert len(list(map(len, tight))) == 100
    assert process_ledger.reserve_nbytes + process_ledger.granted <= 100_000


UNEVEN_TEXTS = [b"x" * (n % 50) for n in range(2000)]
UNEVEN_TEXTS[777] = b"y" * 2_000_000
UNEVEN_ARRAYS = [np.zeros(n % 50, np.float32) for n in range(2000)]
UNEVEN_ARRAYS[777] = np.zeros(100_000, np.float32)


@pytest.mark.parametrize(
    "ds",
    [
        ps.from_arrays(UNEVEN_TEXTS),
        ps.from_arrays([text.decode() + "\u00e4" for text in UNEVEN_TEXTS]).shuffle(seed=0),
        ps.from_arrays(UNEVEN_TEXTS).shuffle(seed=0).batch(32),
        ps.from_arrays(UNEVEN_TEXTS).batch(4).batch(3),
        ps.from_arrays(UNEVEN_ARRAYS).shuffle(seed=1),
        ps.from_arrays(UNEVEN_ARRAYS).padded_batch(8, lengths=True),
        ps.from_arrays(UNEVEN_ARRAYS).take(900).padded_batch(8).repeat(3),
    ],
    ids=lambda ds: ds.node.describe(),
)
def test_a_plan_for_rows_of_very_uneven_length_is_refused_at_once_or_runs_to_its_end(ds):
    refused = 0
    for memory in [1 << power for power in range(16, 26)]:
        tight = ds.with_options(memory=memory)
        try:
            stream = tight.stream()
        except ps.BudgetError:
            refused += 1
            continue
        with stream:
            count = sum(1 for _ in stream)
            assert stream.report().peak_nbytes <= memory
        assert count == sum(1 for _ in ds.with_options(memory="1GB"))
    assert 0 < refused < 10
    least = ds.explain().need_nbytes
    with ds.with_options(memory=least).stream() as stream:
        assert sum(1 for _ in stream) == count


def test_rows_longer_than_planned_are_an_error_that_says_so_and_not_an_overrun():
    def texts():
        yield from ["a"] * 1000
        yield "x" * 3_000_000

    ds = ps.from_generator(texts, ps.ArraySpec((), str))
    ds = ds.with_options(memory=ds.explain().need_nbytes, threads=0)
    with pytest.raises(
        ps.BudgetError, match=r"its rows are longer than those it was planned for. .*memory=(\d+)"
    ):
        sum(map(len, ds))
    assert sum(map(len, ds.with_options(memory="16MB"))) == 3_001_000


def test_what_a_stream_holds_is_what_the_report_says():
    ds = ps.from_arrays(np.zeros((8000, 1000))).batch(32).with_options(memory="16MB")
    with ds.stream() as stream:
        for _ in stream:
            pass
        report = stream.report()
    assert 0 < report.peak_nbytes <= 16_000_000
    assert report.budget_nbytes == 16_000_000


def measured(code: str, *arguments: Any, limit: int | None = None) -> dict[str, int]:
    """Run a script in a process of its own, if need be in a memory cgroup; return what it prints."""
    script = textwrap.dedent(code)
    group = None
    if limit is not None:
        group = CGROUP / f"penstock-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / "memory.limit_in_bytes").write_text(str(limit))
        except OSError as error:
            pytest.skip(
                f"no memory cgroup can be made here ({error}); the measured peak is tested instead"
            )
    try:
        command = [sys.executable, "-c", script, str(group or ""), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
        return dict(zip(("peak", "anonymous", "rows"), map(int, done.stdout.split()), strict=True))
    finally:
        if group is not None:
            for _ in range(200):
                try:
                    group.rmdir()
                    break
                except OSError:  # The kernel lets go of an ended process a moment after the fact.
                    time.sleep(0.02)


STREAM_A_LARGE_ARRAY = """
    import sys, os
    group, path, num_rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if group:
        open(group + "/cgroup.procs", "w").write(str(os.getpid()))
    import numpy as np, penstock as ps

    def anonymous():
        for line in open("/proc/self/status"):
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024

    class Lazy:
        shape, dtype = (num_rows, 1024), np.dtype("f4")
        def __getitem__(self, key):
            return np.full((key.stop - key.start, 1024), key.start, "f4")

    array = np.memmap(path, "f4", "r", shape=(num_rows, 1024)) if path else Lazy()
    baseline = anonymous()
    ds = ps.from_arrays(array).shuffle(seed=1, window="32MB").batch(64)
    ds = ds.with_options(memory="64MB", threads=1)
    most, rows = 0, 0
    with ds.stream() as stream:
        for number, batch in enumerate(stream):
            rows += len(batch)
            if number % 16 == 0:
                most = max(most, anonymous())
        print(stream.report().peak_nbytes, most - baseline, rows)
"""


@pytest.mark.slow
def test_an_array_larger_than_the_cgroup_is_streamed_within_the_budget(tmp_path: Path):
    num_rows = 1_500_000_000 // 4096
    path = tmp_path / "big.f4"
    with path.open("wb") as file:
        # Sparse: it takes no disk, but pages of cache when it is read.
        file.truncate(num_rows * 4096)
    found = measured(STREAM_A_LARGE_ARRAY, path, num_rows, limit=300_000_000)
    assert found["rows"] == num_rows
    assert found["peak"] <= 64_000_000
    assert found["anonymous"] <= 64_000_000 + 150_000_000


def test_a_lazy_array_is_streamed_within_the_budget_as_measured():
    num_rows = 60_000
    found = measured(
        STREAM_A_LARGE_ARRAY.replace('.shuffle(seed=1, window="32MB")', ""), "", num_rows
    )
    assert found["rows"] == num_rows
    assert found["peak"] <= 64_000_000
    assert found["anonymous"] <= 64_000_000 + 150_000_000


def test_keeping_a_row_of_each_block_is_reported_as_held():
    ds = ps.from_arrays(np.zeros((40_000, 100))).batch(100)
    with ds.with_options(memory="64MB").stream() as stream:
        kept = [batch[0] for batch in stream]
        report = stream.report()
    assert len(kept) == 400
    assert report.held_nbytes > 16_000_000
    assert "held by the consumer" in str(report)


def test_the_warning_for_batches_that_pile_up_is_given_once_at_the_line_of_the_loop():
    ds = ps.from_arrays(np.zeros((4000, 1000))).batch(10)
    ds = ds.with_options(memory=ds.explain().need_nbytes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = [batch for batch in ds if len(batch)]
    ours = [warning for warning in caught if warning.category is ps.PenstockWarning]
    assert len(kept) == 400
    assert len(ours) == 1
    assert ours[0].filename == __file__


def test_a_cache_in_a_cycle_of_garbage_does_not_keep_its_memory():
    ds = ps.from_arrays(np.zeros((1000, 1000)))
    gc.disable()
    try:
        for _ in range(5):
            cached = ds.cache().with_options(memory="12MB")  # Not enough for two.
            cycle: list[Any] = [cached]
            cycle.append(cycle)
            assert sum(1 for _ in cached) == 1000
            del cached, cycle
    finally:
        gc.enable()
