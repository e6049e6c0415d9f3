"""Statistics of rows, against exact arithmetic and NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from native import twins
from penstock import _native

KINDS = {"i1": "i1", "i2": "i2", "i4": "i4", "i8": "i8", "u1": "u1", "u2": "u2", "u4": "u4", "u8": "u8",
         "f2": "f2", "f4": "f4", "f8": "f8"}  # fmt: skip


def wide_of(kind):
    narrow = kind in ("f2", "bf") or int(kind[1:]) < 4
    return np.dtype(("f4" if kind[0] in "fb" else "i4") if narrow else kind)


class State:
    def __init__(self, kind, width):
        self.kind, self.count = kind, 0
        self.mean, self.squares = np.zeros(width), np.zeros(width)
        self.low, self.high = np.zeros(width, wide_of(kind)), np.zeros(width, wide_of(kind))

    def add(self, rows):
        """Add rows (groups, rows, width)."""
        source = rows.view(np.uint8).reshape(*rows.shape[:2], rows.shape[2] * rows.itemsize)
        self.add_raw(source)

    def add_raw(self, source):
        low, high = self.low.view(np.uint8), self.high.view(np.uint8)
        _native.add_moments(source, self.kind, self.count, self.mean, self.squares, low, high)
        self.count += source.shape[0] * source.shape[1]


@given(st.data())
def test_moments_agree_with_their_twin_however_rows_are_cut(data):
    kind = data.draw(st.sampled_from(sorted(KINDS)))
    dtype = np.dtype(kind)
    shape = data.draw(st.tuples(st.integers(1, 60), st.sampled_from([1, 3, 4, 7, 16, 21])))
    finite = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    if dtype.kind == "f":
        finite |= {"min_value": -1000, "max_value": 1000}
    rows = data.draw(hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype, **finite)))
    state = State(kind, shape[1])
    cuts = sorted(data.draw(st.lists(st.integers(0, shape[0]), max_size=3)))
    for start, stop in zip([0, *cuts], [*cuts, shape[0]], strict=True):
        state.add(np.ascontiguousarray(rows[None, start:stop]))
    mean, squares, low, high = twins.moments(rows)
    scale = max(1.0, float(np.abs(rows.astype("f8")).max()))
    np.testing.assert_allclose(state.mean, mean, rtol=1e-13, atol=1e-15 * scale)
    np.testing.assert_allclose(state.squares, squares, rtol=1e-9, atol=1e-13 * scale**2 * shape[0])
    assert state.low.tolist() == low
    assert state.high.tolist() == high


def test_numbers_that_are_large_and_alike_lose_nothing():
    rng = np.random.default_rng(0)
    rows = 1e9 + rng.random((1, 5000, 5))
    rows[0, 0] = -1e3  # Not even if the first is far away.
    state = State("f8", 5)
    state.add(rows)
    exact = rows[0].astype(np.longdouble)
    expected = ((exact - exact.mean(0)) ** 2).sum(0).astype(float)
    np.testing.assert_allclose(state.squares, expected, rtol=1e-12)


def test_numbers_next_to_the_largest_whole_ones_keep_their_variance():
    away = np.random.default_rng(5).integers(0, 5, 1003) * 2
    state = State("f8", 1)
    state.add((2.0**53 + away).reshape(1, -1, 1))
    np.testing.assert_allclose(state.squares / 1003, away.var(), rtol=1e-12)


def test_rows_in_groups_with_gaps_are_read_where_they_lie():
    memory = np.random.default_rng(0).random((4, 10, 6)).astype("f4")
    raw = memory.view(np.uint8).reshape(4, 10, 24)
    state = State("f4", 5)
    state.add_raw(raw[:, 1:9, 4:])
    expected = memory[:, 1:9, 1:].reshape(-1, 5).astype("f8")
    np.testing.assert_allclose(state.mean, expected.mean(0), rtol=1e-12)
    np.testing.assert_array_equal(state.low, memory[:, 1:9, 1:].min((0, 1)))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("width", [1, 5, 16])
def test_nan_and_infinity_are_those_of_numpy(kind, width):
    rows = np.ones((300, width), kind)
    rows[7, 0], rows[250, -1] = np.nan, np.inf
    for start in (0, 100):
        state = State(kind, width)
        state.add(np.ascontiguousarray(rows[None, start : start + 100]))
        state.add(np.ascontiguousarray(rows[None, start + 100 :]))
        mine = rows[start:].astype("f8")
        np.testing.assert_array_equal(state.low, mine.min(0))
        np.testing.assert_array_equal(state.high, mine.max(0))
        np.testing.assert_array_equal(np.isfinite(state.mean), np.isfinite(mine.mean(0)))
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(np.isnan(state.squares), np.isnan(mine.var(0)))


INFINITE = {
    "in a later block": [1, 1, np.inf, 1],
    "in the first block": [np.inf, 1, 1, 1],
    "in every block": [np.inf, np.inf, np.inf, np.inf],
    "below": [1, -np.inf, 1, -np.inf],
    "both ways, in one block": [1, 1, np.inf, -np.inf],
    "both ways, in two": [np.inf, 1, -np.inf, 1],
    "with a nan": [np.inf, 1, np.nan, 1],
}


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
@pytest.mark.parametrize("width", [1, 5, 16])
@pytest.mark.parametrize("case", INFINITE)
def test_the_mean_with_an_infinity_is_that_of_numpy_however_rows_are_cut(case, kind, width):
    rows = np.repeat(np.array(INFINITE[case], kind)[:, None], width, axis=1)
    with np.errstate(invalid="ignore"):
        mean, variance = rows.astype("f8").mean(0), rows.astype("f8").var(0)
    for step in (1, 2, 4):
        state = State(kind, width)
        for start in range(0, 4, step):
            state.add(np.ascontiguousarray(rows[None, start : start + step]))
        np.testing.assert_array_equal(state.mean, mean)
        np.testing.assert_array_equal(np.isnan(state.squares), np.isnan(variance))
        np.testing.assert_array_equal(state.low, rows.min(0))
        np.testing.assert_array_equal(state.high, rows.max(0))


def test_every_half_is_what_numpy_says():
    bits = np.arange(1 << 16, dtype=np.uint16)
    halves = bits.view("f2")
    halves = halves[~np.isnan(halves)]
    for value in (halves[::97], halves[:2000:3], halves[-2000::7]):
        for one in value:
            state = State("f2", 1)
            state.add(np.array([[[one]]], "f2"))
            assert state.low[0] == np.float32(one)


def test_bfloat16_is_the_upper_half_of_a_float():
    values = np.array([1.5, -2.25, 3e38, 0.0], "f4")
    brains = (values.view("u4") >> 16).astype("u2")
    state = State("bf", 1)
    state.add(brains.reshape(1, 4, 1))
    kept = (brains.astype("u4") << 16).view("f4")
    assert (state.low[0], state.high[0]) == (kept.min(), kept.max())
    assert state.mean[0] == pytest.approx(kept.astype("f8").mean())


def test_no_rows_and_no_places_change_nothing():
    state = State("f4", 3)
    state.add(np.zeros((0, 5, 3), "f4"))
    assert state.mean.tolist() == [0, 0, 0]
    empty = np.zeros(0)
    nothing = np.zeros(0, "u1")
    _native.add_moments(np.zeros((1, 4, 0), "u1"), "f4", 0, empty, empty.copy(), nothing, nothing)


GOOD = (
    np.zeros((1, 2, 8), "u1"),
    "f4",
    0,
    np.zeros(2),
    np.zeros(2),
    np.zeros(8, "u1"),
    np.zeros(8, "u1"),
)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros((2, 8), "u1"), "source must have 3 dimensions"),
        (0, np.zeros((1, 2, 9), "u1"), "source must have 8 bytes a row, got 9"),
        (0, np.zeros((1, 2, 8), "i1"), "source must hold uint8"),
        (1, "f3", "kind must be one of"),
        (1, "f8", "source must have 16 bytes a row"),
        (2, -1, "count must be between"),
        (3, np.zeros(2, "f4"), "mean must hold float64"),
        (4, np.zeros(3), "squares must have the length of mean"),
        (5, np.zeros(7, "u1"), "low must have 8 bytes, got 7"),
        (6, np.zeros(9, "u1"), "high must have 8 bytes, got 9"),
        (6, np.zeros(8, "u1")[::-1], "contiguous along its last axis"),
    ],
)
def test_what_can_not_be_is_refused(place, value, message):
    arguments = list(GOOD)
    arguments[place] = value
    with pytest.raises(ValueError, match=message):
        _native.add_moments(*arguments)
    _native.add_moments(*GOOD)
