"""repeat: one epoch after the other."""

import pytest
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, batches, cases, check

CHAINS: dict[str, Chain] = {
    "repeat": Chain(lambda ds: ds.repeat(3), ROWS * 3),
    "repeat without end": Chain(lambda ds: ds.repeat().take(50), (ROWS * 3)[:50]),
    "repeat across batches": Chain(lambda ds: ds.repeat(2).batch(5), batches(ROWS * 2, 5)),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "repeat not at all": Chain(lambda ds: ds.repeat(0), []),
}


class TestRepeat(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)
