"""Exceptions in the user's functions reach the consumer, with the line, the row and the traceback."""

import threading
import traceback
from functools import partial
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.stages.base.segment import Pace


class Odd(Exception):
    pass


def fail_on_seven(x: Any) -> Any:
    if x == 7:
        raise Odd("seven")
    return x


LINE = fail_on_seven.__code__.co_firstlineno
CHAINS = {
    "rows": lambda ds: ds,
    "flow": lambda ds: ds.filter(lambda x: True),
}


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("kind", CHAINS)
def test_an_exception_in_map_names_the_function_the_lines_and_the_row(kind: str, num_threads: int):
    ds = CHAINS[kind](ps.from_arrays(np.arange(20))).map(fail_on_seven)
    ds = ds.with_options(threads=num_threads)
    with pytest.raises(
        ps.FunctionError,
        match=rf"^map\(fail_on_seven\), test_user_code.py:\d+ \(defined at test_user_code.py:{LINE}\) "
        r"failed on row 7: Odd: seven$",
    ) as caught:
        list(ds)
    cause = caught.value.__cause__
    assert type(cause) is Odd
    frames = traceback.extract_tb(cause.__traceback__)
    assert frames[-1].name == "fail_on_seven"
    assert frames[-1].lineno == LINE + 2


@pytest.mark.parametrize("num_threads", [0, 2])
def test_an_exception_in_filter_names_the_row(num_threads: int):
    ds = ps.from_arrays(np.arange(20)).filter(lambda x: fail_on_seven(x) >= 0)
    with pytest.raises(
        ps.FunctionError, match=r"^filter\(<lambda>\), .* failed on row 7: Odd: seven"
    ) as caught:
        list(ds.with_options(threads=num_threads))
    assert traceback.extract_tb(caught.value.__cause__.__traceback__)[-1].name == "fail_on_seven"


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (lambda ds: ds.shuffle(), "row 7"),
        (lambda ds: ds.skip(3), "row 7"),
        (lambda ds: ds.shard(2, 1), "row 7"),
        (lambda ds: ds.repeat(2), r"row 7 \(pass 0\)"),
        (lambda ds: ds.cache(), "row 7"),
        (lambda ds: ps.concatenate(ps.from_arrays(np.arange(3)), ds), "row 7 of input 1"),
        (lambda ds: ps.mix([ds, ds]), "row 7 of input [01]"),
    ],
)
def test_the_row_is_that_of_the_source_whatever_stands_between(build: Any, where: str):
    ds = build(ps.from_arrays(np.arange(20))).map(fail_on_seven)
    with pytest.raises(ps.FunctionError, match=f"failed on {where}: "):
        list(ds)


def test_a_batch_that_fails_is_named_with_its_first_row():
    ds = ps.from_arrays(np.arange(20)).batch(5).map(lambda x: fail_on_seven(x[2]) + x)
    with pytest.raises(ps.FunctionError, match="failed on batch 1, which starts with row 5: Odd"):
        list(ds)


@pytest.mark.parametrize("stage", ["map", "filter"])
@pytest.mark.parametrize(
    "error", [StopIteration, GeneratorExit("x"), RuntimeError("generator raised StopIteration")]
)
@pytest.mark.parametrize("num_threads", [0, 2])
def test_no_exception_of_the_users_is_taken_for_the_end(stage: str, error: Any, num_threads: int):
    def raises(x: Any) -> Any:
        if x == 7:
            raise error
        return x == x if stage == "filter" else x

    ds = getattr(ps.from_arrays(np.arange(20)), stage)(raises).with_options(threads=num_threads)
    with pytest.raises((ps.FunctionError, GeneratorExit)):
        list(ds)


def test_rows_before_the_one_that_fails_are_handed_out():
    ds = ps.from_arrays(np.arange(20)).map(fail_on_seven).with_options(memory=100_000, threads=0)
    found: list[int] = []
    with pytest.raises(ps.FunctionError):
        found.extend(int(x) for x in ds)
    assert found == list(range(len(found)))


@pytest.mark.parametrize("num_threads", [0, 2])
def test_state_does_not_fail_for_a_row_that_comes_later_and_next_does(num_threads: int):
    ds = ps.from_arrays(np.arange(20)).filter(lambda x: fail_on_seven(x) >= 0)
    ds = ds.batch(1).with_options(threads=num_threads)
    ds = ds.with_options(memory=ds.explain().need_nbytes)  # Blocks of one row.
    seen: list[int] = []
    stream = ds.stream()

    def loop() -> None:
        for batch in stream:
            seen.append(int(batch[0]))
            states.append(stream.state())
            assert (states[-1]["element"], stream.state()) == (len(seen), states[-1])

    states: list[Any] = []
    with pytest.raises(ps.FunctionError, match="row 7"):
        loop()
    assert seen == list(range(7))
    with pytest.raises(ps.FunctionError, match="row 7"):
        list(ds.stream(state=states[-1]))


def test_a_function_that_failed_when_the_chain_is_built_says_that_it_was_tried():
    with pytest.raises(
        ps.FunctionError,
        match="failed on row 0, which was tried to learn its result: ZeroDivisionError",
    ):
        ps.from_arrays(np.arange(3)).map(lambda x: 1 // int(x))


def test_functions_of_all_kinds_have_names():
    class Scaler:
        def __call__(self, x: Any) -> Any:
            return fail_on_seven(x)

        def method(self, x: Any) -> Any:
            return fail_on_seven(x)

    for function, name in (
        (partial(fail_on_seven), "fail_on_seven"),
        (Scaler(), "Scaler"),
        (Scaler().method, "method"),
        (np.sqrt, "sqrt"),
    ):
        ds = ps.from_arrays(np.arange(9)).map(function)
        assert f"map({name})" in str(ds.explain())
        if name != "sqrt":
            with pytest.raises(ps.FunctionError, match=rf"map\({name}\)"):
                list(ds)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            lambda x: np.zeros(int(x)),
            r"an array of shape \(1,\), but ArraySpec\(\(0,\), float64\) was inferred from row 0. If rows may",
        ),
        (lambda x: x if x == 0 else 1.5, "dtype float64, which can't become int64 without loss"),
        (
            lambda x: x if x == 0 else "text",
            "'text', but .* was inferred from row 0. All rows must",
        ),
        (lambda x: x if x == 0 else None, "None, but .* Did it forget to return something"),
        (lambda x: (x, x) if x == 0 else x, "returned a nest"),
        (lambda x: {"a": x} if x == 0 else {"b": x}, "returned a nest"),
        (
            lambda x: "text" if x == 0 else 5,
            r"ArraySpec\(\(\), int64\), but ArraySpec\(\(\), str\) was inferred from row 0",
        ),
        (
            lambda x: "text" if x == 0 else b"bytes",
            r"bytes\), but ArraySpec\(\(\), str\) was inferred from row 0",
        ),
    ],
)
def test_a_result_that_is_not_what_the_first_was_is_named(returned: Any, message: str):
    ds = ps.from_arrays(np.arange(3)).map(returned)
    with pytest.raises(ps.SpecMismatchError, match=rf"on row 1: .*{message}"):
        list(ds)


def test_results_that_fit_the_spec_without_loss_are_taken():
    spec = (
        ps.ArraySpec((), "f4"),
        ps.ArraySpec((2,), "i8"),
        ps.ArraySpec((None,), "f8"),
        ps.ArraySpec((None,), str),
    )
    ds = ps.from_arrays(np.arange(3)).map(
        lambda x: (int(x), [1, 2], range(int(x)), ["a"] * int(x)), spec=spec
    )
    for i, (a, b, c, d) in enumerate(ds):
        assert (a.dtype, float(a), b.tolist(), c.tolist(), list(d)) == (
            "f4",
            i,
            [1, 2],
            list(range(i)),
            ["a"] * i,
        )


@pytest.mark.parametrize("answer", [None, "yes", np.array([True]), 1.0, []])
def test_a_filter_must_answer_with_one_truth(answer: Any):
    with pytest.raises(ps.SpecMismatchError, match="must return one True or False, got"):
        list(ps.from_arrays(np.arange(3)).filter(lambda x: answer))


@pytest.mark.parametrize("answer", [True, 1, np.bool_(True), np.array(True), np.int8(3)])
def test_a_filter_may_answer_with_any_one_truth(answer: Any):
    assert len(list(ps.from_arrays(np.arange(3)).filter(lambda x: answer))) == 3


def test_a_function_may_keep_the_rows_it_was_called_with():
    kept: list[Any] = []
    rows = np.arange(30_000).reshape(3000, 10)
    ds = ps.from_arrays(rows).filter(lambda x: (kept.append(x), True)[1]).batch(100)
    assert sum(len(batch) for batch in ds.with_options(processes=0)) == 3000
    assert (np.sort([int(x[0]) for x in kept]) == rows[:, 0]).all()


@pytest.mark.parametrize("stage", ["map", "map with bad rows left out", "filter"])
def test_a_function_runs_on_all_threads_from_the_first_rows_on(stage: str):
    meeting = threading.Barrier(2)

    def meets(x: Any) -> Any:
        if x < 2:
            meeting.wait(60)  # Rows 0 and 1 must be under way at the same time.
        return np.bool_(True) if stage == "filter" else x

    ds = ps.from_arrays(np.arange(100))
    ds = ds.filter(meets) if stage == "filter" else ds.map(meets, spec=ps.ArraySpec((), "int64"))
    on_error = "skip" if "bad" in stage else "raise"
    ds = ds.with_options(threads=2, processes=0, on_error=on_error)
    assert [int(x) for x in ds] == list(range(100))


def test_blocks_of_a_slow_function_stay_small_and_those_of_a_quick_one_grow():
    slow = Pace(10_000, 1)
    spans = slow.spans(0, 10_000)
    assert next(spans) == (0, 1)
    slow.took(1, 0.004)
    assert [next(spans) for _ in range(3)] == [(1, 3), (3, 5), (5, 7)]
    quick = Pace(64, 1)
    spans = quick.spans(0, 200)
    for start, stop in spans:
        quick.took(stop - start, 1e-6)
        assert stop - start <= 64
    assert start == 191  # 1 + 2 + 4 + ... + 64, and then 64 at a time.
