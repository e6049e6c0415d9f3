"""flat_map: the rows of what a function returns, be it a list, a generator, arrays or a dataset."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, cases, check, keep

import penstock as ps


def as_list(x: Any, y: Any) -> list[Any]:
    return [(x, y * 10 + i) for i in range(1 + int(y) % 3)]


def as_generator(x: Any, y: Any) -> Iterator[Any]:
    for i in range(int(y) % 4):
        yield {"name": "a" * i, "x": x[:i]}


def as_arrays(x: Any, y: Any) -> Any:
    return np.tile(x, (int(y) % 4, 1)), np.full(int(y) % 4, y)


def as_dataset(x: Any, y: Any) -> ps.Dataset:
    return ps.from_arrays((np.tile(x, (int(y) % 4, 1)), np.arange(int(y) % 4))).shuffle(seed=0)


NAMED = {"name": ps.ArraySpec((), str), "x": ps.ArraySpec((None,), "f4")}
PAIR = (ps.ArraySpec((3,), "f4"), ps.ArraySpec((), "int64"))
CHAINS = {
    "a list": Chain(lambda ds: ds.flat_map(as_list), [r for row in ROWS for r in as_list(*row)]),
    "a generator": Chain(
        lambda ds: ds.flat_map(as_generator, spec=NAMED),
        [r for row in ROWS for r in as_generator(*row)],
    ),
    "arrays": Chain(
        lambda ds: ds.flat_map(as_arrays),
        [r for row in ROWS for r in zip(*as_arrays(*row), strict=True)],
    ),
}
LIMITS = {
    "a dataset": Chain(
        lambda ds: ds.flat_map(as_dataset, spec=PAIR),
        [r for row in ROWS for r in run(as_dataset(*row))],
    ),
    "nothing at all": Chain(lambda ds: ds.flat_map(lambda x, y: [], spec=PAIR), []),
}


class TestFlatMap(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


@pytest.mark.parametrize("kind", ["list", "arrays", "texts", "dataset", "flow"])
@pytest.mark.parametrize("memory", ["64MB", "400KB"])
def test_it_goes_on_exactly_from_every_state_within_long_results(kind: str, memory: str):
    def rows(n: Any) -> Any:
        values = np.arange(n * 100, n * 100 + n * 7 % 80)
        if kind == "list":
            return values.tolist()
        if kind == "arrays":
            return values
        if kind == "texts":
            return [str(value) * 3 for value in values]
        ds = ps.from_arrays(values)
        return ds.filter(keep) if kind == "flow" else ds.shuffle(seed=int(n))

    spec = ps.ArraySpec((), str if kind == "texts" else "int64")
    ds = ps.from_arrays(np.arange(12)).flat_map(rows, spec=spec)
    ds = ds.with_options(memory=memory)
    with ds.stream(epoch=1) as stream:
        states, found = [stream.state()], []
        for row in stream:
            found.append(row)
            states.append(stream.state())
    assert len(found) == sum(n * 7 % 80 for n in range(12))
    for done in [*range(0, len(states), 41), len(states) - 2, len(states) - 1]:
        state = json.loads(json.dumps(states[done]))
        rest = found[done:] if done < len(found) else run(ds, epoch=2)
        assert_same(run(ds.with_options(threads=done % 2), state=state), rest)


def test_long_results_are_held_a_block_at_a_time():
    def many(n: Any) -> Iterator[Any]:
        return (np.full(1000, i) for i in range(3000))  # 24 MB.

    ds = ps.from_arrays(np.arange(2)).flat_map(many, spec=ps.ArraySpec((1000,), "int64"))
    ds = ds.with_options(memory="4MB")
    with ds.stream() as stream:
        assert sum(int(row[0]) for row in stream) == 2 * sum(range(3000))
        assert stream.report().peak_nbytes <= 4_000_000
    arrays = ps.from_arrays(np.arange(2)).flat_map(lambda n: np.zeros((3000, 1000)))
    with arrays.with_options(memory="4MB").stream() as stream:
        assert sum(1 for _ in stream) == 6000


def test_generators_are_closed_wherever_a_stream_stops():
    closed = []

    def rows(n: Any) -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.append(int(n))

    ds = ps.from_arrays(np.arange(3)).flat_map(rows, spec=ps.ArraySpec((), "int64"))
    with ds.with_options(threads=0).stream() as stream:
        next(stream)
    assert closed == [0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda n: None, "must return rows, got NoneType. Did it forget to return something?"),
        (lambda n: "text", "must return rows, got str"),
        (lambda n: 7, "must return rows, got int"),
        (
            lambda n: (1, 2),
            r"first axis are the rows, of one length. For single rows, return a list",
        ),
        (lambda n: (np.zeros(2), np.zeros(3)), r"shapes \[\(2,\), \(3,\)\].*of one length"),
        (lambda n: [], "returned no rows.*give spec="),
        (lambda n: [object()], "must be a number, an array, bytes or str"),
    ],
)
def test_what_is_no_rows_is_refused_when_the_chain_is_built(function: Any, message: str):
    with pytest.raises(ps.SpecMismatchError, match=f"(?s)flat_map.*row 0.*{message}"):
        ps.from_arrays(np.arange(3)).flat_map(function)


def test_rows_that_are_not_as_declared_are_an_error_that_names_function_and_row():
    def growing(n: Any) -> list[Any]:
        return [np.zeros(int(n) + 1)]

    with pytest.raises(ps.SpecMismatchError, match=r"flat_map\(growing\).*row 1.*give spec="):
        run(ps.from_arrays(np.arange(3)).flat_map(growing))
    with pytest.raises(ps.SpecMismatchError, match=r"row 1.*dataset of ArraySpec\(\(2,\)"):
        run(ps.from_arrays(np.arange(3)).flat_map(lambda n: ps.from_arrays(np.zeros((2, n + 1)))))
    with pytest.raises(TypeError, match=r"spec must be a nest of ArraySpec.* got 3"):
        ps.from_arrays(np.arange(3)).flat_map(growing, spec=3)


def test_a_function_that_fails_is_raised_or_its_rows_are_skipped():
    def picky(n: Any) -> Iterator[Any]:
        yield n
        if n == 2:
            raise ValueError("two")
        yield n

    ds = ps.from_arrays(np.arange(4)).flat_map(picky)
    with pytest.raises(ps.FunctionError, match=r"flat_map\(picky\).*failed on row 2.*two"):
        run(ds)
    skipping = ds.with_options(on_error="skip")
    with skipping.stream() as stream:
        assert list(map(int, stream)) == [0, 0, 1, 1, 2, 3, 3]
        assert stream.report().num_skipped == 1


@pytest.mark.parametrize("cursor", [[0, 9, 0, None], [5, 0, 5, None], [0, 1, 0], "x"])
def test_a_state_that_was_changed_is_refused(cursor: Any):
    ds = ps.from_arrays(np.arange(3)).flat_map(lambda n: np.arange(3))
    with ds.stream() as stream:
        next(stream)
        state = stream.state()
    with pytest.raises(ps.StateError, match="was changed"):
        run(ds, state={**state, "cursor": cursor})


def test_it_gives_what_tf_data_gives():
    tf = pytest.importorskip("tensorflow")
    x = np.array([3, 0, 2, 5])
    ours = ps.from_arrays(x).flat_map(lambda n: ps.from_arrays(np.arange(n))).batch(4)
    theirs = tf.data.Dataset.from_tensor_slices(x).flat_map(tf.data.Dataset.range).batch(4)
    assert_same(run(ours), list(theirs.as_numpy_iterator()))
    pairs = np.arange(12).reshape(4, 3)
    ours = ps.from_arrays(pairs).flat_map(lambda row: row)
    theirs = tf.data.Dataset.from_tensor_slices(pairs).flat_map(tf.data.Dataset.from_tensor_slices)
    assert_same(run(ours), list(theirs.as_numpy_iterator()))
