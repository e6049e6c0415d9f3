"""rebatch: batches of another size of the rows of batches, by number where that can be."""

from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import (
    INPUTS,
    ROWS,
    Chain,
    StageConformance,
    batches,
    cases,
    check,
)

import penstock as ps
from penstock.core.rows import Rows

CHAINS = {
    "rebatch": Chain(lambda ds: ds.batch(4).rebatch(6), batches(ROWS, 6)),
}
LIMITS = {
    "of batches of one size": Chain(
        lambda ds: ds.batch(5, drop_remainder=True).map(lambda *b: b).rebatch(3),
        batches(ROWS[:20], 3),
    ),
    "to smaller ones": Chain(lambda ds: ds.batch(7).rebatch(2), batches(ROWS, 2)),
    "no remainder": Chain(
        lambda ds: ds.batch(4).rebatch(6, drop_remainder=True), batches(ROWS, 6, drop=True)
    ),
    "of text": Chain(
        lambda ds: ds.map(lambda x, y: str(y)).batch(4).rebatch(5),
        batches([str(y) for _, y in ROWS], 5),
    ),
}


class TestRebatch(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


def test_rows_of_padded_batches_are_stacked_where_they_have_one_shape():
    rows = [np.arange(size) for size in [1, 3, 2, 2, 4, 4, 1, 4]]
    padded = ps.from_arrays({"tokens": rows}).padded_batch(4)
    found = run(padded.rebatch(2))
    expected = [batch["tokens"][at : at + 2] for batch in run(padded) for at in (0, 2)]
    assert_same([batch["tokens"] for batch in found], expected)
    with pytest.raises(
        ps.SpecMismatchError,
        match=r"field 'tokens' has .*\(3,\) and \(4,\) in one batch.*padded_batch\(8\)",
    ):
        run(padded.rebatch(8))


def test_there_is_random_access_where_batches_have_one_size():
    x = np.arange(24).reshape(12, 2)
    for ds in [
        ps.from_arrays(x).batch(5),  # Batches of `batch` are never made.
        ps.from_arrays(x).batch(4).map(lambda batch: batch + 1),
        ps.from_arrays(x.reshape(3, 4, 2)),
    ]:
        again = ds.rebatch(6)
        assert isinstance(again.node, Rows)
        assert len(again) == 2
        assert_same(run(again.shuffle(seed=1)), run(ds.unbatch().batch(6).shuffle(seed=1)))
    assert "undoes batch: no batch is made" in str(ps.from_arrays(x).batch(5).rebatch(6).explain())


def test_ranks_share_the_new_batches():
    ds = ps.from_arrays(np.arange(24)).batch(5).rebatch(6)
    parts = [run(ds.distribute(rank=rank, world=2)) for rank in range(2)]
    assert [part.tolist() for part in parts[1]] == [
        [1, 3, 5],
        [7, 9, 11],
        [13, 15, 17],
        [19, 21, 23],
    ]


def test_what_has_no_batches_is_refused():
    with pytest.raises(ValueError, match=r"rebatch needs batches.*write \.batch\(2\)"):
        ps.from_arrays(np.arange(4)).rebatch(2)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        ps.from_arrays(np.zeros((4, 2))).rebatch(0)


@pytest.mark.parametrize("drop", [False, True])
def test_it_gives_what_tf_data_gives(drop: bool):  # A parameter of the test.
    tf = pytest.importorskip("tensorflow")
    data: Any = {"x": np.arange(22.0).reshape(11, 2), "y": (np.arange(11),)}
    for first, second in [(4, 3), (3, 7), (11, 2)]:
        ours = ps.from_arrays(data).batch(first).rebatch(second, drop_remainder=drop)
        theirs = tf.data.Dataset.from_tensor_slices(data).batch(first)
        theirs = theirs.rebatch(second, drop_remainder=drop)
        assert_same(run(ours), list(theirs.as_numpy_iterator()))
