"""Residues: what is wanted of rows that shards, skips and repeats are made of, against counting it out."""

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.residues import Residue

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("shift"), st.integers(-9, 9)),
        st.tuples(st.just("deal"), st.integers(1, 4), st.integers(0, 3)),
        st.tuples(st.just("pass"), st.integers(1, 3), st.integers(1, 13)),
    ),
    max_size=4,
)


def counted(steps, rows, epoch):
    """The numbers that rows have in the innermost input, and the epoch that each of them is of there."""
    numbers, epochs = rows, np.full(len(rows), epoch)
    for kind, *values in steps:
        if kind == "shift":
            numbers = numbers + values[0]
        elif kind == "deal":
            numbers = numbers * values[0] + values[1] % values[0]
        else:
            count, size = values
            passes, numbers = np.divmod(numbers, size)
            epochs = epochs * count + passes % count
    return numbers, epochs


@given(STEPS, st.integers(1, 6), st.integers(0, 5), st.integers(0, 3))
def test_wanted_rows_have_the_remainder_that_is_told(steps, modulus, rank, epoch):
    wanted = Residue(modulus, rank)
    for kind, *values in steps:
        if kind == "shift":
            wanted = wanted.shifted(values[0])
        elif kind == "deal":
            wanted = wanted.dealt(values[0], values[1] % values[0])
        else:
            wanted = wanted.in_passes(*values)
    # As many rows as the passes have; a repeat has no more.
    rows = np.arange(rank % modulus, 200, modulus)
    for place, (kind, *values) in enumerate(steps):
        if kind == "pass":
            reached, _ = counted(steps[:place], rows, epoch)
            rows = rows[(reached >= 0) & (reached < values[0] * values[1])]
    numbers, epochs = counted(steps, rows, epoch)
    for number, at in zip(numbers.tolist(), epochs.tolist(), strict=True):
        assert number % wanted.modulus == wanted.of(at)
    assert pickle.loads(pickle.dumps(wanted)) == wanted


def test_a_coarser_one_wants_more():
    fine = Residue(12, 7)
    assert (fine.coarser(4).of(0), fine.coarser(1).of(0)) == (3, 0)
