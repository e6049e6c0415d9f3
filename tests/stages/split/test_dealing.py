"""Rows dealt in closed form: exact shares of every run, and of all rows."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.stages.split.dealing import Deal, deal_of


def rows_of(deal: Deal, part: int, num_rows: int) -> Any:
    out = np.arange(deal.size(part, num_rows))
    deal.choice(part, num_rows).rows(out, out)
    return out


GOLDEN_TENTH = [7, 16, 26, 35, 47, 52, 68, 73, 87, 90]
GOLDEN_MIDDLE = [8, 10, 24, 37, 46, 55]
GOLDEN_UNEVEN = [18, 844, 1673, 2483, 3197, 4081, 4890]
FRACTIONS = st.lists(st.integers(1, 40), min_size=2, max_size=5).map(
    lambda parts: [Fraction(part, sum(parts)) for part in parts]
)


@given(FRACTIONS, st.integers(0, 5), st.integers(0, 3000))
def test_parts_are_apart_in_order_and_together_all_rows(
    fractions: list[Fraction], seed: int, num_rows: int
) -> None:
    deal = deal_of(fractions, seed)
    parts = [rows_of(deal, part, num_rows) for part in range(deal.num_parts)]
    assert len(parts) == len(fractions)
    owners = deal.owners(np.arange(num_rows), num_rows)
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(part, np.flatnonzero(owners == number))
    sums = [sum(fractions[:count]) for count in range(len(fractions) + 1)]
    cuts = [int(one * num_rows) for one in sums]
    assert [len(part) for part in parts] == np.diff(cuts).tolist()


@pytest.mark.parametrize("fractions", [[0.9], [0.8, 0.1], [0.125], [0.001], [0.5], [0.333, 0.3]])
def test_every_run_of_1000_rows_gives_each_part_its_exact_share(fractions: list[float]):
    deal = deal_of(fractions, 3)
    owners = deal.owners(np.arange(20_000), None).reshape(20, 1000)
    for part, fraction in enumerate(fractions):
        assert ((owners == part).sum(axis=1) == round(fraction * 1000)).all()


def test_every_place_of_a_run_is_as_likely_as_any_other():
    deal = deal_of([0.9], 0)
    counts = np.bincount(rows_of(deal, 1, 200_000) % 10, minlength=10)
    assert abs(counts - 2000).max() < 5 * np.sqrt(2000)
    deal = deal_of([0.123], 0)
    counts = np.bincount(rows_of(deal, 0, 2_000_000) % 1000, minlength=1000)
    assert abs(counts - 246).max() < 6 * np.sqrt(246)


def test_neighbouring_runs_do_not_repeat_each_other():
    places = rows_of(deal_of([0.9], 0), 1, 100_000) % 10
    same = (places[1:] == places[:-1]).mean()
    assert 0.08 < same < 0.12


def test_seeds_differ():
    first, second = (rows_of(deal_of([0.9], seed), 1, 10_000) for seed in (0, 1))
    assert 0.05 < (first == second).mean() < 0.15


def test_which_rows_a_part_has_never_changes():
    """Golden: only an announced break may change them."""
    assert rows_of(deal_of([0.9], 0), 1, 95).tolist() == GOLDEN_TENTH
    assert rows_of(deal_of([0.8, 0.1], 7), 1, 60).tolist() == GOLDEN_MIDDLE
    assert rows_of(deal_of([0.123], 0), 0, 5000)[::100].tolist() == GOLDEN_UNEVEN


def test_a_large_number_of_rows_needs_no_table():
    deal = deal_of([0.9], 0)
    last = deal.size(0, 10**15) - 1
    out = np.array([0, last])
    deal.choice(0, 10**15).rows(out, out)
    assert 10**15 - 10 <= out[1] < 10**15


@pytest.mark.parametrize(
    ("fractions", "run_rows", "edges"),
    [
        ([0.9], 10, (0, 9, 10)),
        ([0.7, 0.2, 0.1], 10, (0, 7, 9, 10)),
        ([1 / 3, 1 / 3, 1 / 3], 3, (0, 1, 2, 3)),
        ([0.333333, 0.333333, 0.333334], 3, (0, 1, 2, 3)),
        ([np.float32(0.9)], 10, (0, 9, 10)),
        ([Fraction(2, 7)], 7, (0, 2, 7)),
        ([0.99], 100, (0, 99, 100)),
        ([0.9999], 10_000, (0, 9999, 10_000)),
        ([1 / 101, 1 / 103], 10_403, (0, 103, 204, 10_403)),
        ([0.1234, 1 / 7], 35_000, (0, 4319, 9319, 35_000)),
        ([1 / 997, 1 / 991], 10_000, (0, 10, 20, 10_000)),
    ],
)
def test_fractions_are_what_was_meant(fractions: Any, run_rows: int, edges: Any):
    assert deal_of(fractions, 0) == Deal(run_rows, edges, 0)


@pytest.mark.parametrize(
    ("fractions", "kind", "message"),
    [
        ([], TypeError, r"split needs the fraction .* ds.split\(0.9\)"),
        ([1.0], ValueError, "between 0 and 1, got 1.0"),
        ([0.0], ValueError, "between 0 and 1, got 0.0"),
        ([-0.1], ValueError, "between 0 and 1, got -0.1"),
        ([90], ValueError, "Write 0.9 for 90 %"),
        ([float("nan")], TypeError, "must be numbers, .* got nan"),
        ([float("inf")], TypeError, "must be numbers, .* got inf"),
        (["0.9"], TypeError, "must be numbers, .* got '0.9'"),
        ([True], TypeError, "must be numbers, .* got True"),
        ([None], TypeError, "must be numbers, .* got None"),
        ([[0.8, 0.1]], TypeError, r"one by one: write ds.split\(0.8, 0.1\)"),
        ([0.8, 0.3], ValueError, "add up to 1 at most, got 0.8, 0.3, together 1.1"),
        ([0.00001], ValueError, "at least 1/10000 of the rows, got 1e-05"),
        ([0.99999], ValueError, "at least 1/10000 of the rows, got 0.99999"),
    ],
)
def test_fractions_that_can_not_be_are_refused(fractions: Any, kind: Any, message: str):
    with pytest.raises(kind, match=message):
        deal_of(fractions, 0)
