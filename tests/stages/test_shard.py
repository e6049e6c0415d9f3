"""shard: every nth row."""

import pytest
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, cases, check

CHAINS: dict[str, Chain] = {
    "shard": Chain(lambda ds: ds.shard(4, 1), ROWS[1::4]),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "shard of one": Chain(lambda ds: ds.shard(1, 0), ROWS),
    "shard with no rows": Chain(lambda ds: ds.shard(50, 40), []),
}


class TestShard(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)
