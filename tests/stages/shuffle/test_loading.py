"""Windows of rows in memory: loaded in pieces, by any threads, whole before a row of them is used."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.stages.shuffle import on_storage as window


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("piece", [1, 5_000, 1 << 22])
def test_rows_of_many_files_come_in_the_very_order_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, piece: int
) -> None:
    monkeypatch.setattr(window, "_PIECE_NBYTES", piece)
    x = np.random.default_rng(0).random((9000, 40), np.float32)
    y = np.arange(9000)
    edges = np.cumsum([0, 1000, 37, 5000, 1, 2962])
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        np.savez(tmp_path / f"{number}.npz", x=x[start:stop], y=y[start:stop])
    ds = ps.from_files(tmp_path / "*.npz", fields=("x", "y")).shuffle(seed=2, window="300KB")
    node = ds.node
    assert isinstance(node, window.WindowedRows)
    assert node.order(0).num_windows > 3
    for epoch in (0, 1):
        rows = node.order(epoch).rows(np.arange(9000))
        found = list(ds.batch(64).with_options(threads=threads).stream(epoch=epoch))
        np.testing.assert_array_equal(np.concatenate([b[1] for b in found]), y[rows])
        np.testing.assert_array_equal(np.concatenate([b[0] for b in found]), x[rows])
