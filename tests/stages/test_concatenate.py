"""concatenate: the rows of one dataset after those of another."""

from tests.stages.conformance import ROWS, Chain, StageConformance, batches, cases

import penstock as ps

CHAINS: dict[str, Chain] = {
    "concatenate": Chain(
        lambda ds: ps.concatenate(ds, ds.take(2), ds.skip(20)),
        ROWS + ROWS[:2] + ROWS[20:],
    ),
    "concatenate of nothing": Chain(lambda ds: ps.concatenate(ds.take(0), ds.take(0)), []),
    "concatenate of batches": Chain(
        lambda ds: ps.concatenate(ds.batch(4), ds.take(6).batch(5)),
        batches(ROWS, 4) + batches(ROWS[:6], 5),
    ),
}


class TestConcatenate(StageConformance):
    case = cases(CHAINS)
