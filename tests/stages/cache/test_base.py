"""Rows that flow into a cache: there is random access to them from then on, and they are read once."""

from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import keep

import penstock as ps

NUM_ROWS = 3000  # In memory they are a dozen blocks.
WORDS = [f"{i}é" * (i % 4) for i in range(NUM_ROWS)]
RAGGED = [np.arange(i % 5, dtype="i2") for i in range(NUM_ROWS)]


def rows() -> ps.Dataset:
    return ps.from_arrays({"n": np.arange(NUM_ROWS), "t": WORDS, "r": RAGGED})


@pytest.fixture(params=["in memory", "on disk"])
def cached(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    path = () if request.param == "in memory" else (tmp_path / "cache",)
    return lambda ds: ds.cache(*path)


def test_a_shuffle_of_what_flowed_into_a_cache_is_that_of_rows_in_memory(cached: Any):
    ds = cached(rows().filter(keep))
    for epoch in (0, 1):
        expected = run(rows().shuffle(seed=3), epoch=epoch)
        assert_same(run(ds.shuffle(seed=3), epoch=epoch), expected)


def test_whatever_reads_it_and_in_whatever_order_the_flow_is_read_once(cached: Any):
    calls: list[int] = []

    def is_even(row: Any) -> bool:
        calls.append(int(row["n"]))
        return bool(row["n"] % 2 == 0)

    # No processes: the function would be tried out first.
    ds = cached(rows().filter(is_even)).with_options(processes=0)
    assert sorted(int(row["n"]) for row in ds.shuffle(seed=1)) == list(range(0, NUM_ROWS, 2))
    assert [int(row["n"]) for row in ds.skip(1400)] == list(range(2800, NUM_ROWS, 2))
    assert sum(len(batch["n"]) for batch in ds.shuffle(seed=2).padded_batch(64)) == NUM_ROWS // 2
    assert sorted(calls) == list(range(NUM_ROWS))


def test_a_shuffle_of_it_goes_on_from_the_middle(cached: Any):
    ds = cached(rows().filter(keep)).shuffle(seed=5).padded_batch(100)
    expected = run(ds)
    with ds.stream() as stream:
        for _ in range(13):
            next(stream)
        state = stream.state()
    assert_same(run(ds, state=state), expected[13:])
