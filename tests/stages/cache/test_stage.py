"""The declaration of a cache: in memory or in a folder, told apart by what it holds and not by where."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import run

import penstock as ps


def rows() -> ps.Dataset:
    return ps.from_arrays(np.arange(20)).map(lambda x: x * 2)


def test_the_call_is_shown_with_its_path(tmp_path: Path):
    assert rows().cache().node.describe() == "cache()"
    assert rows().cache(tmp_path / "c").node.describe() == f"cache({str(tmp_path / 'c')!r})"


def test_a_state_goes_on_wherever_the_cache_is(tmp_path: Path):
    with rows().cache().batch(3).stream() as stream:
        next(stream)
        state = stream.state()
    for ds in (rows().cache(tmp_path / "a"), rows().cache(tmp_path / "b")):
        with ds.batch(3).stream(state=state) as stream:
            assert next(stream).tolist() == [6, 8, 10]


@pytest.mark.parametrize("path", [None, "cache"])
def test_rows_without_end_are_refused_with_the_cure(path: str | None, tmp_path: Path):
    where = None if path is None else tmp_path / path
    with pytest.raises(ValueError, match=r"put it before repeat\(\)"):
        rows().repeat().cache(where)


def test_a_dataset_that_is_built_anew_has_a_cache_of_its_own():
    ds = rows().cache()
    again = ds.with_options(on_error="skip")
    assert [int(row) for row in run(ds)] == [int(row) for row in run(again)]
    copy = pickle.loads(pickle.dumps(ps.from_arrays(np.arange(5)).cache()))
    assert [int(row) for row in run(copy)] == list(range(5))
