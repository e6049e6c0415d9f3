"""prefetch sets how a dataset runs, never what comes out of it."""

from tests.stages.conformance import ROWS, Chain, StageConformance, batches, cases

CHAINS: dict[str, Chain] = {
    "nothing": Chain(lambda ds: ds, ROWS),
    "prefetch": Chain(lambda ds: ds.prefetch(2).batch(3), batches(ROWS, 3)),
    "no prefetch": Chain(lambda ds: ds.prefetch(0), ROWS),
}


class TestPrefetch(StageConformance):
    case = cases(CHAINS)
