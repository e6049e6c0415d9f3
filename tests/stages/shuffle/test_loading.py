"""Windows of rows in memory: loaded in pieces, by any threads, whole before a row of them is used."""

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.blocks import Block
from penstock.core.columns import Fixed, Text
from penstock.memory import Pool
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


@pytest.mark.parametrize("threads", [0, 1, 4])
@pytest.mark.parametrize("kind", ["rows", "texts", "exact"])
@pytest.mark.parametrize("fault", ["copy", "lease", "finish"])
def test_an_error_reaches_the_consumer_and_close_returns_while_the_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, kind: str, fault: str
) -> None:
    x = np.arange(60_000, dtype="f4").reshape(3000, 20)
    if kind == "texts":
        ps.from_arrays(["ab" * (row % 90) for row in range(3000)]).write(tmp_path / "rows")
        ds = ps.from_files(tmp_path / "rows").shuffle(seed=0, window=20_000)
    else:
        np.save(tmp_path / "x.npy", x)
        ds = ps.from_files(tmp_path / "x.npy").shuffle(seed=0, exact=kind == "exact", window=40_000)
    ds = ds.batch(7).with_options(threads=threads, memory="400MB")
    where: dict[str, list[tuple[type, str]]] = {
        "copy": [(Fixed, "copy_from"), (Text, "take")],
        "lease": [(Pool, "lease")],
        "finish": [(Block, "finish")],
    }
    for count in (0, 1, 2, 3, 5, 8, 13):
        calls = itertools.count()
        with monkeypatch.context() as patch:
            for owner, name in where[fault]:
                patch.setattr(owner, name, _failing(getattr(owner, name), calls, count))
            stream = ds.stream()
            try:
                list(stream)
            except MemoryError as error:
                kept = error  # It refers to the window that it was raised in.
                assert "no memory here" in str(kept)
            stream.close()
        assert not [one for one in threading.enumerate() if one.name.startswith("penstock")]


def _failing(function: Any, calls: "itertools.count[int]", number: int) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        if next(calls) == number:
            raise MemoryError("no memory here")
        return function(*arguments, **options)

    return call
