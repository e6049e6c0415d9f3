"""cache(): what it keeps in memory, and what that takes."""

import gc
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import (
    MAPPED,
    ODD,
    ROWS,
    Chain,
    StageConformance,
    batches,
    cases,
    is_odd,
    keep,
    scaled,
)

import penstock as ps
from penstock.memory import process_ledger

CHAINS: dict[str, Chain] = {
    "cache": Chain(lambda ds: ds.cache(), ROWS),
    "cache of text": Chain(lambda ds: ds.map(scaled).cache(), MAPPED),
    "cache of batches": Chain(lambda ds: ds.batch(4).cache(), batches(ROWS, 4)),
    "cache of a filter": Chain(lambda ds: ds.filter(is_odd).cache().batch(3), batches(ODD, 3)),
}


class TestCache(StageConformance):
    case = cases(CHAINS)


def test_cache_reads_its_input_once():
    calls: list[int] = []
    ds = ps.from_arrays(np.arange(20)).map(lambda x: (calls.append(int(x)), x)[1]).cache()
    ds = ds.with_options(processes=0)
    calls.clear()
    first, second = run(ds), run(ds, epoch=1)
    assert_same(first, second)
    assert sorted(calls) == list(range(20))
    assert_same(run(ds.shuffle().take(0)), [])
    list(ds.batch(3))  # What is built on it shares it.
    assert len(calls) == 20


@pytest.mark.parametrize("kind", ["rows", "text", "flow"])
def test_a_cache_whose_filling_failed_is_filled_by_the_next_stream(kind: str):
    before = process_ledger.granted
    is_bad = [True]

    def fails_once(y: Any) -> Any:
        if y == 15 and is_bad[0]:
            raise ValueError("not yet")
        return str(y) if kind == "text" else y

    ds = ps.from_arrays(np.arange(20)).map(fails_once)
    ds = (ds.filter(keep) if kind == "flow" else ds).cache()
    for _ in range(3):
        with pytest.raises(ps.FunctionError, match="not yet"):
            list(ds)
    granted = process_ledger.granted - before
    is_bad[0] = False
    assert len(list(ds)) == 20
    assert granted <= process_ledger.granted - before
    assert process_ledger.granted - before < 1 << 20
    del ds
    gc.collect()  # The frames of the failures refer to it.
    assert process_ledger.granted == before


def test_a_cache_of_sparse_rows_takes_little_more_than_the_rows():
    before = process_ledger.granted
    ds = ps.from_arrays(np.arange(40_000)).filter(lambda x: x % 100 == 0).cache()
    ds = ds.with_options(memory="1MB")
    assert len(list(ds)) == 400
    assert process_ledger.granted - before < 100_000
