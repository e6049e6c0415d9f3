"""A shuffle behind the cache of a flow: that of the same rows in memory, once the cache is full."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import run

import penstock as ps

NUM_ROWS = 500
Cached = Callable[[ps.Dataset], ps.Dataset]


def even() -> ps.Dataset:
    return ps.from_arrays(np.arange(2 * NUM_ROWS)).filter(lambda x: x % 2 == 0)


@pytest.fixture(params=["in memory", "on disk"])
def cached(request: pytest.FixtureRequest, tmp_path: Path) -> Cached:
    path = None if request.param == "in memory" else tmp_path / "cache"
    return lambda ds: ds.cache(path)


def test_it_is_the_shuffle_of_the_rows_that_passed(cached: Cached):
    expected = ps.from_arrays(np.arange(0, 2 * NUM_ROWS, 2)).shuffle(seed=4)
    for epoch in range(2):
        found = run(cached(even()).shuffle(seed=4), epoch=epoch)
        assert [int(row) for row in found] == [int(row) for row in run(expected, epoch=epoch)]


def test_it_goes_on_from_the_middle(cached: Cached):
    ds = cached(even()).shuffle(seed=4).batch(7)
    with ds.stream() as stream:
        for _ in range(11):
            next(stream)
        state = stream.state()
        rest = [batch.tolist() for batch in stream]
    with ds.stream(state=state) as again:
        assert [batch.tolist() for batch in again] == rest


def test_explain_says_when_it_is_exact(cached: Cached, request: pytest.FixtureRequest):
    text = str(cached(even()).shuffle().explain())
    assert "once the cache is full" in text


def test_rows_on_disk_can_be_shuffled_exactly(tmp_path: Path):
    ds = even().cache(tmp_path / "cache").shuffle(seed=4, exact=True, window=800)
    expected = run(ps.from_arrays(np.arange(0, 2 * NUM_ROWS, 2)).shuffle(seed=4))
    assert [int(row) for row in run(ds)] == [int(row) for row in expected]
