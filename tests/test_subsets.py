"""Datasets of some rows: what is told when rows would get from validation into training."""

import warnings

import numpy as np
import pytest

import penstock as ps

LIVE = {
    "shuffle": lambda: rows().shuffle(),
    "shuffle, batch": lambda: rows().shuffle().batch(8),
    "shuffle, map": lambda: rows().shuffle().map(lambda x: x),
    "shuffled flow": lambda: rows().filter(lambda x: True).shuffle(),
    "shuffle, repeat": lambda: rows().shuffle().repeat(2),
    "zipped": lambda: ps.zip(rows().shuffle(), rows().shuffle()),
}
FROZEN = {
    "no shuffle": lambda: rows(),
    "cached": lambda: rows().shuffle().cache(),
    "cached, noise": lambda: rows().shuffle().cache().map(lambda x, rng: x + rng.random(), seed=0),
    "noise": lambda: rows().map(lambda x, rng: x + rng.random(), seed=0),
    "parts": lambda: rows().split(0.5)[0],
}


def rows() -> ps.Dataset:
    return ps.from_arrays(np.arange(100))


@pytest.mark.parametrize("name", LIVE)
def test_skip_behind_a_shuffle_warns_at_the_line_of_the_user(name: str):
    ds = LIVE[name]()
    with pytest.warns(ps.PenstockWarning, match=r"skip\(3\) behind shuffle") as caught:
        ds.skip(3)
    assert caught[0].filename == __file__
    assert "train, valid = ds.split(0.9, seed=0)" in str(caught[0].message)


@pytest.mark.parametrize("name", FROZEN)
def test_skip_of_rows_that_stay_where_they_are_does_not_warn(name: str):
    ds = FROZEN[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.skip(3)


@pytest.mark.parametrize("name", LIVE)
def test_a_short_epoch_and_skips_of_nothing_do_not_warn(name: str):
    """take() alone is a short epoch, which is often meant; the mistake is only made with skip() beside it."""
    ds = LIVE[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.take(3)
        ds.skip(0)
        ds.skip(-1)


def even(number: int, _: object) -> bool:
    return number % 2 == 0


def test_a_filter_by_numbers_behind_a_shuffle_warns_too():
    with pytest.warns(
        ps.PenstockWarning, match=r"numbers of enumerate\(\) behind shuffle"
    ) as caught:
        rows().shuffle().enumerate().filter(even)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows().enumerate().filter(even).shuffle()
        rows().enumerate().shuffle().filter(even)  # The numbers go with their rows.
        rows().shuffle().cache().enumerate().filter(even)


def test_the_warning_is_true_and_split_does_not_leak():
    shuffled = ps.from_arrays(np.arange(20)).shuffle()
    with pytest.warns(ps.PenstockWarning, match="behind shuffle"):
        train, valid = shuffled.skip(5), shuffled.take(5)
    leaked = {int(x) for x in train.stream(epoch=1)} & {int(x) for x in valid.stream(epoch=0)}
    assert leaked
    train, valid = ps.from_arrays(np.arange(20)).split(0.75)
    assert not {int(x) for x in train.shuffle().stream(epoch=1)} & set(map(int, valid))
