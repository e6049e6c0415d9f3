"""Labels stay with their rows, and every row comes once, from every layout into every framework."""

from pathlib import Path

import numpy as np
import pytest
from tests.layouts import LAYOUTS, expected

import penstock as ps

FEEDS = {"torch": ps.Dataset.to_torch, "jax": ps.Dataset.to_jax, "tensorflow": ps.Dataset.to_tf}


@pytest.mark.parametrize("framework", FEEDS)
@pytest.mark.parametrize("name", LAYOUTS)
def test_pairs_arrive_whole_and_once(name: str, framework: str, tmp_path: Path) -> None:
    pytest.importorskip(framework)
    # Numbers of 32 bits: JAX has no others by default.
    x, y = expected(1000, 5, ">f4" if ">f4" in LAYOUTS[name][1] else "f4")
    ds = LAYOUTS[name][0](tmp_path, x, y).shuffle(seed=2, window="10KB")
    ds = ds.map(lambda x, y: (x, np.int32(y))).batch(32)
    seen = []
    for values, numbers in FEEDS[framework](ds):
        if isinstance(values, tuple):
            values = np.stack([np.asarray(column) for column in values], axis=1)
        found = np.asarray(numbers)
        assert np.array_equal(np.asarray(values), x[found].astype("f4"))
        seen += found.tolist()
    assert sorted(seen) == y.tolist()
