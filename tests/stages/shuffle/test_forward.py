"""A shuffle of rows that only flow: each window holds the rows that came, in an order of its own."""

import warnings

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


@pytest.mark.parametrize(("num_rows", "last"), [(100, 10), (101, 11), (102, 12), (103, 3), (9, 9)])
def test_few_rows_that_are_left_at_the_end_join_the_window_before_them(num_rows: int, last: int):
    found = [int(row) for row in run(flow(num_rows).shuffle(window=10 * ROW_NBYTES))]
    assert sorted(found) == list(range(num_rows))
    assert sorted(found[-last:]) == list(range(num_rows - last, num_rows))
    assert min(found[-last:]) >= num_rows - last


def texts(lengths: list[int]) -> ps.Dataset:
    words = [f"{number:04}".ljust(length, "x") for number, length in enumerate(lengths)]
    rows = [(word, number) for number, word in enumerate(words)]
    return ps.from_generator(lambda: iter(rows), (ps.ArraySpec((), str), ps.ArraySpec((), "int64")))


@pytest.mark.parametrize("block", ["1KB", "100KB"])
def test_windows_of_rows_that_differ_in_size_are_cut_by_bytes(block: str):
    """Each row counts with its text, its number and 16 bytes; how rows arrive makes no difference."""
    lengths = [10] * 300 + [5000] * 10 + [100_000] + [10] * 300 + [40_000] * 3
    limit = 20_000
    ds = texts(lengths).shuffle(seed=1, window=limit)
    options = {} if block == "100KB" else {"threads": 0, "memory": "20MB"}
    found = [number for _, number in run(ds.with_options(**options))]
    assert sorted(found) == list(range(len(lengths)))
    windows, total = [[]], 0
    for number, length in enumerate(lengths):
        size = length + 8 + 16
        if total + size > limit and windows[-1]:
            windows.append([])
            total = 0
        windows[-1].append(number)
        total += size
    start = 0
    for window in windows:
        assert sorted(found[start : start + len(window)]) == window
        start += len(window)
    for word, number in run(ds):
        assert int(word[:4]) == number
        assert len(word) == max(4, lengths[number])


def test_it_goes_on_from_any_row_where_rows_differ_in_size():
    lengths = [(7 * number) % 400 for number in range(120)]
    ds = texts(lengths).shuffle(seed=2, window=5000)
    everything = [int(number) for _, number in run(ds)]
    for done in range(0, 121, 7):
        with ds.stream() as stream:
            for _ in range(done):
                next(stream)
            state = stream.state()
        with ds.stream(state=state, epoch=state["epoch"]) as again:
            rest = [int(number) for _, number in again]
        assert rest == everything[done:] or (done == 120 and state["epoch"] == 1)


@pytest.mark.parametrize("knows_length", [True, False])
def test_more_than_one_window_is_told_once_with_the_cures(knows_length: bool):
    length = 1000 if knows_length else None
    ds = ps.from_generator(
        lambda: iter(range(1000)), ps.ArraySpec((), "int64"), length=length
    ).shuffle(window=100 * ROW_NBYTES)
    with pytest.warns(ps.PenstockWarning, match=r"mixes rows poorly[\s\S]*\.cache\(\)") as found:
        assert len(list(ds)) == len(list(ds)) == 1000
    assert len(found) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(flow(1000).shuffle())  # One window holds all.


def test_a_shuffle_of_a_cache_on_disk_in_few_blocks_is_told(tmp_path):
    ds = flow(100_000).cache(tmp_path / "a").shuffle(window="100KB")
    with pytest.warns(ps.PenstockWarning, match="mixes rows poorly"):
        assert len(list(ds.batch(100))) == 1000


def test_an_exact_order_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"needs random access.*Write \.cache\(\)\.shuffle\(\)"):
        flow().shuffle(exact=True)
