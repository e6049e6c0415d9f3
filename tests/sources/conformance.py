"""The suite that every source passes: inherit `SourceConformance` and give it cases."""

from typing import Any

import numpy as np
from tests.conformance import Case, Conformance, assert_same, run

import penstock as ps
from penstock.core.nest import flatten


class SourceConformance(Conformance):
    """What a source must do beyond what every dataset must: any rows, in any order."""

    def test_any_order_of_its_rows_can_be_read(self, case: Case) -> None:
        ds = case.make().shuffle(seed=3)
        order = [int(i) for i in _order(len(case.elements))]
        for threads in (0, 2):
            expected = [case.elements[i] for i in order]
            assert_same(run(ds.with_options(threads=threads)), expected)

    def test_slices_and_strides_of_it_can_be_read(self, case: Case) -> None:
        ds = case.make()
        assert_same(run(ds.skip(1).take(3)), case.elements[1:4])
        assert_same(run(ds.shard(3, 1)), case.elements[1::3])
        assert_same(run(ds.repeat(2)), case.elements * 2)

    def test_no_rows_are_no_rows(self, case: Case) -> None:
        ds = case.make().take(0)
        assert len(ds) == 0
        assert run(ds) == []
        assert run(ds.shuffle().padded_batch(4)) == []

    def test_batches_hold_the_rows(self, case: Case) -> None:
        batches = run(case.make().padded_batch(4))
        assert len(batches) == -(-len(case.elements) // 4)
        assert sum(len(flatten(batch)[0][0]) for batch in batches) == len(case.elements)


def _order(num_rows: int) -> Any:
    return list(ps.from_arrays(np.arange(num_rows)).shuffle(seed=3))
