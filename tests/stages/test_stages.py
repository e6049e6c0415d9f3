"""Every stage passes the conformance suite, after rows and after flows; and what each means."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import (
    INPUTS,
    NUM_ROWS,
    ROWS,
    StageConformance,
    Y,
    batches,
    keep,
    numbered,
)

import penstock as ps
from penstock.core.order import Permutation
from penstock.memory import process_ledger

Make = Callable[[Callable[[], ps.Dataset]], ps.Dataset]


def is_odd(x: Any, y: Any) -> bool:
    return bool(y % 2)


def scaled(x: Any, y: Any) -> dict[str, Any]:
    return {"sum": x.sum(), "x": x * 2, "name": str(y)}


def batch_scaled(x: Any, y: Any) -> Any:
    return x * 2, y + 1


def ragged(x: Any, y: Any) -> Any:
    return np.arange(y % 4)


ODD = [row for row in ROWS if row[1] % 2]
MAPPED = [scaled(*row) for row in ROWS]
RAGGED_SPEC = ps.ArraySpec((None,), "int64")


def order(words: tuple[int, ...], num_rows: int = NUM_ROWS) -> list[int]:
    return [int(i) for i in Permutation(num_rows, words).rows(np.arange(num_rows))]


def shuffled(seed: int, epoch: int, *more: int) -> list[Any]:
    return [ROWS[i] for i in order((seed, epoch, 0, *more))]


def padded(rows: list[Any], size: int, pad: int) -> list[Any]:
    found = []
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        out = np.full((len(group), max(map(len, group))), pad)
        for place, row in zip(out, group, strict=True):
            place[: len(row)] = row
        found.append(out)
    return found


RAGGED_ROWS = [np.arange(y % 4) for y in Y]

# What each stage makes of rows, as a chain and in plain Python. None of these depends on the epoch.
STAGES: dict[str, tuple[Callable[[ps.Dataset], ps.Dataset], list[Any]]] = {
    "nothing": (lambda ds: ds, ROWS),
    "map": (lambda ds: ds.map(scaled), MAPPED),
    "map with a spec": (lambda ds: ds.map(ragged, spec=RAGGED_SPEC), RAGGED_ROWS),
    "map of batches": (
        lambda ds: ds.batch(5).map(batch_scaled),
        [(x * 2, y + 1) for x, y in batches(ROWS, 5)],
    ),
    "map to nothing": (lambda ds: ds.map(lambda *_: ()), [()] * NUM_ROWS),
    "filter": (lambda ds: ds.filter(is_odd), ODD),
    "filter of all": (lambda ds: ds.filter(lambda *_: False), []),
    "batch": (lambda ds: ds.batch(5), batches(ROWS, 5)),
    "batch, no remainder": (
        lambda ds: ds.batch(5, drop_remainder=True),
        batches(ROWS, 5, drop=True),
    ),
    "batch of one": (lambda ds: ds.batch(1), batches(ROWS, 1)),
    "batch of more than all": (lambda ds: ds.batch(100), batches(ROWS, 100)),
    "batch of more than all, dropped": (lambda ds: ds.batch(100, drop_remainder=True), []),
    "batch of text": (lambda ds: ds.map(scaled).batch(4), batches(MAPPED, 4)),
    "batch of batches": (
        lambda ds: ds.batch(3, drop_remainder=True).batch(2),
        batches(batches(ROWS, 3, drop=True), 2),
    ),
    "padded_batch": (
        lambda ds: ds.map(ragged, spec=RAGGED_SPEC).padded_batch(4),
        padded(RAGGED_ROWS, 4, 0),
    ),
    "padded_batch, with a value": (
        lambda ds: ds.map(ragged, spec=RAGGED_SPEC).padded_batch(4, pad=-1),
        padded(RAGGED_ROWS, 4, -1),
    ),
    "padded_batch, no remainder": (
        lambda ds: ds.map(ragged, spec=RAGGED_SPEC).padded_batch(4, drop_remainder=True),
        padded(RAGGED_ROWS[:20], 4, 0),
    ),
    "padded_batch of rows of one shape": (lambda ds: ds.padded_batch(4), batches(ROWS, 4)),
    "unbatch of batches": (lambda ds: ds.batch(4).unbatch(), ROWS),
    "unbatch of whole batches": (lambda ds: ds.batch(4, drop_remainder=True).unbatch(), ROWS[:20]),
    "unbatch of an axis": (
        lambda ds: ds.map(lambda x, y: x).unbatch(),
        [value for x, _ in ROWS for value in x],
    ),
    "unbatch of shuffled batches": (
        lambda ds: ds.map(scaled).batch(4).map(lambda d: d).unbatch(),
        MAPPED,
    ),
    "take": (lambda ds: ds.take(7), ROWS[:7]),
    "take none": (lambda ds: ds.take(0), []),
    "take all": (lambda ds: ds.take(-1), ROWS),
    "take more than all": (lambda ds: ds.take(100), ROWS),
    "skip": (lambda ds: ds.skip(7), ROWS[7:]),
    "skip none": (lambda ds: ds.skip(0), ROWS),
    "skip all": (lambda ds: ds.skip(-1), []),
    "skip more than all": (lambda ds: ds.skip(100), []),
    "repeat": (lambda ds: ds.repeat(3), ROWS * 3),
    "repeat not at all": (lambda ds: ds.repeat(0), []),
    "repeat without end": (lambda ds: ds.repeat().take(50), (ROWS * 3)[:50]),
    "repeat across batches": (lambda ds: ds.repeat(2).batch(5), batches(ROWS * 2, 5)),
    "shard": (lambda ds: ds.shard(1, 4), ROWS[1::4]),
    "shard of one": (lambda ds: ds.shard(0, 1), ROWS),
    "shard with no rows": (lambda ds: ds.shard(40, 50), []),
    "enumerate": (lambda ds: ds.enumerate(), [(np.int64(i), row) for i, row in enumerate(ROWS)]),
    "enumerate from": (
        lambda ds: ds.enumerate(-3),
        [(np.int64(i), row) for i, row in enumerate(ROWS, -3)],
    ),
    "prefetch": (lambda ds: ds.prefetch(2).batch(3), batches(ROWS, 3)),
    "no prefetch": (lambda ds: ds.prefetch(0), ROWS),
    "cache": (lambda ds: ds.cache(), ROWS),
    "cache of text": (lambda ds: ds.map(scaled).cache(), MAPPED),
    "cache of batches": (lambda ds: ds.batch(4).cache(), batches(ROWS, 4)),
    "cache of a filter": (lambda ds: ds.filter(is_odd).cache().batch(3), batches(ODD, 3)),
    "zip": (
        lambda ds: ps.zip(ds, ds.map(scaled)),
        list(zip(ROWS, MAPPED, strict=True)),
    ),
    "zip to the shortest": (
        lambda ds: ps.zip(ds, ds.take(4), strict=False),
        list(zip(ROWS[:4], ROWS[:4], strict=True)),
    ),
    "zip with what never ends": (
        lambda ds: ps.zip(ds, ds.take(4).repeat(), strict=False),
        list(zip(ROWS, (ROWS[:4] * 6)[:NUM_ROWS], strict=True)),
    ),
    "concatenate": (
        lambda ds: ps.concatenate(ds, ds.take(2), ds.skip(20)),
        ROWS + ROWS[:2] + ROWS[20:],
    ),
    "concatenate of nothing": (lambda ds: ps.concatenate(ds.take(0), ds.take(0)), []),
    "concatenate of batches": (
        lambda ds: ps.concatenate(ds.batch(4), ds.take(6).batch(5)),
        batches(ROWS, 4) + batches(ROWS[:6], 5),
    ),
}


# Those that differ from another only in an argument are checked for what they give, in one test.
VARIANTS = [
    name
    for name in STAGES
    if any(
        word in name
        for word in (" none", " all", " one", "dropped", " from", "not at all", "no rows")
    )
]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", VARIANTS)
def test_arguments_at_their_limits(name: str, kind: str):
    build, elements = STAGES[name]
    for threads in (0, 2):
        assert_same(run(build(INPUTS[kind]()).with_options(threads=threads)), elements)


class TestStages(StageConformance):
    @pytest.fixture(params=[name for name in STAGES if name not in VARIANTS])
    def case(self, request: pytest.FixtureRequest, kind: str) -> Case:
        build, elements = STAGES[request.param]
        is_picklable = not any(
            word in request.param for word in ("nothing", "all", "axis", "shuffled")
        )
        return Case(
            lambda: build(INPUTS[kind]()),
            elements,
            has_length=False,
            is_pickled=is_picklable,
        )

    @pytest.fixture(params=INPUTS)
    def kind(self, request: pytest.FixtureRequest) -> str:
        return request.param


# Stages whose elements differ from epoch to epoch.
EPOCHS: dict[str, Case] = {
    "shuffle": Case(lambda: numbered().shuffle(seed=5), shuffled(5, 0), shuffled(5, 1)),
    "shuffle of a flow": Case(
        lambda: numbered().filter(keep).shuffle(seed=5),
        shuffled(5, 0, 0),
        shuffled(5, 1, 0),
        has_length=False,
    ),
    "shuffle of a cache": Case(
        lambda: numbered().filter(keep).cache().shuffle(seed=5),
        shuffled(5, 0),
        shuffled(5, 1),
        has_length=False,
    ),
    "shuffle, then batch": Case(
        lambda: numbered().shuffle(seed=5).batch(4),
        batches(shuffled(5, 0), 4),
        batches(shuffled(5, 1), 4),
    ),
    "shuffle of batches": Case(
        lambda: numbered().batch(4, drop_remainder=True).shuffle(seed=5),
        [batches(ROWS, 4)[i] for i in order((5, 0, 0), 5)],
        [batches(ROWS, 4)[i] for i in order((5, 1, 0), 5)],
    ),
    "shuffle, then repeat": Case(
        lambda: numbered().shuffle(seed=5).repeat(2),
        shuffled(5, 0) + shuffled(5, 1),
        shuffled(5, 2) + shuffled(5, 3),
    ),
    "shuffle, frozen by a cache": Case(
        lambda: numbered().shuffle(seed=5).cache(), shuffled(5, 0), shuffled(5, 0)
    ),
}


class TestStagesThatFollowTheEpoch(StageConformance):
    @pytest.fixture(params=EPOCHS)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return EPOCHS[request.param]

    def test_stages_may_follow_it(self, case: Case) -> None:
        ds = case.make()
        assert_same(run(ds.take(3), epoch=1), case.following[:3])
        assert_same(run(ds.map(lambda *p: p), epoch=1), case.following)
        assert_same(run(ps.zip(ds, ds), epoch=1), [(row, row) for row in case.following])
        assert_same(run(ds.cache(), epoch=1), case.elements)


def test_reduce_folds_the_rows_in_order():
    assert numbered().reduce(lambda seen, row: [*seen, int(row[1])], []) == list(range(NUM_ROWS))
    assert numbered().filter(keep).reduce(lambda count, row: count + 1, 0) == NUM_ROWS
    assert ps.from_arrays(np.arange(0)).reduce(lambda *_: 1, "initial") == "initial"
    with pytest.raises(ZeroDivisionError):
        numbered().reduce(lambda *_: 1 / 0, 0)


@pytest.mark.parametrize("size", [0, 1, 4, 100])
def test_statistics_are_those_of_numpy_whether_batched_or_not(size: int):
    values = np.random.default_rng(1).normal(50, 3, (57, 4)).astype("f4")
    ds = ps.from_arrays({"x": values, "t": ["a"] * 57, "flag": values[:, 0] > 50})
    found = (ds.batch(size) if size else ds).statistics()
    x = found["x"]
    assert x.count == found["t"].count == found["flag"].count == 57
    np.testing.assert_allclose(x.mean, values.astype("f8").mean(0), rtol=1e-12)
    np.testing.assert_allclose(x.variance, values.astype("f8").var(0), rtol=1e-9)
    np.testing.assert_array_equal(x.minimum, values.min(0))
    np.testing.assert_array_equal(x.maximum, values.max(0))
    assert found["flag"].mean == pytest.approx((values[:, 0] > 50).mean())
    assert found["t"].mean is None


def test_statistics_of_other_dtypes():
    dates = np.array(["2020-01-05", "2020-01-01"], "M8[D]")
    found = ps.from_arrays(
        {"d": dates, "c": np.array([1j, 3]), "h": np.array([6e4, 6e4], "f2")}
    ).statistics()
    assert (found["d"].minimum, found["d"].maximum) == (dates[1], dates[0])
    assert found["d"].mean is None
    assert found["c"].mean == 1.5 + 0.5j
    assert found["c"].variance == pytest.approx(2.5)
    assert found["c"].minimum is None
    assert found["h"].mean == pytest.approx(6e4, rel=1e-3)
    assert found["h"].variance == 0


def test_statistics_of_nothing_are_none():
    found = ps.from_arrays(np.zeros((0, 3))).statistics()
    assert found.count == 0
    assert found.mean is None


def test_statistics_of_ragged_rows_count_values():
    found = ps.from_arrays([np.array([1.0, 2.0]), np.array([3.0])]).statistics()
    assert (found.count, found.mean, found.maximum) == (3, 2.0, 3.0)


def test_cache_reads_its_input_once():
    calls: list[int] = []
    ds = ps.from_arrays(np.arange(20)).map(lambda x: (calls.append(int(x)), x)[1]).cache()
    ds = ds.with_options(processes=0)
    calls.clear()
    first, second = run(ds), run(ds, epoch=1)
    assert_same(first, second)
    assert sorted(calls) == list(range(20))
    assert_same(run(ds.shuffle().take(0)), [])
    list(ds.batch(3))  # What is built on it shares it.
    assert len(calls) == 20


@pytest.mark.parametrize("kind", ["rows", "text", "flow"])
def test_a_cache_whose_filling_failed_is_filled_by_the_next_stream(kind: str):
    before = process_ledger.granted
    is_bad = [True]

    def fails_once(y: Any) -> Any:
        if y == 15 and is_bad[0]:
            raise ValueError("not yet")
        return str(y) if kind == "text" else y

    ds = ps.from_arrays(np.arange(20)).map(fails_once)
    ds = (ds.filter(keep) if kind == "flow" else ds).cache()
    for _ in range(3):
        with pytest.raises(ps.FunctionError, match="not yet"):
            list(ds)
    granted = process_ledger.granted - before
    is_bad[0] = False
    assert len(list(ds)) == 20
    assert granted <= process_ledger.granted - before
    assert process_ledger.granted - before < 1 << 20
    del ds
    gc.collect()  # The frames of the failures refer to it.
    assert process_ledger.granted == before


def test_a_cache_of_sparse_rows_takes_little_more_than_the_rows():
    before = process_ledger.granted
    ds = ps.from_arrays(np.arange(40_000)).filter(lambda x: x % 100 == 0).cache()
    ds = ds.with_options(memory="1MB")
    assert len(list(ds)) == 400
    assert process_ledger.granted - before < 100_000


def test_unbatch_undoes_batch_without_making_batches():
    ds = numbered().batch(4).unbatch()
    assert "no batch is made" in str(ds.explain())


def test_unbatch_of_batches_whose_fields_disagree_is_an_error():
    ds = numbered().map(
        lambda x, y: (x[: int(y) % 2], x),
        spec=(ps.ArraySpec((None,), "f4"), ps.ArraySpec((3,), "f4")),
    )
    with pytest.raises(
        ps.SpecMismatchError, match="unbatch: field '1' has batches of other lengths"
    ):
        list(ds.unbatch())


def test_padded_batch_pads_each_batch_to_its_own_longest_row():
    rows = [np.ones((i % 3, i % 2 + 1), "i4") * i for i in range(7)]
    found = run(ps.from_arrays(rows).padded_batch(3, pad=9))
    for start, batch in zip(range(0, 7, 3), found, strict=True):
        group = rows[start : start + 3]
        assert batch.shape == (len(group), *np.max([row.shape for row in group], axis=0))
        for place, row in zip(batch, group, strict=True):
            assert (place[: row.shape[0], : row.shape[1]] == row).all()
            assert (place == 9).sum() == place.size - row.size


def test_padded_batch_pads_text_and_dates_with_nothing():
    texts = [np.array(["a", "bb"][: i % 3], object) for i in range(3)]
    ds = ps.from_arrays(np.arange(3)).map(lambda i: texts[i], spec=ps.ArraySpec((None,), str))
    assert run(ds.padded_batch(3))[0].tolist() == [["", ""], ["a", ""], ["a", "bb"]]
    assert run(ds.padded_batch(3, pad="-"))[0].tolist() == [["-", "-"], ["a", "-"], ["a", "bb"]]
    dates = [np.arange(i).astype("M8[D]") for i in range(3)]
    assert np.isnat(run(ps.from_arrays(dates).padded_batch(3))[0]).sum() == 3


def test_padded_batch_of_batches_that_are_cut_short():
    ds = ps.from_arrays(np.arange(10).reshape(5, 2)).batch(2).padded_batch(3)
    (found,) = run(ds)
    assert found.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [0, 0]]]
    flow = ps.from_arrays(np.arange(10).reshape(5, 2)).filter(lambda x: True).batch(2)
    assert_same(run(flow.padded_batch(3)), [found])


def test_padded_batch_of_fields_that_need_it_and_fields_that_do_not():
    ds = ps.from_arrays(
        {"r": [np.arange(i) for i in range(5)], "x": np.arange(5), "t": list("abcde")}
    )
    first = run(ds.padded_batch(3, pad={"r": -1, "x": None, "t": None}))[0]
    assert first["r"].tolist() == [[-1, -1], [0, -1], [0, 1]]
    assert first["x"].tolist() == [0, 1, 2]
    assert first["t"].tolist() == ["a", "b", "c"]


def test_zip_of_unequal_flows_is_an_error_at_their_end():
    short = numbered().filter(is_odd)
    with pytest.raises(ps.LengthError, match=r"input 0 ended after 11 rows .* strict=False"):
        list(ps.zip(short, numbered()))
    assert len(list(ps.zip(short, numbered(), strict=False))) == 11


def test_what_is_combined_may_have_batches_of_different_lengths():
    a = ps.from_arrays(np.arange(5)).batch(2)
    b = ps.from_arrays(np.arange(9)).batch(3, drop_remainder=True)
    found = [batch.tolist() for batch in ps.concatenate(a, b)]
    assert found == [[0, 1], [2, 3], [4], [0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert ps.concatenate(a, b).spec == ps.ArraySpec((None,), "int64")
    mixed = sorted(batch.tolist() for batch in ps.mix([a, b], stop="all"))
    assert mixed == sorted(found)


def test_huge_numbers_of_rows_cost_nothing():
    ds = ps.from_arrays(np.broadcast_to(np.int8(1), (1 << 45,)))
    assert len(ds.shuffle().skip(1 << 44).shard(3, 1 << 20).batch(8)) == 1 << 21
    assert next(iter(ds.skip((1 << 45) - 3).batch(8))).tolist() == [1, 1, 1]
    assert len(ds.repeat(1 << 10)) == 1 << 55
    with pytest.raises(ValueError, match=r"more than 2\*\*62"):
        ds.repeat(1 << 20)
