"""The windowed shuffle: a permutation, well mixed, the same everywhere, and as golden as the exact one."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import assert_same, run

import penstock as ps
from penstock.stages.shuffle import windowed as window
from penstock.stages.shuffle.window_order import WindowOrder


@given(
    st.integers(0, 700),
    st.integers(1, 50),
    st.integers(1, 400),
    st.integers(0, 3),
    st.integers(0, 2),
)
def test_every_size_gives_a_permutation(
    num_rows: int, block_rows: int, window_blocks: int, seed: int, epoch: int
) -> None:
    order = WindowOrder(num_rows, block_rows, window_blocks, (seed, epoch, 0))
    rows = order.rows(np.arange(num_rows))
    assert sorted(rows.tolist()) == list(range(num_rows))
    some = np.arange(num_rows)[::3]
    assert order.rows(some).tolist() == rows[some].tolist()  # Any part of it is found alone.


@given(st.integers(1, 700), st.integers(1, 50), st.integers(1, 400))
def test_windows_cut_the_positions_and_their_blocks_are_disjoint(
    num_rows: int, block_rows: int, window_blocks: int
) -> None:
    order = WindowOrder(num_rows, block_rows, window_blocks, (0, 0, 0))
    blocks, end = [], 0
    for number in range(order.num_windows):
        window = order.window(number)
        assert order.start_of(number) == window.start == end
        end += window.num_rows
        assert window.num_rows <= order.window_rows
        blocks += window.blocks.tolist()
        for position in {window.start, end - 1}:
            assert order.window_of(position) == number
    assert end == num_rows
    assert len(blocks) == len(set(blocks)) == -(-num_rows // block_rows)


def test_lanes_have_blocks_of_their_own() -> None:
    order = WindowOrder(40_000, 10, 1000, (1, 0, 0))
    assert order.lanes == 192
    window = order.window(0)
    blocks = window.blocks[window.table // order.block_rows]
    owners: dict[int, set[int]] = {}
    for position, block in enumerate(blocks.tolist()):
        owners.setdefault(block, set()).add(position % order.lanes)
    assert all(len(lanes) == 1 for lanes in owners.values())


@pytest.mark.parametrize("window", [30, 200, 1000])
def test_mixing_agrees_with_measured_orders(window: int) -> None:
    """If the rows of a block are alike, how far do means over 100 rows spread, against a perfect shuffle?"""
    num_rows, block_rows, spread = 200_000, 100, 100
    labels = np.random.default_rng(0).normal(size=num_rows // block_rows).repeat(block_rows)
    generator = np.random.default_rng(1)
    in_a_row = []
    for seed in range(4):
        order = WindowOrder(num_rows, block_rows, window, (seed, 0, 0))
        rows = order.rows(np.arange(num_rows))
        in_a_row.append(_variance(labels[rows], spread))
    perfect = np.mean(
        [_variance(labels[generator.permutation(num_rows)], spread) for _ in range(6)]
    )
    stated = order.mixing()
    # Means of any 100 rows of a window spread as it says, with those of the windows themselves.
    overall = _overall(labels, window, block_rows, spread)
    assert stated == pytest.approx(perfect / overall, rel=0.15)
    # Rows that come one after the other are of other lanes, and so of other blocks: better still.
    assert perfect / np.mean(in_a_row) >= stated * 0.9


def _variance(values: np.ndarray, spread: int) -> float:
    groups = values[: len(values) // spread * spread].reshape(-1, spread)
    return float(groups.mean(axis=1).var())


def _overall(labels: np.ndarray, window: int, block_rows: int, spread: int) -> float:
    """Return the variance, over all windows, of means of rows drawn from one window."""
    generator = np.random.default_rng(2)
    means = []
    for seed in range(6):
        order = WindowOrder(len(labels), block_rows, window, (seed, 0, 0))
        rows = order.rows(np.arange(len(labels)))
        starts = [order.start_of(number) for number in range(order.num_windows + 1)]
        for first, last in itertools.pairwise(starts):
            mixed = labels[generator.permutation(rows[first:last])]
            means.append(mixed[: len(mixed) // spread * spread].reshape(-1, spread).mean(axis=1))
    return float(np.concatenate(means).var())


def test_mixing_goes_from_file_order_to_perfect() -> None:
    mixing = [WindowOrder(10**6, 100, blocks, (0, 0, 0)).mixing() for blocks in (1, 10, 100, 1000)]
    assert mixing == sorted(mixing)
    assert mixing[0] < 0.05
    assert WindowOrder(10**6, 100, 10**5, (0, 0, 0)).mixing() == 1.0


@pytest.mark.parametrize("seed", range(3))
def test_labels_in_order_come_out_mixed(seed: int) -> None:
    """A window of 1,024 blocks, as by default: batches spread at most 1.1 times as far as drawn ones."""
    labels = np.repeat(np.arange(10), 100_000)
    order = WindowOrder(1_000_000, 64, 1024, (seed, 0, 0))
    assert order.num_windows > 10
    found = labels[order.rows(np.arange(1_000_000))]
    assert _spread(found) <= 1.1 * _spread(np.random.default_rng(seed).permutation(labels))


@pytest.mark.slow
def test_a_file_sorted_by_label_comes_out_mixed(tmp_path: Path) -> None:
    """The same with the window, the blocks and the threads of the real thing."""
    labels = np.repeat(np.arange(10), 20_000)
    values = np.zeros((200_000, 128), "f4")
    values[:, 0] = labels
    np.save(tmp_path / "a.npy", values)
    ds = ps.from_files(tmp_path / "a.npy").shuffle(seed=1).batch(128)
    assert "windowed: 2 windows" in str(ds.explain())
    found = np.concatenate([batch[:, 0] for batch in ds]).astype(int)
    assert np.bincount(found).tolist() == [20_000] * 10
    assert _spread(found) <= 1.1 * _spread(np.random.default_rng(0).permutation(labels))


def _spread(labels: np.ndarray) -> float:
    batches = labels[: len(labels) // 128 * 128].reshape(-1, 128)
    shares = np.stack([(batches == label).mean(axis=1) for label in range(10)])
    return float(shares.std())


def test_it_is_the_same_with_any_threads_and_resumes_at_every_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(60_000))
    ds = ps.from_files(tmp_path / "a.npy").shuffle(seed=3, window="150KB").batch(1024)
    assert "windowed" in str(ds.explain())
    states = []
    with ds.with_options(threads=0).stream() as stream:
        states.append(stream.state())
        batches = []
        for batch in stream:
            batches.append(batch)
            states.append(stream.state())
    for threads in (1, 2, 5):
        assert_same(run(ds.with_options(threads=threads)), batches)
    assert_same(run(ds.with_options(memory="6MB")), batches)
    second = run(ds, epoch=1)
    assert any((a != b).any() for a, b in zip(batches, second, strict=True))
    for done, state in enumerate(states):
        rest = batches[done:] if done < len(batches) else second
        assert_same(run(ds.with_options(threads=done % 3), state=state), rest)


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


def test_text_on_storage_is_shuffled_in_windows_too(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = [f"word {i}" * (i % 4) for i in range(40_000)]
    pq.write_table(
        pa.table({"s": words, "i": range(40_000)}), tmp_path / "a.parquet", row_group_size=2000
    )
    ds = ps.from_files(tmp_path / "a.parquet", ("i", "s")).shuffle(window="400KB").batch(500)
    assert "windowed" in str(ds.explain())
    seen = []
    for numbers, texts in ds:
        assert list(texts) == [words[i] for i in numbers.tolist()]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(40_000))


def test_large_rows_that_are_packed_together_are_shuffled_in_windows(tmp_path: Path) -> None:
    """A random read of one would decode all of its chunk."""
    import h5py

    values = np.arange(64)[:, None] + np.zeros((64, 20_000), "f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(8, 20_000), compression="gzip")
    ds = ps.from_files(tmp_path / "a.h5", "x").shuffle(window="2MB")
    assert "windowed" in str(ds.explain())
    assert sorted(int(row[0]) for row in ds) == list(range(64))


# Golden: only an announced break may change them.
GOLDEN = {
    (20, 3, 4, 0, 0): [1, 5, 9, 8, 2, 3, 10, 6, 0, 4, 11, 7, 15, 19, 12, 16, 13, 14, 18, 17],
    (1000, 7, 30, 5, 2): [377, 601, 290, 939, 83, 741, 221, 276, 483, 176, 932, 245, 85],
    (100_000, 64, 400, 0, 1): [
        72115,
        26094,
        97770,
        26646,
        93907,
        26385,
        19711,
        81987,
        61800,
        17362,
        26576,
        55765,
        35400,
    ],
}


@pytest.mark.parametrize("key", GOLDEN)
def test_golden_orders(key: tuple[int, int, int, int, int]) -> None:
    num_rows, block_rows, window_blocks, seed, epoch = key
    order = WindowOrder(num_rows, block_rows, window_blocks, (seed, epoch, 0))
    positions = np.arange(num_rows) if num_rows <= 20 else np.arange(0, num_rows, num_rows // 12)
    assert order.rows(positions).tolist() == GOLDEN[key]
