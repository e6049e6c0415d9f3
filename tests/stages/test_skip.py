"""skip: all but the first rows."""

import pytest
from tests.conformance import run
from tests.stages.conformance import (
    INPUTS,
    ROWS,
    Chain,
    StageConformance,
    cases,
    check,
    keep,
    numbered,
)

CHAINS: dict[str, Chain] = {
    "skip": Chain(lambda ds: ds.skip(7), ROWS[7:]),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "skip none": Chain(lambda ds: ds.skip(0), ROWS),
    "skip all": Chain(lambda ds: ds.skip(-1), []),
    "skip more than all": Chain(lambda ds: ds.skip(100), []),
}


class TestSkip(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


def test_skipping_all_of_what_never_ends_leaves_nothing():
    for endless in (numbered().repeat(), numbered().filter(keep).repeat()):
        assert len(endless.skip(-1)) == 0
        assert run(endless.skip(-1)) == []
