"""enumerate: rows with their numbers."""

import numpy as np
import pytest
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, cases, check

CHAINS: dict[str, Chain] = {
    "enumerate": Chain(
        lambda ds: ds.enumerate(), [(np.int64(i), row) for i, row in enumerate(ROWS)]
    ),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "enumerate from": Chain(
        lambda ds: ds.enumerate(-3),
        [(np.int64(i), row) for i, row in enumerate(ROWS, -3)],
    ),
}


class TestEnumerate(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)
