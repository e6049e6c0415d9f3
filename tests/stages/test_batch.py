"""batch: so many rows at once, and what becomes of the last ones."""

import pytest
from tests.stages.conformance import (
    INPUTS,
    MAPPED,
    ROWS,
    Chain,
    StageConformance,
    batches,
    cases,
    check,
    scaled,
)

CHAINS: dict[str, Chain] = {
    "batch": Chain(lambda ds: ds.batch(5), batches(ROWS, 5)),
    "batch, no remainder": Chain(
        lambda ds: ds.batch(5, drop_remainder=True),
        batches(ROWS, 5, drop=True),
    ),
    "batch of text": Chain(lambda ds: ds.map(scaled).batch(4), batches(MAPPED, 4)),
    "batch of batches": Chain(
        lambda ds: ds.batch(3, drop_remainder=True).batch(2),
        batches(batches(ROWS, 3, drop=True), 2),
    ),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "batch of one": Chain(lambda ds: ds.batch(1), batches(ROWS, 1)),
    "batch of more than all": Chain(lambda ds: ds.batch(100), batches(ROWS, 100)),
    "batch of more than all, dropped": Chain(lambda ds: ds.batch(100, drop_remainder=True), []),
}


class TestBatch(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)
