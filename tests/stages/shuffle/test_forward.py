"""A shuffle of rows that only flow: each window holds the rows that came, in an order of its own."""

import numpy as np
import pytest
from tests.conformance import run

import penstock as ps

ROW_NBYTES = 8


def flow(num_rows: int = 100) -> ps.Dataset:
    return ps.from_generator(lambda: iter(range(num_rows)), ps.ArraySpec((), "int64"))


def test_a_window_holds_the_rows_that_follow_each_other():
    found = [int(row) for row in run(flow().shuffle(seed=2, window=10 * ROW_NBYTES))]
    for start in range(0, 100, 10):
        window = found[start : start + 10]
        assert sorted(window) == list(range(start, start + 10))
    assert found != sorted(found)
    orders = {tuple(np.array(found[i : i + 10]) - i) for i in range(0, 100, 10)}
    assert len(orders) > 5


def test_each_epoch_and_seed_has_an_order_of_its_own():
    orders = [
        tuple(map(int, run(flow().shuffle(seed=seed), epoch=epoch)))
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len(set(orders)) == 4
    assert all(sorted(order) == list(range(100)) for order in orders)


@pytest.mark.parametrize("done", [0, 3, 10, 57, 99])
def test_it_goes_on_from_any_row_of_any_window(done: int):
    ds = flow().shuffle(seed=2, window=10 * ROW_NBYTES)
    with ds.stream() as stream:
        for _ in range(done):
            next(stream)
        state = stream.state()
        rest = [int(row) for row in stream]
    with ds.stream(state=state) as again:
        assert [int(row) for row in again] == rest


def test_an_exact_order_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"needs random access.*Write \.cache\(\)\.shuffle\(\)"):
        flow().shuffle(exact=True)
