"""filter: the rows that a function says yes to."""

import numpy as np
import pytest
from tests.stages.conformance import INPUTS, ODD, Chain, StageConformance, cases, check, is_odd

import penstock as ps

CHAINS: dict[str, Chain] = {
    "filter": Chain(lambda ds: ds.filter(is_odd), ODD),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "filter of all": Chain(lambda ds: ds.filter(lambda *_: False), []),
}


class TestFilter(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


@pytest.mark.parametrize("options", [{}, {"threads": 0}, {"threads": 3}, {"processes": 1}], ids=str)
def test_rows_pass_as_they_came_whatever_the_function_does_to_its_own(options):
    kept = []

    def changes(x):
        x += 100
        for row in kept:
            row -= 1
        kept.append(x)
        return True

    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    ragged = [np.arange(row % 4, dtype=np.float32) for row in range(20)]
    chains = [
        (ps.from_arrays(x), x),
        (ps.from_arrays(x).cache(), x),
        (ps.from_arrays(x).filter(lambda _: True).cache(), x),
        (ps.from_arrays(ragged), ragged),
    ]
    for ds, rows in chains:
        passed = ds.filter(changes).filter(changes).with_options(**options)
        for _ in range(2):
            kept.clear()
            for found, row in zip(list(passed), rows, strict=True):
                np.testing.assert_array_equal(found, row)
