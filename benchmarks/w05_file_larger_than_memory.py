"""W5: an 8 GB `.npy`, sorted by label, shuffled in a cgroup of 1 GB and of 300 MB."""

from __future__ import annotations

import re
from pathlib import Path

import big_file
import numpy as np
from harness import Case, Contender, Round, fact_within, times_as_fast
from measure import Sample

LABELLED = "the label mix of a batch spreads at most 1.1x as much as in uniform draws"


def _dataset(path: Path):
    import penstock as ps

    x = np.load(path, mmap_mode="r")
    return ps.from_arrays(x).shuffle(seed=0).batch(big_file.BATCH_SIZE)


def _penstock(directory: Path) -> Round:
    mixing = _mixing_by_explain(str(_dataset(directory / big_file.NAME).explain()))
    measured = big_file.penstock(_dataset)(directory)

    def one_round() -> Sample:
        sample = measured()
        return Sample(sample.value, {**sample.facts, "mixing": mixing})

    return one_round


def _mixing_by_explain(text: str) -> float:
    found = re.search(r"mixing\D{0,40}?(\d+(?:\.\d+)?)", text, re.IGNORECASE)
    if found is None:
        raise NotImplementedError("explain() states no mixing")
    return float(found[1])


def _case(name: str, memory: int) -> Case:
    return Case(
        name=name,
        title=f"8 GB .npy of 100 float32 a row, sorted by label, in {memory >> 20} MB, batch 32",
        unit="B/s",
        rounds=3,
        prepare=big_file.prepare,
        contenders=(
            Contender(
                "penstock",
                "from_arrays(np.load(path, mmap_mode='r')).shuffle(seed=0).batch(32)",
                _penstock,
                memory=memory,
            ),
            *big_file.dd(memory),
            big_file.random_reads(memory),
            big_file.memmap(memory),
        ),
        bars=(
            # The workload was measured without a cgroup; in one, dd reuses its pages and is far faster.
            times_as_fast(0.5, "dd, no limit"),
            times_as_fast(0.5, "dd"),
            fact_within("mixing", "mixing at least 0.9 by explain()", unit="", at_least=0.9),
            fact_within("label_spread", LABELLED, unit="x", at_most=1.1),
        ),
    )


CASES = tuple(
    _case(name, memory) for name, memory in (("w5-1GB", 1 << 30), ("w5-300MB", 300 << 20))
)
