"""Rows that were chosen from others, against their twins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import twins
from penstock import _native

PLACES = np.array([[0, 2, 3]], np.uint32)
FIRSTS = np.array([[0, 2, 1, 1]], np.uint32)
TAIL = np.array([8, 9])
WORDS = np.full(8, 5, np.uint64)


def rows_of(choice, positions):
    positions = np.array(positions, np.int64)
    out = np.empty(len(positions), np.int64)
    choice.rows(positions, out)
    return out


def span_of(choice, first, count):
    out = np.empty(count, np.int64)
    choice.span(first, out)
    return out


@st.composite
def deals(draw):
    run_rows = draw(st.integers(1, 40))
    share = draw(st.integers(1, run_rows))
    count = draw(st.sampled_from([1, 2, 8]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    places = np.sort([rng.permutation(run_rows)[:share] for _ in range(count)], axis=1)
    inside = np.arange(run_rows, 0, -1)
    firsts = np.stack([np.searchsorted(mine, inside) % share for mine in places])
    num_runs = draw(st.integers(0, 20))
    tail = num_runs * run_rows + np.arange(draw(st.integers(0, 3)))
    key = draw(st.integers(0, 2**64 - 1))
    return key, num_runs, places.astype(np.uint32), firsts.astype(np.uint32), tail


@given(deals(), st.randoms())
def test_dealt_rows_agree_with_their_twin_in_any_order(deal, random):
    expected = twins.dealt_rows(*deal)
    choice = _native.Dealt(*deal)
    positions = list(range(len(expected)))
    random.shuffle(positions)
    np.testing.assert_array_equal(rows_of(choice, positions), expected[positions])


@given(deals(), st.data())
def test_spans_of_dealt_rows_agree_with_their_twin(deal, data):
    expected = twins.dealt_rows(*deal)
    first = data.draw(st.integers(0, len(expected)))
    count = data.draw(st.integers(0, len(expected) - first))
    found = span_of(_native.Dealt(*deal), first, count)
    np.testing.assert_array_equal(found, expected[first : first + count])


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1]), max_size=40), st.data()
)
def test_spans_of_marked_rows_agree_with_their_twin(numbers, data):
    words = np.array(numbers, np.uint64)
    expected = twins.marked_rows(words)
    first = data.draw(st.integers(0, len(expected)))
    count = data.draw(st.integers(0, len(expected) - first))
    found = span_of(_native.Marked(words, twins.ranks(words)), first, count)
    np.testing.assert_array_equal(found, expected[first : first + count])


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 9), (8, 1), (2**62, 2), (-(2**63), 3)])
def test_spans_that_reach_beyond_the_chosen_rows_are_refused(first, count):
    deal = _native.Dealt(7, 2, PLACES, FIRSTS, TAIL)
    marked = _native.Marked(WORDS[:4], twins.ranks(WORDS[:4]))
    for choice in (deal, marked):
        assert len(span_of(choice, 0, 8)) == 8
        with pytest.raises(IndexError, match="not one of the chosen rows"):
            span_of(choice, first, count)


@given(
    st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**64 - 1]), max_size=40), st.randoms()
)
def test_marked_rows_agree_with_their_twin_in_any_order(numbers, random):
    words = np.array(numbers, np.uint64)
    choice = _native.Marked(words, twins.ranks(words))
    expected = twins.marked_rows(words)
    positions = list(range(len(expected)))
    np.testing.assert_array_equal(rows_of(choice, positions), expected)
    random.shuffle(positions)
    np.testing.assert_array_equal(rows_of(choice, positions), expected[positions])


def test_rows_may_be_rewritten_in_place():
    rows = np.arange(5)
    choice = _native.Dealt(7, 1, PLACES, FIRSTS, TAIL)
    expected = rows_of(choice, rows)
    choice.rows(rows, rows)
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("position", [-1, 5, 2**62, -(2**63)])
def test_a_row_that_was_not_chosen_is_refused(position):
    with pytest.raises(IndexError, match="not one of the chosen"):
        rows_of(_native.Dealt(7, 1, PLACES, FIRSTS, TAIL), [position])
    with pytest.raises(IndexError, match="not one of the chosen"):
        rows_of(_native.Marked(WORDS[:2], np.array([0, 4])), [position])


def test_tables_that_are_none_read_nothing_outside_them():
    wrong = np.full((1, 4), 2**32 - 1, np.uint32)
    with pytest.raises(IndexError, match="not one of the chosen"):
        rows_of(_native.Dealt(7, 1, PLACES, wrong, TAIL), [0])
    with pytest.raises(IndexError, match="not one of the chosen"):
        rows_of(_native.Marked(WORDS, np.array([0, 1000])), [999])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((7, 1, PLACES.astype("i8"), FIRSTS, TAIL), "places must hold uint32"),
        ((7, 1, PLACES, FIRSTS[0], TAIL), "firsts must have 2 dimensions"),
        ((7, 1, PLACES, FIRSTS, TAIL.astype("f8")), "tail must hold int64"),
        ((7, 1, PLACES, np.repeat(FIRSTS, 2, 0), TAIL), "firsts must have the length of places"),
        ((7, 1, PLACES[:0], FIRSTS[:0], TAIL), "1, 2, 4, 8, ... patterns, got 0"),
        ((7, 1, np.repeat(PLACES, 3, 0), np.repeat(FIRSTS, 3, 0), TAIL), "patterns, got 3"),
        ((7, 1, np.zeros((1, 5), "u4"), FIRSTS, TAIL), "got 5 of 4"),
        ((7, 1, np.zeros((1, 0), "u4"), FIRSTS, TAIL), "got 0 of 4"),
        ((7, -1, PLACES, FIRSTS, TAIL), "got -1 runs"),
        ((7, 2**62, PLACES, FIRSTS, TAIL), "2\\*\\*62 rows"),
        (
            (7, 1, np.zeros((4, 3), "u4")[::2], np.zeros((2, 4), "u4"), TAIL),
            "places must be contiguous",
        ),
    ],
)
def test_a_deal_that_can_not_be_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        _native.Dealt(*arguments)


@pytest.mark.parametrize(
    ("words", "ranks", "message"),
    [
        (WORDS.astype("i8"), np.array([0, 16]), "words must hold uint64"),
        (WORDS, np.array([0]), "ranks must have the length of"),
        (WORDS, np.array([0.0, 16.0]), "ranks must hold int64"),
    ],
)
def test_marks_that_can_not_be_are_refused(words, ranks, message):
    with pytest.raises(ValueError, match=message):
        _native.Marked(words, ranks)


def test_out_must_fit_and_be_apart():
    choice = _native.Marked(WORDS, np.array([0, 16]))
    with pytest.raises(ValueError, match="out must have the length of positions"):
        choice.rows(np.arange(3), np.empty(2, np.int64))
    whole = np.arange(4)
    with pytest.raises(ValueError, match="share no memory"):
        choice.rows(whole[:3], whole[1:])
