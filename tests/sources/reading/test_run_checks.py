"""Runs of rows and their checksums: which reads are checked, and that none grows for it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import run

import penstock as ps
from penstock.core.rows import plain_context
from penstock.errors import DataError
from penstock.io.local.reader import LocalReader
from penstock.sources.reading.run_checks import RunGrid


@given(st.integers(1, 60), st.integers(1, 20), st.data())
def test_runs_are_a_partition_of_the_rows(num_rows, run_rows, data):
    grid = RunGrid(num_rows, run_rows, data.draw(st.integers(1, run_rows)))
    bounds = [grid.bounds(number) for number in range(grid.num_runs)]
    assert [row for start, stop in bounds for row in range(start, stop)] == list(range(num_rows))
    assert bounds[0][1] == min(num_rows, grid.first_rows)
    start = data.draw(st.integers(0, num_rows - 1))
    stop = data.draw(st.integers(start + 1, num_rows))
    touched = [one for one in bounds if one[0] < stop and start < one[1]]
    assert list(grid.cuts(start, stop)) == touched
    assert grid.edges(start, stop).tolist() == [start, *(one[0] for one in touched[1:]), stop]
    assert all(
        grid.run_of(row) == number for number, one in enumerate(bounds) for row in range(*one)
    )


@given(st.integers(1, 60), st.integers(1, 20), st.data())
def test_runs_cut_stretches_into_pieces(num_rows, run_rows, data):
    grid = RunGrid(num_rows, run_rows, data.draw(st.integers(1, run_rows)))
    spans = st.tuples(st.integers(0, num_rows - 1), st.integers(1, num_rows))
    spans = [(row, min(length, num_rows - row)) for row, length in data.draw(st.lists(spans))]
    stretches = [*spans, (0, num_rows)]
    starts, stops, runs = grid.pieces(stretches)
    wanted = []
    for row, length in stretches:
        rows = [row + k for k in range(length)]
        wanted += [
            (run, min(some), max(some) + 1)
            for run in range(grid.num_runs)
            if (some := [one for one in rows if grid.run_of(one) == run])
        ]
    assert list(zip(runs.tolist(), starts.tolist(), stops.tolist(), strict=True)) == wanted
    is_whole = [(start, stop) == grid.bounds(run) for run, start, stop in wanted]
    assert grid.are_whole(starts, stops, runs).tolist() == is_whole


@pytest.fixture
def ranges(monkeypatch):
    """All ranges of data files that are read."""
    found = []
    read_ranges = LocalReader.read_ranges  # All other reads go through it.

    def spy_ranges(self, some, cells=None):
        if self.location.name.endswith(".npy"):
            found.extend((one.offset, memoryview(one.buffer).nbytes) for one in some)
        return read_ranges(self, some, cells)

    monkeypatch.setattr(LocalReader, "read_ranges", spy_ranges)
    return found


@pytest.mark.parametrize(
    "runs",
    [
        [(0, 5000)],
        [(1, 4998)],
        [(17, 3)],
        [(1690, 20), (4000, 1)],
        [(start, 205) for start in range(0, 4700, 820)],
        [(start, 1) for start in range(0, 5000, 7)],
    ],
)
def test_no_read_grows_to_be_checked(tmp_path, ranges, runs):
    nest = {
        "x": np.random.default_rng(0).random((5000, 40)),
        "s": ["a" * (k % 9) for k in range(5000)],
    }
    ps.from_arrays(nest).write(tmp_path / "out", shard_rows=1700)
    seen = []
    for verify in (True, False):
        node = ps.from_files(tmp_path / "out", verify=verify).node
        context = replace(plain_context(), budget=1 << 30)
        ranges.clear()
        block = context.block(node, sum(length for _, length in runs))
        node.read_runs(runs, block, context)
        seen.append(list(ranges))
        context.resources.close()
    assert seen[0] == seen[1]
    assert seen[0]


def damaged(folder, row, width):
    path = folder / "value-00000.npy"
    content = bytearray(path.read_bytes())
    content[128 + row * width] ^= 1
    path.write_bytes(content)


def test_a_part_of_a_run_is_not_checked_and_a_whole_one_is(tmp_path):
    ps.from_arrays(np.arange(40_000, dtype=np.int64)).write(tmp_path / "out")  # 8,192 rows a run.
    damaged(tmp_path / "out", 20_000, 8)
    ds = ps.from_files(tmp_path / "out")
    run(ds.skip(16_385).take(8_000))
    run(ds.take(16_384))
    with pytest.raises(DataError, match="rows 16384 to 24576"):
        run(ds.skip(16_384).take(8_192))


def test_reads_that_go_on_from_each_other_are_checked_together(tmp_path):
    ps.from_arrays(np.arange(40_000, dtype=np.int64)).write(tmp_path / "out")
    damaged(tmp_path / "out", 9_000, 8)
    # Blocks far smaller than a run: none of them has all of it.
    with (
        ps.from_files(tmp_path / "out").batch(100).with_options(memory="8MB").stream() as stream,
        pytest.raises(DataError, match="rows 8192 to 16384"),
    ):
        for _ in stream:
            pass


def test_what_is_checked_counts_as_memory(tmp_path):
    ps.from_arrays({"x": np.zeros((1000, 1 << 14), np.float32), "y": np.arange(1000)}).write(
        tmp_path / "out"
    )
    sizes = [
        ps.from_files(tmp_path / "out", verify=verify).node.retained_nbytes(0)
        for verify in (True, False)
    ]
    assert sizes == [2 * 4 * 1000, 0]


def test_rows_behind_a_url_are_checked(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    ps.from_arrays(np.arange(40_000, dtype=np.int64)).write(tmp_path / "out")
    damaged(tmp_path / "out", 20_000, 8)
    files = fsspec.filesystem("memory")
    for path in (tmp_path / "out").iterdir():
        files.pipe_file(f"/checked/{path.name}", path.read_bytes())
    try:
        for ds in (lambda ds: ds, lambda ds: ds.shuffle(seed=1, window=200_000)):
            with pytest.raises(DataError, match="rows 16384 to 24576") as caught:
                run(ds(ps.from_files("memory://checked/manifest.json")))
            assert caught.value.file == "memory://checked/value-00000.npy"
        run(ps.from_files("memory://checked/manifest.json", verify=False))
    finally:
        files.rm("/checked", recursive=True)
