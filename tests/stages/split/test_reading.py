"""Rows with others between them: long reads, whatever is picked."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import run

import penstock as ps
from penstock.core.rows import Rows, plain_context
from penstock.sources.hdf5.arrays import Hdf5Chunks
from penstock.stages.split.reading import most_rows, read_picked


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> ps.Dataset:
    path = tmp_path_factory.mktemp("reading") / "x.npy"
    np.save(path, np.arange(20_000 * 100, dtype="f4").reshape(20_000, 100))
    return ps.from_files(path)


@given(st.data())
def test_any_rows_are_read_to_their_places(stored: ps.Dataset, data: Any) -> None:
    node = stored.node
    assert isinstance(node, Rows)
    rows: list[int] = []
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, 19_999))
        step = data.draw(st.sampled_from([1, 2, 9, 200, 5000]))
        rows += list(range(start, 20_000, step))[: data.draw(st.integers(1, 40))]
    block = plain_context().block(node, len(rows))
    read_picked(node, np.array(rows), block, plain_context())
    found = block.finish().columns[0].rows[:, 0]  # type: ignore[union-attr]
    assert found.tolist() == [row * 100.0 for row in rows]


def test_what_is_read_at_once_is_bounded(stored: ps.Dataset):
    node = stored.node
    assert isinstance(node, Rows)
    assert most_rows(node, 1) == 4
    assert most_rows(node, 10**6) * node.row_nbytes <= 4 << 20


@pytest.mark.parametrize("is_shuffled", [False, True])
def test_a_part_of_chunks_decodes_each_of_them_once(
    tmp_path: Path,
    is_shuffled: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((40_000, 50), "f4"), chunks=(1000, 50))
    ds = ps.from_files(tmp_path / "x.h5", fields="x")
    decoded: list[int] = []

    def counting(plain: Any) -> Any:
        def counted(self: Any, *arguments: Any) -> Any:
            start, stop = arguments[-3:-1]
            decoded.append(-(-stop // 1000) - start // 1000)
            return plain(self, *arguments)

        return counted

    for name in ("decode", "decode_into"):
        monkeypatch.setattr(Hdf5Chunks, name, counting(getattr(Hdf5Chunks, name)))
    for part in ds.split(0.9):
        decoded.clear()
        made = part.shuffle(window=1 << 22) if is_shuffled else part
        assert len(run(made.with_options(threads=0))) == len(part)
        assert 40 <= sum(decoded) <= 44


def test_a_part_in_order_takes_few_reads_of_its_file(stored: ps.Dataset):
    reads: list[int] = []

    class Counting(type(stored.node)):  # type: ignore[misc]
        def fill_runs(self, runs: Any, out: Any, context: Any) -> None:
            reads.append(len(runs))
            super().fill_runs(runs, out, context)

    node = Counting(
        stored.node.parts, stored.node.locations, stored.node.names, stored.node.structure
    )  # type: ignore[attr-defined]
    ds = ps.Dataset(node, stored.options)
    for part in ds.split(0.9):
        reads.clear()
        assert len(run(part)) == len(part)
        assert sum(reads) < 100
        reads.clear()
        assert len(run(part.shuffle(window=1 << 20))) == len(part)
        # A random read a block of 64 KB, and the ends of pieces.
        assert sum(reads) < 3 * 20_000 * 400 // (1 << 16)
