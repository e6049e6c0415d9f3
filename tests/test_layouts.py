"""What must hold for every layout in which people have their rows, of every dtype, shuffled or not."""

import re
import shutil
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.layouts import FORWARD, LAYOUTS, expected

import penstock as ps
from penstock.shards.folder import ShardFolder
from penstock.sources.reading.read_blocks import block_rows

CASES = [(name, dtype) for name, (_, dtypes) in LAYOUTS.items() for dtype in dtypes]
SHUFFLES = {
    "in order": lambda ds: ds,
    "shuffled": lambda ds: ds.shuffle(seed=1, window="20KB"),
    "shuffled exactly": lambda ds: ds.shuffle(seed=1, exact=True, window="20KB"),
    "shuffled and sharded": lambda ds: ps.concatenate(
        *(ds.shuffle(seed=1, window="20KB").shard(2, index) for index in (0, 1))
    ),
}
"""Windows are tiny, so that there are many of them."""


def rows_of(ds: ps.Dataset, batch_size: int = 100) -> tuple[np.ndarray, np.ndarray]:
    xs, ys = zip(*ds.batch(batch_size), strict=True)
    if isinstance(xs[0], tuple):  # The columns of a table.
        xs = [np.stack(x, axis=1) for x in xs]
    x = np.empty((sum(map(len, xs)), *xs[0].shape[1:]), xs[0].dtype)  # concatenate() swaps bytes.
    return np.concatenate(xs, out=x), np.concatenate(ys)


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_labels_stay_with_their_rows_and_every_row_comes_once(
    name: str, dtype: str, tmp_path: Path
) -> None:
    x, y = expected(3000, 6, dtype)
    ds = LAYOUTS[name][0](tmp_path, x, y)
    for how, shuffled in SHUFFLES.items():
        if how == "shuffled exactly" and name in FORWARD:
            continue  # It needs random access.
        found_x, found_y = rows_of(shuffled(ds))
        assert sorted(found_y.tolist()) == y.tolist(), how
        assert (found_y.tolist() == y.tolist()) == (how == "in order")
        assert found_x.dtype == x.dtype
        assert found_x.tobytes() == x[found_y].tobytes(), how


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_changed_input_is_never_taken_for_the_old_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other values of the same shape: a cache of the old ones is refused, and a write starts over."""
    (tmp_path / "data").mkdir()
    x, y = expected(500, 6, "f4")
    ds = LAYOUTS[name][0](tmp_path / "data", x, y)
    assert rows_of(ds.cache(tmp_path / "kept"))[0].tobytes() == x.tobytes()
    leave_shards(ds, tmp_path / "written", monkeypatch)
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").mkdir()
    changed = LAYOUTS[name][0](tmp_path / "data", x + 1, y)
    with pytest.raises(ps.StaleCacheError, match="kept"):
        rows_of(changed.cache(tmp_path / "kept"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ps.PenstockWarning)  # That it starts over.
        changed.write(tmp_path / "written", shard_rows=100)
    again = ps.from_files(tmp_path / "written")
    assert rows_of(again)[0].tobytes() == (x + 1).tobytes()


def leave_shards(ds: ps.Dataset, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a dataset, and fail after three shards."""
    record = ShardFolder.record

    def fail(self: ShardFolder, shard: Any, cursor: Any = None) -> None:
        if shard.number == 3:
            raise OSError("the disk is gone")
        record(self, shard, cursor)

    with monkeypatch.context() as patch:
        patch.setattr(ShardFolder, "record", fail)
        with pytest.raises(OSError, match="the disk is gone"):
            ds.write(path, shard_rows=100)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in FORWARD])
def test_batches_of_sorted_data_are_mixed_to_the_end_of_an_epoch(name: str, tmp_path: Path) -> None:
    """Where a window holds about a hundred blocks or chunks, and there is more than one."""
    x, y = (
        expected(900_000, 2, "f4") if name in ("Parquet", "Arrow") else expected(30_000, 120, "f4")
    )
    ds = LAYOUTS[name][0](tmp_path, x, y)
    window = 150 * ds.node.row_nbytes * (block_rows(ds.node) if ds.node.grains else 1)
    ratios, ends = [], []
    for seed in range(3):
        shuffled = ds.shuffle(seed=seed + zlib.crc32(name.encode()), window=window)
        assert _mixing(shuffled) > 0.5
        labels = rows_of(shuffled, 32)[1] * 10 // len(y)
        true = np.random.default_rng(seed).permutation(y * 10 // len(y))
        ratios.append(_spreads(labels).mean() / _spreads(true).mean())
        ends.append(_spreads(labels)[-100:].mean() / _spreads(true).mean())
    assert np.mean(ratios) <= 1.1**2
    assert np.mean(ends) <= 1.1**2


def _mixing(ds: ps.Dataset) -> float:
    (line,) = re.findall(r"mixing (\d\.\d\d)|once the cache is full", str(ds.explain()))
    return float(line or 1)


def _spreads(labels: np.ndarray) -> np.ndarray:
    """Return for each batch of 32 the mean square of how far its numbers of labels are from those of all rows."""
    batches = labels[: len(labels) // 32 * 32].reshape(-1, 32)
    counts = np.stack([(batches == label).sum(axis=1) for label in range(10)], axis=1)
    return ((counts - 3.2) ** 2).mean(axis=1)
