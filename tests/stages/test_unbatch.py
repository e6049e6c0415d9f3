"""unbatch: the rows of batches, and of any first axis."""

import pytest
from tests.stages.conformance import MAPPED, ROWS, Chain, StageConformance, cases, numbered, scaled

import penstock as ps

CHAINS: dict[str, Chain] = {
    "unbatch of batches": Chain(lambda ds: ds.batch(4).unbatch(), ROWS),
    "unbatch of whole batches": Chain(
        lambda ds: ds.batch(4, drop_remainder=True).unbatch(), ROWS[:20]
    ),
    "unbatch of an axis": Chain(
        lambda ds: ds.map(lambda x, y: x).unbatch(),
        [value for x, _ in ROWS for value in x],
        is_pickled=False,
    ),
    "unbatch of shuffled batches": Chain(
        lambda ds: ds.map(scaled).batch(4).map(lambda d: d).unbatch(), MAPPED, is_pickled=False
    ),
}


class TestUnbatch(StageConformance):
    case = cases(CHAINS)


def test_unbatch_undoes_batch_without_making_batches():
    ds = numbered().batch(4).unbatch()
    assert "no batch is made" in str(ds.explain())


def test_unbatch_of_batches_whose_fields_disagree_is_an_error():
    ds = numbered().map(
        lambda x, y: (x[: int(y) % 2], x),
        spec=(ps.ArraySpec((None,), "f4"), ps.ArraySpec((3,), "f4")),
    )
    with pytest.raises(
        ps.SpecMismatchError, match="unbatch: field '1' has batches of other lengths"
    ):
        list(ds.unbatch())
