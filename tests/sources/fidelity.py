"""What a format's own library reads is what must come: read forward, in any order, and by index."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.conformance import assert_same, run

import penstock as ps
from penstock.core.rows import Rows

SEED = 3


def assert_reads(ds: ps.Dataset, rows: Sequence[Any]) -> None:
    """Assert that a dataset has these rows, one field each, whichever way it is read."""
    rows = list(rows)
    assert_same(run(ds), rows)
    assert_same(run(ds.with_options(threads=0), epoch=1), rows)
    order = run(ps.from_arrays(np.arange(len(rows))).shuffle(seed=SEED))
    mixed = ds if isinstance(ds.node, Rows) else ds.cache()
    assert_same(run(mixed.shuffle(seed=SEED)), [rows[row] for row in order])
    for row in sorted({0, len(rows) // 2, len(rows) - 1}) if rows else ():
        assert_same(run(ds.skip(row).take(1)), rows[row : row + 1])
    assert_same(run(ds.shard(3, 1)), rows[1::3])
    if ds.spec.is_fixed:
        batches = run(ds.batch(7))
        assert_same([row for batch in batches for row in batch], rows)
