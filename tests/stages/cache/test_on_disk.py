"""cache(path): what it keeps, and when it writes."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import INPUTS, ROWS, StageConformance, batches, keep

import penstock as ps
from penstock.errors import DataError

NUM_ROWS = 500


@pytest.fixture
def fresh(tmp_path):
    """A new path at each call."""
    return lambda: Path(tempfile.mkdtemp(dir=tmp_path)) / "cache"


class TestConformance(StageConformance):
    @pytest.fixture(params=[*INPUTS, "batches", "batched flow"])
    def case(self, request, fresh):
        if request.param in INPUTS:
            source = INPUTS[request.param]
            return Case(lambda: source().cache(fresh()), ROWS, has_length=request.param == "rows")
        source = INPUTS["rows" if request.param == "batches" else "flow"]
        has_length = request.param == "batches"
        return Case(
            lambda: source().batch(5).cache(fresh()), batches(ROWS, 5), has_length=has_length
        )


def nests():
    rng = np.random.default_rng(0)
    x = rng.random((NUM_ROWS, 3)).astype("f4")
    words = ["é" * (i % 5) + str(i) for i in range(NUM_ROWS)]
    ragged = [np.arange(i % 7, dtype="i2") for i in range(NUM_ROWS)]
    return {
        "bare": x,
        "text": (x, words),
        "bytes": {"b": [w.encode() for w in words], "n": np.arange(NUM_ROWS)},
        "ragged": {"r": ragged, "s": [np.ones((i % 3, 2, i % 4)) for i in range(NUM_ROWS)]},
        "nested": {"meta": {"id": np.arange(NUM_ROWS), "name": words}, "x": (x,)},
    }


@pytest.mark.parametrize("name", nests())
@pytest.mark.parametrize("is_flow", [False, True])
def test_every_pass_gives_the_rows_of_the_first(name, is_flow, tmp_path):
    source = ps.from_arrays(nests()[name])
    ds = source.filter(keep) if is_flow else source
    cached = ds.cache(tmp_path / "c")
    expected = run(source)
    assert_same(run(cached), expected)
    assert (tmp_path / "c" / "manifest.json").exists()
    assert_same(run(cached, epoch=1), expected)
    assert_same(run(ps.from_files(tmp_path / "c")), expected)
    assert sorted(map(repr, run(cached.shuffle()))) == sorted(map(repr, expected))


def test_functions_run_once_and_not_again_in_another_dataset(tmp_path):
    calls = []

    def count(x):
        calls.append(1)
        return x * 2

    def made():
        ds = ps.from_arrays(np.arange(100)).map(count, spec=ps.ArraySpec((), "int64"))
        return ds.cache(tmp_path / "c").with_options(processes=0)  # Else they are tried out first.

    ds = made()
    assert [int(x) for x in ds] == list(range(0, 200, 2))
    assert [int(x) for x in ds] == list(range(0, 200, 2))
    assert [int(x) for x in made()] == list(range(0, 200, 2))
    assert len(calls) == 100


def test_it_freezes_the_order_of_epoch_0(tmp_path):
    shuffled = ps.from_arrays(np.arange(50)).shuffle(seed=4)
    first = run(shuffled)
    cached = shuffled.cache(tmp_path / "c")
    assert_same(run(cached, epoch=3), first)
    assert_same(run(cached, epoch=0), first)


def test_a_shuffle_of_it_is_the_same_before_and_after_it_is_whole(tmp_path):
    def made(path):
        return ps.from_arrays(np.arange(3000)).filter(keep).cache(path).shuffle(seed=2).batch(7)

    while_filling = run(made(tmp_path / "a"))
    assert_same(run(made(tmp_path / "a")), while_filling)
    state = None
    with made(tmp_path / "b").stream() as stream:
        for _ in range(11):
            next(stream)
        state = json.loads(json.dumps(stream.state()))
    assert_same(run(made(tmp_path / "a"), state=state), while_filling[11:])
    assert len({int(x) for batch in while_filling for x in batch}) == 3000


@pytest.mark.parametrize("is_flow", [False, True])
def test_a_pass_that_stops_early_leaves_no_whole_cache(is_flow, tmp_path):
    source = ps.from_arrays(np.arange(200_000))
    ds = (source.filter(keep) if is_flow else source).cache(tmp_path / "c").with_options(threads=0)
    with ds.stream() as stream:
        for _ in range(5):
            next(stream)
    assert not (tmp_path / "c" / "manifest.json").exists()
    if (tmp_path / "c").exists():
        with pytest.raises(DataError, match="never finished"):
            ps.from_files(tmp_path / "c")
    assert_same(run(ds.batch(1000)), batches(list(np.arange(200_000)), 1000))
    assert len(ps.from_files(tmp_path / "c")) == 200_000


def test_a_failing_function_leaves_no_whole_cache_and_the_next_pass_goes_on(tmp_path):
    fails = [True]

    def f(x):
        if fails[0] and x == 700:
            raise RuntimeError("not yet")
        return x

    ds = (
        ps.from_arrays(np.arange(1000)).map(f, spec=ps.ArraySpec((), "int64")).cache(tmp_path / "c")
    )
    with pytest.raises(ps.FunctionError, match="not yet"):
        run(ds)
    assert not (tmp_path / "c" / "manifest.json").exists()
    fails[0] = False
    assert_same(run(ds), list(np.arange(1000)))


def test_endless_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match="without end"):
        ps.from_arrays(np.arange(3)).repeat().cache(tmp_path / "c")
