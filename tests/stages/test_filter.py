"""filter: the rows that a function says yes to."""

import pytest
from tests.stages.conformance import INPUTS, ODD, Chain, StageConformance, cases, check, is_odd

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
