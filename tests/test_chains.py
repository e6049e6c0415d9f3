"""Random chains of stages, checked against a model in plain Python."""

import json
import pickle

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.chains import Model, chains, equal

import penstock as ps
from penstock.core.nest import flatten

SLOW = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@given(chains(), st.integers(0, 2), st.integers(0, 3))
@SLOW
def test_a_chain_gives_the_rows_that_the_model_gives(
    chain: tuple[ps.Dataset, Model], epoch: int, threads: int
) -> None:
    ds, model = chain
    expected = model.rows(epoch)
    with ds.with_options(threads=threads).stream(epoch=epoch) as stream:
        found = list(stream)
    assert len(found) == len(expected), ds.explain()
    for mine, theirs in zip(found, expected, strict=True):
        assert equal(mine, theirs), (mine, theirs, str(ds.explain()))


@given(chains())
@SLOW
def test_length_and_spec_are_right_without_running_anything(
    chain: tuple[ps.Dataset, Model],
) -> None:
    ds, model = chain
    try:
        length = len(ds)
    except TypeError:
        length = len(model.rows(0))
    assert length == len(model.rows(0))
    for row in ds:
        for spec, value in zip(flatten(ds.spec)[0], flatten(ps.spec_of(row))[0], strict=True):
            if value.dtype is not object and value.shape != (0,):
                assert value.dtype == spec.dtype
            assert spec.admits(value.shape)


@given(chains(), st.integers(0, 1), st.integers(0, 2))
@SLOW
def test_a_stream_restored_from_any_state_goes_on_with_the_next_batch(
    chain: tuple[ps.Dataset, Model], epoch: int, threads: int
) -> None:
    ds, model = chain
    expected = model.rows(epoch)
    following = model.rows(epoch + 1)
    states = []
    with ds.stream(epoch=epoch) as stream:
        states.append(stream.state())
        for _ in stream:
            states.append(stream.state())
    other = pickle.loads(pickle.dumps(ds)) if "lambda" not in repr(ds.explain()) else ds
    for done, state in enumerate(states):
        rest = expected[done:] if done < len(expected) else following
        with other.with_options(threads=threads).stream(
            state=json.loads(json.dumps(state))
        ) as stream:
            found = list(stream)
        assert len(found) == len(rest), (done, state, str(ds.explain()))
        assert all(map(equal, found, rest)), (done, state)
