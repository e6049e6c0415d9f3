"""The order of a windowed shuffle: a permutation, well mixed, and as golden as the exact one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stages.shuffle.mixing import spread

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
    assert spread(found) <= 1.1 * spread(np.random.default_rng(seed).permutation(labels))


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
