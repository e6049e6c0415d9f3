"""take_while: the rows before the first one that does not pass, whatever comes after it."""

from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, cases, check

import penstock as ps


def below_17(x: Any, y: Any) -> bool:
    return bool(y < 17)


def is_sorted(x: Any, y: Any) -> bool:
    return True


CHAINS = {
    "take_while": Chain(lambda ds: ds.take_while(below_17), ROWS[:17]),
}
LIMITS = {
    "of all rows": Chain(lambda ds: ds.take_while(is_sorted), ROWS),
    "of none": Chain(lambda ds: ds.take_while(lambda x, y: y < 0), []),
    "after a shuffle": Chain(
        lambda ds: ds.enumerate().take_while(lambda i, row: i < 3).map(lambda i, row: row), ROWS[:3]
    ),
}


class TestTakeWhile(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_the_function_does_behind_the_end_has_no_effect(processes: int, on_error: Any):
    def until_seven(x: Any) -> bool:
        if x > 7:
            raise ValueError("must not be asked")
        return bool(x < 7)

    ds = ps.from_arrays(np.arange(5000)).take_while(until_seven)
    ds = ds.with_options(processes=processes, on_error=on_error)
    with ds.stream() as stream:
        assert list(map(int, stream)) == list(range(7))
        assert stream.report().num_skipped == 0


def test_a_row_that_the_function_fails_on_before_the_end_is_raised_or_skipped():
    def picky(x: Any) -> bool:
        if x == 3:
            raise ValueError("three")
        return bool(x < 6)

    ds = ps.from_arrays(np.arange(20)).take_while(picky)
    with pytest.raises(ps.FunctionError, match=r"take_while\(picky\).* failed on row 3.*three"):
        run(ds)
    skipping = ds.with_options(on_error="skip")
    with skipping.stream() as stream:
        found, states = [], [stream.state()]
        for row in stream:
            found.append(int(row))
            states.append(stream.state())
        assert stream.report().num_skipped == 1
    assert found == [0, 1, 2, 4, 5]
    for done, state in enumerate(states[:-1]):
        assert list(map(int, run(skipping, state=state))) == found[done:]


def test_it_ends_rows_without_end_and_has_no_length():
    ds = ps.from_arrays(np.arange(4)).repeat().enumerate().take_while(lambda i, x: i < 9)
    assert len(run(ds)) == 9
    with pytest.raises(TypeError, match="length can't be known"):
        len(ds)
    with pytest.raises(ps.SpecMismatchError, match="must return one True or False, got float"):
        run(ps.from_arrays(np.arange(4)).take_while(lambda x: 0.5))
    with pytest.raises(TypeError, match="take_while needs a function, got int"):
        ps.from_arrays(np.arange(4)).take_while(3)
    with pytest.raises(ValueError, match="can't follow distribute"):
        ps.from_arrays(np.arange(4)).batch(2).distribute(rank=0, world=2).take_while(is_sorted)


def test_it_gives_what_tf_data_gives():
    tf = pytest.importorskip("tensorflow")
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6])
    ours = ps.from_arrays(x).take_while(lambda x: x < 9).batch(2)
    theirs = tf.data.Dataset.from_tensor_slices(x).take_while(lambda x: x < 9).batch(2)
    assert_same(run(ours), list(theirs.as_numpy_iterator()))
