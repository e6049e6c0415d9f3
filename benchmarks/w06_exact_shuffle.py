"""W6: the file of W5 in the very order it would have in memory, by scratch disk."""

from __future__ import annotations

from pathlib import Path

import big_file
import npy_files
import numpy as np
from harness import Case, Contender, fact_within, times_as_fast

MEMORY = 1 << 30


def _dataset(path: Path):
    import penstock as ps

    # Beside the data, so that scratch is on the disk that is measured.
    ds = ps.from_arrays(np.load(path, mmap_mode="r")).shuffle(seed=0, exact=True)
    ds = ds.batch(big_file.BATCH_SIZE).with_options(scratch=str(path.parent))
    npy_files.must_explain(ds, "scratch")
    return ds


CASES = (
    Case(
        name="w6",
        title=f"the 8 GB .npy of w5 with an exact shuffle, in {MEMORY >> 20} MB, batch 32",
        unit="B/s",
        rounds=3,
        prepare=big_file.prepare,
        contenders=(
            Contender(
                "penstock",
                "shuffle(seed=0, exact=True).batch(32), scratch beside the file",
                big_file.penstock(_dataset),
                memory=MEMORY,
            ),
            *big_file.dd(MEMORY),
        ),
        bars=(
            # The workload was measured without a cgroup; in one, dd reuses its pages and is far faster.
            times_as_fast(0.2, "dd, no limit"),
            times_as_fast(0.2, "dd"),
            fact_within(
                "label_spread",
                "the label mix of a batch spreads at most 1.1x as much as in uniform draws",
                unit="x",
                at_most=1.1,
            ),
        ),
    ),
)
