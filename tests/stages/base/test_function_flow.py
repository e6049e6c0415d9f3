"""Rows that the function of a map or a filter fails on: left out, counted, and told with their traceback."""

import gc
import json
from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import StageConformance, keep

import penstock as ps

NUM_ROWS = 40
BAD = {0, 3, 4, 5, 17, 39}
GOOD = [y for y in range(NUM_ROWS) if y not in BAD]


def inner(y: Any) -> None:
    raise KeyError(f"no row {y}")


def picky(y: Any) -> Any:
    if int(y) in BAD:
        inner(y)
    return y * 2


def is_fine(y: Any) -> bool:
    if int(y) in BAD:
        inner(y)
    return int(y) % 2 == 0


def noisy(y: Any, random: np.random.Generator) -> Any:
    if int(y) in BAD:
        inner(y)
    return y * 1000 + random.integers(1000)


def noisy_always(y: Any, random: np.random.Generator) -> Any:
    return y * 1000 + random.integers(1000)


SPEC = ps.ArraySpec((), "int64")


def source() -> ps.Dataset:
    return ps.from_arrays(np.arange(NUM_ROWS))


def skipping(ds: ps.Dataset, **options: Any) -> ps.Dataset:
    return ds.with_options(on_error="skip", **options)


def numbers(ds: ps.Dataset, **options: Any) -> list[int]:
    return [int(y) for y in run(ds, **options)]


CHAINS: dict[str, tuple[Any, list[Any]]] = {
    "map": (lambda: skipping(source().map(picky, spec=SPEC)), [np.int64(2 * y) for y in GOOD]),
    "map of a flow": (
        lambda: skipping(source().filter(keep).map(picky, spec=SPEC)),
        [np.int64(2 * y) for y in GOOD],
    ),
    "filter": (
        lambda: skipping(source().filter(is_fine)),
        [np.int64(y) for y in GOOD if y % 2 == 0],
    ),
    "two of them": (
        lambda: skipping(source().filter(is_fine).map(lambda y: 1 // (y - 2), spec=SPEC)),
        [np.int64(1 // (y - 2)) for y in GOOD if y % 2 == 0 and y != 2],
    ),
    "map, then batch": (
        lambda: skipping(source().map(picky, spec=SPEC).batch(7)),
        [np.array(GOOD[i : i + 7]) * 2 for i in range(0, len(GOOD), 7)],
    ),
    "the option first": (
        lambda: skipping(source()).map(picky, spec=SPEC),
        [np.int64(2 * y) for y in GOOD],
    ),
}


class TestBadRows(StageConformance):
    @pytest.fixture(params=CHAINS)
    def case(self, request: pytest.FixtureRequest) -> Case:
        make, elements = CHAINS[request.param]
        return Case(make, elements, has_length=False, is_pickled=request.param != "two of them")


@pytest.mark.parametrize("num_threads", [0, 3])
@pytest.mark.parametrize("stage", ["map", "filter"])
def test_bad_rows_are_counted_and_the_first_are_told_with_their_traceback(
    stage: str, num_threads: int
):
    ds = source().map(picky, spec=SPEC) if stage == "map" else source().filter(is_fine)
    with skipping(ds, threads=num_threads).stream() as stream:
        list(stream)
        report = stream.report()
    assert report.num_skipped == len(BAD)
    assert len(report.skipped) == len(BAD)
    name = "picky" if stage == "map" else "is_fine"
    assert report.skipped[1].startswith(f"{stage}({name}), test_function_flow.py:")
    assert "failed on row 3: KeyError: 'no row 3'" in report.skipped[1]
    assert f"in {name}" in report.skipped[1]
    assert "in inner" in report.skipped[1]
    text = str(report)
    assert "6 bad rows" in text
    assert "no row 17" in text


def test_a_map_with_bad_rows_left_out_has_no_length():
    ds = source().map(picky, spec=SPEC)
    assert len(ds) == NUM_ROWS
    with pytest.raises(TypeError, match="length can't be known before map"):
        len(skipping(ds))
    assert len(skipping(ds).with_options(on_error="raise")) == NUM_ROWS
    assert "forward" in str(skipping(ds).explain())


def test_what_raises_again_is_what_it_was():
    ds = skipping(source().map(picky, spec=SPEC).batch(4)).with_options(on_error="raise")
    with pytest.raises(ps.FunctionError, match="row 0: KeyError"):
        list(ds)


def test_the_function_is_not_tried_again_when_its_result_is_known():
    calls = []
    ds = source().map(lambda y: (calls.append(0), y)[1])
    assert len(calls) == 1
    skipping(ds).with_options(on_error="raise")
    assert len(calls) == 1


@pytest.mark.parametrize("num_threads", [0, 3])
def test_one_more_than_max_errors_raises_that_one(num_threads: int):
    ds = source().map(picky, spec=SPEC)
    assert len(run(skipping(ds, max_errors=len(BAD), threads=num_threads))) == len(GOOD)
    with pytest.raises(ps.FunctionError, match="failed on row 39: KeyError") as caught:
        run(skipping(ds, max_errors=len(BAD) - 1, threads=num_threads))
    assert isinstance(caught.value.__cause__, KeyError)
    assert any("max_errors=5" in note for note in caught.value.__notes__)
    assert any("in inner" in note for note in caught.value.__notes__)
    with pytest.raises(ps.FunctionError, match="failed on row 0: KeyError"):
        run(skipping(ds, max_errors=0, threads=num_threads))


def test_a_result_that_is_not_as_declared_is_a_bad_row_and_leaves_no_trace():
    def sometimes_short(y: Any) -> Any:
        return np.arange(int(y) % 4), np.zeros(3 if int(y) % 5 else 2)

    spec = (ps.ArraySpec((None,), "int64"), ps.ArraySpec((3,), "float64"))
    with skipping(source().map(sometimes_short, spec=spec)).stream() as stream:
        found = [len(ragged) for ragged, _ in stream]
        report = stream.report()
    assert found == [y % 4 for y in range(NUM_ROWS) if y % 5]
    assert report.num_skipped == 8
    assert "on row 0: returned for field '1' an array of shape (2,)" in report.skipped[0]


def test_random_numbers_of_good_rows_do_not_depend_on_bad_ones():
    whole = numbers(source().map(noisy_always, seed=3))
    found = numbers(skipping(source().map(noisy, seed=3, spec=SPEC)))
    assert found == [whole[y] for y in GOOD]


def test_many_bad_rows_are_counted_and_a_few_are_kept():
    with skipping(
        ps.from_arrays(np.arange(5000)).map(lambda y: 1 // 0, spec=SPEC)
    ).stream() as stream:
        assert list(stream) == []
        report = stream.report()
    assert report.num_skipped == 5000
    assert len(report.skipped) == 10


def test_bad_rows_keep_no_memory_of_their_blocks():
    seen: list[Any] = []

    def refuse(x: Any) -> Any:
        if not seen:
            import weakref

            seen.append(weakref.ref(x.base))
        raise ValueError("no")

    ds = ps.from_arrays(np.zeros((50, 3))).map(refuse, spec=SPEC)
    gc.collect()
    gc.disable()
    try:
        with skipping(ds, threads=0, processes=0).stream() as stream:
            list(stream)
        del stream
        assert seen[0]() is None
    finally:
        gc.enable()


def test_a_state_of_one_kind_does_not_fit_the_other():
    ds = ps.from_arrays(np.arange(9)).map(lambda y: y)
    state = json.loads(json.dumps(ds.stream().state()))
    with pytest.raises(ps.StateError, match="another pipeline"):
        skipping(ds).stream(state=state)


def test_a_shuffle_after_bad_rows_gives_each_good_row_once():
    ds = skipping(source().map(picky, spec=SPEC).shuffle(seed=1))
    assert sorted(numbers(ds)) == [2 * y for y in GOOD]
    before = skipping(source().shuffle(seed=1).map(picky, spec=SPEC))
    order = numbers(source().shuffle(seed=1))
    assert_same(run(before), [np.int64(2 * y) for y in order if y not in BAD])


@pytest.mark.slow  # It starts interpreters.
@pytest.mark.parametrize("stage", ["map", "filter"])
def test_processes_give_what_threads_give(stage: str):
    ds = source().map(picky, spec=SPEC) if stage == "map" else source().filter(is_fine)
    ds = skipping(ds)
    expected = run(ds.with_options(processes=0))
    with ds.with_options(processes=2).stream() as stream:
        first = [next(stream) for _ in range(5)]
        state = stream.state()
        assert_same(first + list(stream), expected)
        report = stream.report()
    assert report.num_skipped == len(BAD)
    assert "failed on row 3: KeyError: 'no row 3'" in report.skipped[1]
    assert "in inner" in report.skipped[1]
    assert_same(run(ds.with_options(processes=1), state=state), expected[5:])
    with pytest.raises(ps.FunctionError, match="failed on row 4: KeyError"):
        run(ds.with_options(processes=2, max_errors=2))
