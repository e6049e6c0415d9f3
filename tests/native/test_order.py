import threading

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from native import twins
from penstock import _native
from penstock.core.order import Permutation, lane_orders

MOST_ROWS = 2**62
# Around squares and oblongs the rectangle that holds the rows changes its shape.
NUM_ROWS = st.one_of(
    st.integers(1, 200),
    st.integers(1, MOST_ROWS),
    st.sampled_from([1, 2, 3, 7, 101, 65537, 10**9 + 7, 2**40 + 15, 2**61 - 1, MOST_ROWS]),
    st.builds(
        lambda root, offset: min(MOST_ROWS, max(1, root * root + offset)),
        st.integers(1, 2**31),
        st.integers(-2, 2),
    ),
)


def permute(positions, num_rows, keys):
    positions = np.asarray(positions, dtype=np.int64)
    out = np.full_like(positions, -1)
    _native.permute(positions, out, num_rows, keys)
    return out


def permutation(num_rows, seed, *, rounds=None):
    keys = twins.splitmix64(seed, rounds or twins.num_rounds(num_rows))
    return permute(np.arange(num_rows), num_rows, keys)


@given(data=st.data(), num_rows=NUM_ROWS, seed=st.integers(0, 2**64 - 1), half=st.integers(1, 32))
def test_permute_agrees_with_its_twin(data, num_rows, seed, half):
    keys = twins.splitmix64(seed, 2 * half)
    positions = data.draw(st.lists(st.integers(0, num_rows - 1), max_size=40))
    expected = twins.permute(positions, num_rows, keys)
    np.testing.assert_array_equal(permute(positions, num_rows, keys), expected)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 2**40 + 15, 2**61 - 1, 2**62 - 1, 2**62])
def test_permute_agrees_with_its_twin_at_both_ends(num_rows):
    keys = twins.splitmix64(num_rows, twins.num_rounds(num_rows))
    ends = sorted({*range(min(20, num_rows)), *range(max(0, num_rows - 20), num_rows)})
    np.testing.assert_array_equal(
        permute(ends, num_rows, keys), twins.permute(ends, num_rows, keys)
    )


@pytest.mark.parametrize("keys", [[0, 0], [2**64 - 1] * 2, [2**64 - 1] * 64])
def test_permute_agrees_with_its_twin_for_extreme_keys(keys):
    keys = np.array(keys, dtype=np.uint64)
    positions = np.arange(1000)
    for num_rows in (1000, 2**62):
        expected = twins.permute(positions, num_rows, keys)
        np.testing.assert_array_equal(permute(positions, num_rows, keys), expected)


@given(num_rows=st.integers(1, 3000), seed=st.integers(0, 2**64 - 1))
@example(num_rows=1, seed=0)
@example(num_rows=2, seed=0)
@example(num_rows=3, seed=0)
@example(num_rows=2503, seed=0)
def test_permute_visits_every_row_once(num_rows, seed):
    np.testing.assert_array_equal(np.sort(permutation(num_rows, seed)), np.arange(num_rows))


@given(num_rows=st.integers(1, 100), seed=st.integers(0, 100))
def test_permute_works_in_place(num_rows, seed):
    keys = twins.splitmix64(seed, 8)
    array = np.arange(num_rows)
    _native.permute(array, array, num_rows, keys)
    np.testing.assert_array_equal(array, permute(np.arange(num_rows), num_rows, keys))


def test_permute_reads_read_only_positions_and_keys():
    positions, keys = np.arange(5), twins.splitmix64(0, 8)
    positions.flags.writeable = keys.flags.writeable = False
    assert sorted(permute(positions, 5, keys)) == [0, 1, 2, 3, 4]


def test_permute_accepts_no_positions_even_of_no_rows():
    assert permute([], 0, twins.splitmix64(0, 8)).size == 0
    assert permute([], 10, twins.splitmix64(0, 8)).size == 0


# A change here breaks the promise that a seed gives the same batches in every version.
GOLDEN = {
    (10, 0): [8, 3, 6, 1, 4, 9, 5, 0, 2, 7],
    (1000, 1): [819, 479, 241, 223, 542, 31, 5, 804],
    (2**40 + 15, 2): [830820292928, 279441059354, 987869487625, 1091367716202],
}


@pytest.mark.parametrize(("num_rows", "seed"), GOLDEN)
def test_golden_orders_never_change(num_rows, seed):
    expected = GOLDEN[num_rows, seed]
    keys = twins.splitmix64(seed, twins.num_rounds(num_rows))
    assert permute(range(len(expected)), num_rows, keys).tolist() == expected


# Bad input.

KEYS = twins.splitmix64(0, 8)


@pytest.mark.parametrize("count", [1, 16, 100])
@pytest.mark.parametrize("bad", [-1, 10, 2**63 - 1, -(2**63)])
def test_permute_refuses_a_position_out_of_range(bad, count):
    positions = np.zeros(count, np.int64)
    positions[-1] = bad
    with pytest.raises(
        IndexError, match=rf"positions\[{count - 1}\] must be in \[0, 10\), got {bad}\."
    ):
        permute(positions, 10, KEYS)


def test_permute_refuses_any_position_of_no_rows():
    with pytest.raises(IndexError, match=r"must be in \[0, 0\), got 0"):
        permute([0], 0, KEYS)


@pytest.mark.parametrize("num_rows", [-1, 2**62 + 1, 2**63, 2**100, -(2**100)])
def test_permute_refuses_num_rows_out_of_range(num_rows):
    with pytest.raises(ValueError, match=rf"num_rows must be between 0 and .*, got {num_rows}\."):
        permute([0], num_rows, KEYS)


def test_permute_refuses_a_num_rows_that_is_no_integer():
    with pytest.raises(TypeError, match="integer"):
        permute([0], 1.5, KEYS)


@pytest.mark.parametrize("count", [0, 1, 3, 63, 65, 66])
def test_permute_refuses_another_number_of_keys(count):
    with pytest.raises(ValueError, match=f"even number of 2 to 64 keys, got {count}"):
        permute([0], 10, twins.splitmix64(0, count))


@pytest.mark.parametrize(
    ("positions", "out", "keys", "message"),
    [
        (np.zeros(3, np.int32), np.zeros(3, np.int64), KEYS, "positions must hold int64"),
        (np.zeros(3, np.float64), np.zeros(3, np.int64), KEYS, "positions must hold int64"),
        (np.zeros(3, ">i8"), np.zeros(3, np.int64), KEYS, "positions must hold int64"),
        (np.zeros(3, np.int64), np.zeros(3, np.uint64), KEYS, "out must hold int64"),
        (
            np.zeros(3, np.int64),
            np.zeros(3, np.int64),
            KEYS.astype(np.int64),
            "keys must hold uint",
        ),
        (np.zeros((3, 1), np.int64), np.zeros(3, np.int64), KEYS, "must have 1 dimensions, got 2"),
        (np.zeros(6, np.int64)[::2], np.zeros(3, np.int64), KEYS, "positions must be contiguous"),
        (np.zeros(3, np.int64), np.zeros(3, np.int64)[::-1], KEYS, "out must be contiguous"),
        (
            np.zeros(3, np.int64),
            np.zeros(4, np.int64),
            KEYS,
            "out must have the length .* 3, got 4",
        ),
        (
            np.frombuffer(bytearray(25), np.uint8)[1:].view(np.int64),
            np.zeros(3, np.int64),
            KEYS,
            "positions must be aligned",
        ),
    ],
)
def test_permute_refuses_a_wrong_array(positions, out, keys, message):
    with pytest.raises(ValueError, match=message):
        _native.permute(positions, out, 10, keys)


def test_permute_refuses_a_read_only_out():
    out = np.zeros(3, np.int64)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writable"):
        _native.permute(np.zeros(3, np.int64), out, 10, KEYS)


def test_permute_refuses_an_out_that_overlaps_its_positions():
    array = np.zeros(4, np.int64)
    with pytest.raises(ValueError, match="the same array as positions or share no memory"):
        _native.permute(array[:3], array[1:], 10, KEYS)


def test_permute_refuses_what_has_no_buffer():
    with pytest.raises(TypeError, match="positions must be an array, got list"):
        _native.permute([0], np.zeros(1, np.int64), 10, KEYS)


def test_permute_lets_other_threads_run():
    positions = np.zeros(3_000_000, np.int64)
    out = np.empty_like(positions)
    ready, ticks, done = threading.Event(), 0, False

    def work():
        nonlocal done
        ready.set()
        _native.permute(positions, out, 10**9, KEYS)
        done = True

    worker = threading.Thread(target=work)
    worker.start()
    ready.wait()
    while not done:
        ticks += 1
    worker.join()
    # Holding the lock, the kernel would let this thread see at most the moment before and the moment after it.
    assert ticks > 1000


# How random the orders are. The seeds are fixed, so that each figure is what it is and the test can't flake;
# thresholds are at one in a million, for a test that runs once and for all over some dozens of figures.

LEAST_P = 1e-6
SMALL_SIZES = [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 16, 17, 20, 25, 31, 32]
NUM_SEEDS = 20_000


def orders(num_rows, *, rounds=None, num_seeds=NUM_SEEDS):
    """An array (seed, position) of rows."""
    return np.stack([permutation(num_rows, seed, rounds=rounds) for seed in range(num_seeds)])


def uniform_p(counts):
    return stats.chisquare(counts.ravel()).pvalue


def positions_p(table):
    """How likely so uneven a table of (position, row) is, if every order is equally likely."""
    num_seeds, num_rows = table.shape
    counts = np.stack([np.bincount(column, minlength=num_rows) for column in table.T])
    expected = num_seeds / num_rows
    statistic = ((counts - expected) ** 2 / expected).sum()
    # Rows and columns of the table have fixed sums, and n-1 over n makes up for drawing without putting back.
    return stats.chi2.sf(statistic * (num_rows - 1) / num_rows, (num_rows - 1) ** 2)


def pairs_p(table, first, second):
    """The same for the rows at two positions, which must be equally likely to be any two rows."""
    num_rows = table.shape[1]
    codes = table[:, first] * num_rows + table[:, second]
    counts = np.bincount(codes, minlength=num_rows**2).reshape(num_rows, num_rows)
    return uniform_p(counts[~np.eye(num_rows, dtype=bool)])


def worst_p(table):
    """The worst of the positions and of neighbouring, distant and same-half pairs, made comparable (Bonferroni)."""
    num_rows = table.shape[1]
    left = twins.ceil_sqrt(num_rows)
    right = -(-num_rows // left)
    figures = [positions_p(table)]
    if num_rows > 2:
        pairs = {(0, 1), (0, num_rows - 1), (num_rows // 2, num_rows // 2 + 1)}
        pairs |= {(0, right)} if right < num_rows else set()
        figures += [pairs_p(table, *pair) for pair in sorted(pairs) if pair[1] < num_rows]
    return min(figures) * len(figures)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", SMALL_SIZES)
def test_every_row_and_pair_is_equally_likely_at_every_position(num_rows):
    assert worst_p(orders(num_rows)) > LEAST_P


@pytest.mark.parametrize("num_rows", [4, 9, 16, 32])
def test_two_rounds_would_be_noticed(num_rows):
    # The negative control of the test above.
    assert worst_p(orders(num_rows, rounds=2, num_seeds=5000)) < LEAST_P


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [2, 3, 4, 5, 6])
def test_every_order_of_a_few_rows_is_equally_likely(num_rows):
    table = orders(num_rows, num_seeds=30_000)
    codes = table @ num_rows ** np.arange(num_rows)
    _, counts = np.unique(codes, return_counts=True)
    assert counts.size == np.prod(np.arange(1, num_rows + 1))
    assert uniform_p(counts) > LEAST_P


def neighbours_p(rounds):
    """Whether rows next to each other end up at independent places, in a large order cut into 32 by 32 cells."""
    num_rows, num_cells = 10**6 + 3, 32
    positions = np.arange(20_000)
    counts = np.zeros((num_cells, num_cells))
    for seed in range(20):
        rows = permute(positions, num_rows, twins.splitmix64(seed, rounds))
        cells = rows * num_cells // num_rows
        np.add.at(counts, (cells[:-1], cells[1:]), 1)
    return uniform_p(counts)


def test_neighbours_in_a_large_order_are_independent():
    assert neighbours_p(twins.num_rounds(10**6 + 3)) > LEAST_P


def test_neighbours_after_two_rounds_would_be_noticed():
    assert neighbours_p(2) < LEAST_P


def fixed_points(rounds):
    return sum(
        np.count_nonzero(permutation(1000, seed, rounds=rounds) == np.arange(1000))
        for seed in range(2000)
    )


def test_rows_stay_in_place_as_rarely_as_chance_has_it():
    # One a permutation on average, whatever its size: 2000 of them, give or take five times their root.
    assert abs(fixed_points(twins.num_rounds(1000)) - 2000) < 5 * 2000**0.5


def test_nearby_seeds_give_unrelated_orders():
    num_rows = 1000
    table = orders(num_rows, num_seeds=500)
    same = np.count_nonzero(table[:-1] == table[1:])
    expected = 499  # one place in each pair of orders, on average
    assert abs(same - expected) < 5 * expected**0.5


@given(
    st.one_of(st.integers(1, 300), st.sampled_from([2**40 + 15, 2**62, 99991])),
    st.integers(0, 2**64 - 1),
)
def test_unpermute_is_the_way_back(num_rows, seed):
    keys = twins.splitmix64(seed, 8)
    positions = np.unique(np.linspace(0, num_rows - 1, 100).astype(np.int64).clip(0, num_rows - 1))
    rows, back = np.empty_like(positions), np.empty_like(positions)
    _native.permute(positions, rows, num_rows, keys)
    _native.unpermute(rows, back, num_rows, keys)
    assert (back == positions).all()


@given(
    lanes=st.integers(1, 20),
    blocks=st.integers(0, 6),
    block_rows=st.integers(1, 9),
    words=st.lists(st.integers(0, 2**64 - 1), max_size=3).map(tuple),
    seed=st.integers(0, 2**32),
)
def test_lanes_are_mixed_each_like_a_permutation_of_its_own(lanes, blocks, block_rows, words, seed):
    places = np.random.default_rng(seed).permutation(lanes * blocks)
    found = lane_orders(places, block_rows, lanes, words)
    rows = (places[:, None] * block_rows + np.arange(block_rows)).reshape(lanes, -1)
    num_rows = blocks * block_rows
    for lane in range(lanes):
        order = Permutation(num_rows, (*words, lane)).rows(np.arange(num_rows))
        np.testing.assert_array_equal(found[:, lane], rows[lane][order])


def test_lanes_refuse_what_does_not_fit_together():
    out, keys, places = np.zeros((6, 2), np.int64), np.zeros((2, 8), np.uint64), np.arange(4)
    _native.permute_lanes(out, keys, places, 3)
    for wrong in (
        (out[:, :1], keys, places, 3),
        (out, keys[:1], places, 3),
        (out, keys, places, 3, 1),
        (out, keys, places, 3, -1),
        (np.lib.stride_tricks.as_strided(out, (2, 2), (8, 8)), keys, places, 3),
        (out, keys[:, :7].copy(), places, 3),
        (out, keys, places[:3], 3),
        (out, keys, places, 2),
        (out, keys, places, 0),
        (out[::-1], keys, places, 3),
        (out, keys[:, ::2], places, 3),
        (out, keys, out.reshape(-1)[:4], 3),
        (out.astype(np.int32), keys, places, 3),
    ):
        with pytest.raises(ValueError, match="must"):
            _native.permute_lanes(*wrong)
