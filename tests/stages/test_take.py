"""take: the first rows."""

import pytest
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, cases, check

CHAINS: dict[str, Chain] = {
    "take": Chain(lambda ds: ds.take(7), ROWS[:7]),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "take none": Chain(lambda ds: ds.take(0), []),
    "take all": Chain(lambda ds: ds.take(-1), ROWS),
    "take more than all": Chain(lambda ds: ds.take(100), ROWS),
}


class TestTake(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)
