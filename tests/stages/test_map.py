"""map: what a function is given, what it may return, and how often it is called."""

from typing import Any, NamedTuple

import numpy as np
from tests.conformance import run
from tests.stages.conformance import (
    MAPPED,
    NUM_ROWS,
    RAGGED_ROWS,
    RAGGED_SPEC,
    ROWS,
    Chain,
    StageConformance,
    batches,
    cases,
    numbered,
    ragged,
    scaled,
)

import penstock as ps


def batch_scaled(x: Any, y: Any) -> Any:
    return x * 2, y + 1


CHAINS: dict[str, Chain] = {
    "map": Chain(lambda ds: ds.map(scaled), MAPPED),
    "map with a spec": Chain(lambda ds: ds.map(ragged, spec=RAGGED_SPEC), RAGGED_ROWS),
    "map of batches": Chain(
        lambda ds: ds.batch(5).map(batch_scaled),
        [(x * 2, y + 1) for x, y in batches(ROWS, 5)],
    ),
    "map to nothing": Chain(lambda ds: ds.map(lambda *_: ()), [()] * NUM_ROWS, is_pickled=False),
}


class TestMap(StageConformance):
    case = cases(CHAINS)


def noisy(x: Any, y: Any, random: np.random.Generator) -> Any:
    return y * 1000 + random.integers(1000)


def test_a_seeded_map_depends_on_seed_epoch_and_row_alone():
    ds = numbered().map(noisy, seed=1)
    first = [int(v) for v in run(ds)]
    assert [int(v) for v in run(ds.with_options(threads=0))] == first
    assert [int(v) for v in run(ds.skip(5))] == first[5:]
    assert [int(v) for v in run(ds, epoch=1)] != first
    assert [int(v) for v in run(numbered().map(noisy, seed=2))] != first
    assert [int(v) for v in run(ds.repeat(2))][:NUM_ROWS] == first
    assert [int(v) for v in run(ds.repeat(2))][NUM_ROWS:] == [int(v) for v in run(ds, epoch=1)]
    assert [int(v) for v in run(ds.cache(), epoch=1)] == first


def test_map_runs_once_a_row_and_once_more_when_the_chain_is_built():
    calls: list[int] = []
    ds = ps.from_arrays(np.arange(50)).map(lambda x: (calls.append(int(x)), x)[1])
    assert calls == [0]
    list(ds.with_options(processes=0))  # Else it is measured first, on the first row.
    assert sorted(calls[1:]) == list(range(50))


def test_map_with_a_spec_is_not_run_when_the_chain_is_built():
    def fails(x: Any) -> Any:
        raise AssertionError

    ds = ps.from_arrays(np.arange(5)).map(fails, spec=ps.ArraySpec((), "f4"))
    assert ds.spec == ps.ArraySpec((), "f4")


def test_map_may_return_one_array_again_and_again():
    buffer = np.zeros(2)

    def fill(x: Any) -> Any:
        buffer[:] = x
        return buffer

    for spec in (ps.ArraySpec((2,), "f8"), ps.ArraySpec((None,), "f8")):
        ds = ps.from_arrays(np.arange(4.0)).map(fill, spec=spec).with_options(threads=0)
        assert [row.tolist() for row in ds] == [[i, i] for i in range(4)]


def test_map_of_fixed_width_text_gives_text():
    ds = ps.from_arrays(np.array(["a", "bcd"], "U5")).map(lambda s: s + "!")
    assert ds.spec == ps.ArraySpec((), str)
    assert list(ds) == ["a!", "bcd!"]
    assert list(ps.from_arrays(np.array([b"a", b"bcd"])).map(lambda s: s)) == [b"a", b"bcd"]


def test_map_of_batches_of_text_without_rows_can_be_built():
    ds = ps.from_arrays(["a", "b"]).batch(2).take(0).map(lambda batch: batch)
    assert list(ds) == []


def test_map_may_change_its_rows_in_place():
    array = np.zeros((6, 2))

    def change(x: Any) -> Any:
        x += 1
        return x

    ds = ps.from_arrays(array).map(change)
    assert sum(float(x.sum()) for x in ds) == 12
    assert array.sum() == 0


def test_map_gets_a_named_tuple_and_a_dict_whole_and_a_tuple_in_parts():
    class Pair(NamedTuple):
        a: Any
        b: Any

    x = np.arange(3)
    assert [int(v) for v in ps.from_arrays(Pair(x, x)).map(lambda p: p.a + p.b)] == [0, 2, 4]
    assert [int(v) for v in ps.from_arrays({"a": x}).map(lambda d: d["a"])] == [0, 1, 2]
    assert [int(v) for v in ps.from_arrays((x, (x, x))).map(lambda a, bc: a + bc[1])] == [0, 2, 4]
