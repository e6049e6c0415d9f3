"""Short functions at the end of a chain: the same elements as from blocks, each the consumer's own."""

import json

import numpy as np
import pytest

import penstock as ps
from penstock.core.nest import flatten
from penstock.engine.plan import make_plan
from penstock.engine.stream.stream import Stream

X = np.arange(600, dtype=np.float32).reshape(100, 6)
Y = np.arange(100, dtype=np.int32)
MEAN = X.mean(0)
BUFFER = np.zeros((7, 6), np.float32)
STASH = [np.zeros((7, 6), np.float32)]


def into_the_same_array(x, y):
    BUFFER[: len(x)] = x
    return BUFFER[: len(x)], y


def one_behind(x, y):
    STASH.append(x)
    return STASH[-2] if STASH[-2].shape == x.shape else x.copy(), y


FUNCTIONS = {
    "a new array": lambda x, y: (x - MEAN, y),
    "a dict": lambda x, y: {"x": x * 2, "y": y},
    "a nest": lambda x, y: {"in": (x + 1, x[:, 0]), "y": y},
    "bare": lambda x, y: x.sum(axis=1),
    "a number": lambda x, y: (float(x.sum()), int(y[0])),
    "text": lambda x, y: (str(y[0]), x + 0),
    "views": lambda x, y: (x[:, ::2], y[:]),
    "twice": lambda x, y: (x, x, y),
    "the same array": into_the_same_array,
    "another dtype": lambda x, y: (x * 2, (y > 3).astype(np.int64)),
    "Fortran order": lambda x, y: (np.asfortranarray(x), y),
}


def by_blocks(ds, epoch=0):
    with Stream(make_plan(ds.node, ds.options), epoch=epoch) as stream:
        return list(stream)


def as_tuple(element):
    leaves, structure = flatten(element)
    return str(structure), [(np.asarray(leaf).dtype, np.asarray(leaf).tolist()) for leaf in leaves]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elements_are_those_of_blocks(name, threads):
    ds = ps.from_arrays((X, Y)).shuffle(seed=1).batch(7).map(FUNCTIONS[name])
    ds = ds.with_options(threads=threads)
    for epoch in (0, 3):
        with ds.stream(epoch=epoch) as stream:
            found = list(stream)  # All of them: what one has must not change with the next.
            assert stream._engine.hand_over is not None
        expected = by_blocks(ds, epoch)
        assert list(map(as_tuple, found)) == list(map(as_tuple, expected))
        for element, other in zip(found, expected, strict=True):
            for leaf, same in zip(flatten(element)[0], flatten(other)[0], strict=True):
                assert type(leaf) is type(same)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_writing_into_one_element_shows_in_no_other_and_not_in_the_source(name):
    x, y = X.copy(), Y.copy()
    ds = ps.from_arrays((x, y)).batch(7, drop_remainder=True).map(FUNCTIONS[name])
    expected = [as_tuple(element) for element in ds]
    seen = []
    for element in ds:
        seen.append(as_tuple(element))
        for leaf in flatten(element)[0]:
            if isinstance(leaf, np.ndarray):
                assert leaf.flags.writeable
                leaf[...] = 77
    assert seen == expected
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_an_array_that_the_function_kept_is_copied():
    del STASH[1:]
    ds = ps.from_arrays((X, Y)).batch(7, drop_remainder=True).map(one_behind)
    found = list(ds)
    for element in found:
        assert not any(np.shares_memory(element[0], kept) for kept in STASH)
    assert not any(np.shares_memory(a[0], b[0]) for k, a in enumerate(found) for b in found[:k])


@pytest.mark.parametrize("threads", [0, 2])
def test_maps_after_each_other_and_seeds(threads):
    ds = ps.from_arrays((X, Y)).shuffle(seed=1).batch(7)
    ds = ds.map(lambda x, y: (x + 1, y)).map(lambda x, y, rng: (x + rng.random(), y), seed=5)
    ds = ds.map(lambda x, y: {"x": x, "y": y}).with_options(threads=threads)
    with ds.stream(epoch=2) as stream:
        found = [as_tuple(element) for element in stream]
        report = stream.report()
    assert found == [as_tuple(element) for element in by_blocks(ds, 2)]
    assert [stage.num_rows for stage in report.stages if stage.call.startswith("map")] == [15] * 3
    assert all(stage.seconds > 0 for stage in report.stages if stage.call.startswith("map"))
    again = stream.report()
    assert again.stages == report.stages


def test_it_goes_on_from_every_state():
    ds = (
        ps.from_arrays((X, Y))
        .shuffle(seed=1)
        .batch(7)
        .map(lambda x, y, r: (x + r.random(), y), seed=3)
    )
    elements = [as_tuple(element) for element in ds.stream(epoch=1)]
    with ds.stream(epoch=1) as stream:
        for done in range(len(elements)):
            state = json.loads(json.dumps(stream.state()))
            assert [as_tuple(e) for e in ds.stream(state=state)] == elements[done:]
            assert [
                as_tuple(e) for e in ds.with_options(processes=0).stream(state=state)
            ] == elements[done:]
            next(stream)


def test_the_report_says_so_and_counts_the_functions_time_as_waiting():
    ds = ps.from_arrays(np.zeros((50_000, 10))).batch(10).map(lambda x: x + 1)
    with ds.stream() as stream:
        for _ in stream:
            pass
        report = stream.report()
    assert any("at the hand-over" in decision.what for decision in report.decisions)
    own = next(stage for stage in report.stages if stage.call.startswith("map"))
    assert own.num_rows == 5000
    assert 0 < own.seconds <= report.waited_seconds <= report.seconds


def test_a_failure_has_the_row_and_the_users_traceback_and_ends_the_stream():
    def fail(x, y):
        if y[0] == 35:
            raise ZeroDivisionError("by me")
        return x, y

    stream = ps.from_arrays((X, Y)).batch(7).map(fail).stream()
    for _ in range(5):
        next(stream)  # Those before it come.
    with pytest.raises(
        ps.FunctionError, match=r"map\(fail\).*batch 5.*ZeroDivisionError: by me"
    ) as e:
        next(stream)
    assert isinstance(e.value.__cause__, ZeroDivisionError)
    with pytest.raises(ps.StreamClosedError):
        next(stream)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (lambda x, y: (x, y, y), "nest"),
        (lambda x, y: None, "nest"),
        (lambda x, y: (x[:, :2], y), r"field '0'.*shape \(7, 2\)"),
        (lambda x, y: (x.astype(np.float64), y), "field '0'.*float64"),
    ],
)
def test_another_result_than_that_of_the_first_batch_is_refused(result, text):
    def change(x, y):
        return (x + 0, y) if y[0] < 35 else result(x, y)

    ds = ps.from_arrays((X, Y)).batch(7).map(change)
    with pytest.raises(ps.SpecMismatchError, match=f"(?s)batch 5.*{text}"):
        list(ds)


def test_a_stop_iteration_of_the_functions_own_is_an_error():
    def stop(x):
        if x[0] > 50:
            raise StopIteration
        return x + 1

    with pytest.raises(ps.FunctionError, match="StopIteration"):
        list(ps.from_arrays(Y).batch(7).map(stop))


def test_long_functions_are_not_called_at_the_hand_over():
    import time

    def slow(x):
        time.sleep(0.001)
        return x + 1

    with ps.from_arrays(X).batch(7).map(slow).stream() as stream:
        assert stream._engine.hand_over is None
        assert len(list(stream)) == 15
    with (
        ps.from_arrays(X).batch(7).map(lambda x: x + 1).with_options(processes=1).stream() as stream
    ):
        assert stream._engine.hand_over is None
        next(stream)


def test_large_arrays_start_on_64_bytes():
    ds = ps.from_arrays(np.zeros((4000, 100))).batch(1000).map(lambda x: x * 2)
    for batch in ds:
        assert batch.ctypes.data % 64 == 0
