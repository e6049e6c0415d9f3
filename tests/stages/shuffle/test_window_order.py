"""The order of a windowed shuffle: a permutation, well mixed, and as golden as the exact one."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.stages.shuffle.mixing import spread

from penstock.core.order import Permutation, lane_orders, uneven_lane_orders
from penstock.stages.shuffle.window_order import RankOrder, WindowOrder


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


@given(
    st.integers(1, 900),
    st.integers(1, 12),
    st.integers(4, 400),
    st.integers(0, 30),
    st.integers(1, 5),
)
def test_windows_of_a_rank_have_its_rows_of_the_whole_order(
    num_rows: int, block_rows: int, window_blocks: int, choice: int, together: int
) -> None:
    order = WindowOrder(num_rows, block_rows, window_blocks, (0, 1, 0))
    divisors = [number for number in range(1, order.lanes + 1) if order.lanes % number == 0]
    modulus = divisors[choice % len(divisors)]
    rows = order.rows(np.arange(num_rows))
    for residue in range(modulus):
        part = RankOrder(order, residue, modulus, together)
        ends = [part.start_of(number) for number in range(part.num_windows + 1)]
        assert (ends[0], ends[-1]) == (0, num_rows)
        for number in range(part.num_windows):
            window = part.window(number)
            assert (
                order.is_whole or window.num_rows <= part.most_rows
            )  # A whole one is not narrowed.
            positions = np.arange(num_rows)[ends[number] : ends[number + 1]]
            positions = positions[positions % modulus == residue]
            assert all(part.window_of(int(position)) == number for position in positions)
            stored = np.concatenate(
                [
                    np.arange(b * block_rows, min(num_rows, (b + 1) * block_rows))
                    for b in window.blocks
                ]
                or [np.empty(0, np.int64)]
            )
            assert len(stored) == window.num_rows
            assert stored[window.stored(positions)].tolist() == rows[positions].tolist()


@given(st.integers(1, 3000), st.integers(1, 9), st.integers(4, 400))
def test_windows_are_of_nearly_the_same_size(
    num_blocks: int, block_rows: int, window_blocks: int
) -> None:
    """Else the last batches of an epoch would be mixed badly."""
    order = WindowOrder(num_blocks * block_rows, block_rows, window_blocks, (0, 0, 0))
    starts = [order.start_of(number) for number in range(order.num_windows + 1)]
    sizes = np.diff(starts)
    assert sizes.max() <= window_blocks * block_rows
    assert sizes.min() >= 0.5 * sizes.max()
    if window_blocks >= 16:
        assert sizes.min() >= 0.75 * sizes.max()
    assert order.is_whole == (num_blocks <= window_blocks)


@pytest.mark.parametrize("num_rows", [40_000, 43_210, 77_777])
def test_ranks_that_own_lanes_read_disjoint_blocks_of_all_windows_but_the_last(
    num_rows: int,
) -> None:
    order = WindowOrder(num_rows, 10, 1000, (1, 0, 0))
    for ranks in (2, 3, 8, 96):
        assert order.lanes % ranks == 0
        read = np.zeros(ranks, np.int64)
        for number in range(order.num_windows):
            window = order.window(number)
            blocks = window.blocks[window.table // order.block_rows]
            mine = [set(blocks[rank::ranks].tolist()) for rank in range(ranks)]
            read += [len(one) for one in mine]
            if number < order.num_windows - 1:
                assert sum(map(len, mine)) == len(window.blocks)
        # Of the last window, two lanes may share a block.
        assert read.max() <= (num_rows / 10) / ranks + 2 * order.lanes / ranks


@given(st.integers(0, 300), st.integers(1, 7), st.integers(1, 50), st.integers(0, 2**32))
@example(num_rows=1000, block_rows=3, lanes=192, seed=0)
@example(num_rows=2, block_rows=1, lanes=4, seed=0)
def test_uneven_lanes_take_turns_and_each_has_a_run_of_rows_in_an_order_of_its_own(
    num_rows: int, block_rows: int, lanes: int, seed: int
) -> None:
    places = np.random.default_rng(seed).permutation(-(-num_rows // block_rows) + 1)
    rows = (places[:, None] * block_rows + np.arange(block_rows)).reshape(-1)
    found = uneven_lane_orders(num_rows, places, block_rows, lanes, (7, seed))
    start = 0
    for lane in range(lanes):
        size = len(range(lane, num_rows, lanes))
        order = Permutation(size, (7, seed, lane)).rows(np.arange(size))
        assert found[lane::lanes].tolist() == rows[start + order].tolist()
        start += size


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([1, 2, 6, 48]))
def test_uneven_lanes_are_the_even_ones_where_all_blocks_are_full(
    columns: int, block_rows: int, lanes: int
) -> None:
    places = np.arange(columns * lanes)[::-1].copy()
    fast = lane_orders(places, block_rows, lanes, (3, 4)).reshape(-1)
    found = uneven_lane_orders(len(fast), places, block_rows, lanes, (3, 4))
    assert found.tolist() == fast.tolist()


def test_every_window_has_its_share_of_all_parts_of_the_data() -> None:
    """Each lane's section of the data gives one block to each column: sorted labels are in all windows alike."""
    order = WindowOrder(1_000_000, 50, 400, (0, 0, 0))
    tenth = 1_000_000 // 50 / 10
    for number in range(order.num_windows):
        blocks = order.window(number).blocks
        shares = np.bincount((blocks // tenth).astype(int), minlength=10) / len(blocks)
        assert abs(shares - 0.1).max() < 0.02
    again = WindowOrder(1_000_000, 50, 400, (1, 0, 0)).window(0).blocks
    assert again.tolist() != order.window(0).blocks.tolist()


def test_a_block_is_as_likely_in_one_window_as_in_another() -> None:
    counts = np.zeros((5, 60))
    for seed in range(600):
        order = WindowOrder(600, 10, 12, (seed, 0, 0))
        assert order.num_windows == 5
        for number in range(5):
            counts[number, order.window(number).blocks] += 1
    assert abs(counts / 600 - 0.2).max() < 0.08  # Five standard deviations.


@pytest.mark.parametrize("batch_size", [32, 100])
@pytest.mark.parametrize("blocks_more", [1.02, 1.3, 2.1, 3.7, 9.4])
@pytest.mark.parametrize("window_blocks", [96, 130, 256, 1024])
def test_sorted_labels_spread_as_after_a_true_shuffle_to_the_end_of_an_epoch(
    window_blocks: int, blocks_more: float, batch_size: int
) -> None:
    num_blocks = int(window_blocks * blocks_more)
    labels = np.repeat(np.arange(10), num_blocks * 4)  # Blocks of 40 rows.
    whole, end, true = [], [], []
    for seed in range(6):
        order = WindowOrder(len(labels), 40, window_blocks, (seed, 0, 0))
        found = _spreads(labels[order.rows(np.arange(len(labels)))], batch_size)
        last = (len(labels) - order.start_of(order.num_windows - 1)) // batch_size
        whole.append(found.mean())
        end.append(found[-last:].mean())
        true.append(_spreads(np.random.default_rng(seed).permutation(labels), batch_size).mean())
    assert np.mean(whole) <= 1.1**2 * np.mean(true)
    assert np.mean(end) <= 1.1**2 * np.mean(true)


def _spreads(labels: np.ndarray, batch_size: int) -> np.ndarray:
    """Return for each batch the mean square of how far its numbers of labels are from those of all rows."""
    batches = labels[: len(labels) // batch_size * batch_size].reshape(-1, batch_size)
    counts = np.stack([(batches == label).sum(axis=1) for label in range(10)], axis=1)
    return ((counts - batch_size / 10) ** 2).mean(axis=1)


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
    (20, 3, 4, 0, 0): [0, 7, 6, 16, 17, 2, 1, 15, 8, 14, 10, 11, 13, 9, 5, 4, 3, 18, 12, 19],
    (1000, 7, 30, 5, 2): [168, 970, 796, 599, 731, 147, 294, 113, 490, 8, 717, 389, 902],
    (100000, 64, 400, 0, 1): [
        89476,
        73504,
        71391,
        43060,
        43545,
        800,
        98664,
        34285,
        41787,
        45422,
        97738,
        72307,
        59248,
    ],
    (1000003, 163, 1024, 1, 0): [
        699583,
        400506,
        89208,
        677149,
        104686,
        20194,
        609613,
        894111,
        981,
        11345,
        393711,
        610967,
        861450,
    ],
}


@pytest.mark.parametrize("key", GOLDEN)
def test_golden_orders(key: tuple[int, int, int, int, int]) -> None:
    num_rows, block_rows, window_blocks, seed, epoch = key
    order = WindowOrder(num_rows, block_rows, window_blocks, (seed, epoch, 0))
    positions = np.arange(num_rows) if num_rows <= 20 else np.arange(0, num_rows, num_rows // 12)
    assert order.rows(positions).tolist() == GOLDEN[key]
