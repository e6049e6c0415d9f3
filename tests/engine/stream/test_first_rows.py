"""The first rows, of any pipeline: those that a stream gives, without a stream, and hardly more is read."""

import threading

import numpy as np
import pytest
from tests.conformance import assert_same

import penstock as ps
from penstock.core.nest import flatten
from penstock.core.read_count import ReadCount

X = np.arange(4000.0).reshape(1000, 4)


def leaves(row: object) -> tuple:
    return tuple(flatten(row)[0])


def chains(folder):
    np.save(folder / "x.npy", X)
    files = ps.from_files(folder / "x.npy")
    flow = ps.from_generator(lambda: iter(X), ps.ArraySpec((4,), "float64"))
    return {
        "arrays": ps.from_arrays(X),
        "nest": ps.from_arrays((X, {"y": np.arange(1000), "z": list("ab" * 500)})),
        "shuffled": ps.from_arrays(X).shuffle(seed=3),
        "windows": files.shuffle(seed=3, window=8000),
        "exact": files.shuffle(seed=3, window=8000, exact=True),
        "map": files.map(lambda x: x * 2),
        "flow": flow.map(lambda x: x + 1).skip(2),
        "filter": files.filter(lambda x: x[0] > 100),
        "cache": flow.cache(),
        "zip": ps.zip(files, ps.from_arrays(np.arange(1000))),
        "mix": ps.mix([files, ps.from_arrays(X)], weights=[1, 2], seed=0),
        "endless": files.repeat(),
        "few": files.take(3),
        "ragged": ps.from_arrays([np.arange(n % 5) for n in range(50)]),
        "skipping": files.with_options(on_error="skip"),
        "processes": files.map(np.sqrt).with_options(processes=2),
    }


def test_they_are_the_rows_that_a_stream_begins_with_and_no_thread_is_started(
    tmp_path, monkeypatch
):
    found = chains(tmp_path)
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was started"))
    peeks = {name: ds.peek() for name, ds in found.items()}
    monkeypatch.undo()
    for name, ds in found.items():
        with ds.stream() as stream:
            wanted = [leaves(next(stream)) for _ in range(len(peeks[name].rows))]
        assert_same(peeks[name].rows, wanted)
        assert len(peeks[name].rows) == (3 if name == "few" else 5), name
    assert peeks["few"].title == "all 3 rows"
    assert peeks["endless"].title == "the first 5 rows"
    assert peeks["arrays"].title == "the first 5 of 1000 rows"
    for ds in found.values():
        ds.close()


def test_of_batches_they_are_the_first_rows_of_the_first_batch():
    ds = ps.from_arrays((X, ["a", "b"] * 500)).batch(8)
    found = ds.peek(3)
    assert found.title == "the first 3 of 8 rows of batch 0 of 125"
    assert [field.shape for field in found.fields] == [(4,), ()]
    assert_same(found.rows, [(X[n], "ab"[n % 2]) for n in range(3)])
    sums = ds.map(lambda x, text: (x, x.sum()))
    assert sums.peek(2).rows[1][1] == X[:8].sum()  # One number for the whole batch.
    padded = ps.from_arrays([np.arange(n) for n in (1, 4)]).padded_batch(2).peek()
    assert_same([row[0] for row in padded.rows], [np.array([0, 0, 0, 0]), np.arange(4)])
    assert padded.fields[0].shape == (None,)


def test_rows_that_come_forward_are_shown_in_their_order_and_said_to_be():
    flow = ps.from_generator(lambda: iter(range(10**9)), ps.ArraySpec((), "int64")).shuffle(seed=0)
    found = flow.peek(3)
    assert [int(row[0]) for row in found.rows] == [0, 1, 2]
    assert "shown in their order" in str(found)


def test_hardly_more_is_read_than_is_shown(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100_000, 100)))
    ds = ps.from_files(tmp_path / "x.npy")
    for one in (ds, ds.shuffle(), ds.shuffle(window="8MB").map(np.sqrt).batch(10)):
        count = ReadCount()
        with count.counting():
            one.peek(5)
        assert 0 < count.nbytes <= 10 * 64_000  # A block of 64 KB for each row, at most, of 80 MB.


def test_a_generator_is_closed_after_the_last_row_that_is_shown():
    ended = []

    def rows():
        try:
            yield from range(10**9)
        finally:
            ended.append(True)

    ps.from_generator(rows, ps.ArraySpec((), "int64")).peek(2)
    assert ended == [True]


def test_large_rows_are_as_many_as_the_budget_has_room_for_and_errors_are_told_as_in_a_stream():
    ds = ps.from_arrays(np.zeros((9, 100_000))).with_options(memory="4MB")
    found = ds.peek()
    assert len(found.rows) == 2
    assert "note: the memory budget has room for 2 at a time." in str(found)
    with pytest.raises(ps.FunctionError, match=r"failed on row 1: ValueError: no"):
        ps.from_arrays(np.arange(4)).map(fails, spec=ps.ArraySpec((), "int64")).peek()
    with pytest.raises(ValueError, match="num_rows must be at least 1, got 0"):
        ds.peek(0)


def fails(x: int) -> int:
    if x == 1:
        raise ValueError("no")
    return x
