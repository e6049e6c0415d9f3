"""explain(): stages, specs, choices and bytes, before anything is read."""

from typing import Any

import numpy as np

import penstock as ps


def test_explain_tells_stages_specs_choices_and_bytes_and_reads_nothing():
    class Unread:
        shape, dtype = (1000, 4), np.dtype("f4")

        def __getitem__(self, key: slice) -> Any:
            assert (key.start, key.stop) == (0, 0)
            return np.zeros((0, 4), "f4")

    ds = ps.from_arrays({"x": Unread(), "y": np.arange(1000)}).shuffle(seed=3).batch(32)
    found = ds.with_options(memory="10MB", threads=2).explain()
    assert [stage.call for stage in found.stages] == [
        "from_arrays((1000, 4) float32, (1000) int64)",
        "shuffle(seed=3)",
        "batch(32)",
    ]
    assert [stage.num_rows for stage in found.stages] == [1000, 1000, 32]
    assert found.stages[0].row_nbytes == 24
    assert found.budget_nbytes == 10_000_000
    assert found.need_nbytes <= found.total_nbytes <= found.budget_nbytes
    assert found.fits
    assert found.threads == 2
    text = str(found)
    for part in (
        "pipeline",
        "x: float32[4], y: int64",
        "x: float32[?x4]",
        "plan",
        "blocks",
        "threads  2",
        "memory",
        "10 MB",
    ):
        assert part in text


def test_explain_shows_each_input_of_a_combination():
    a = ps.from_arrays(np.arange(4))
    found = ps.zip(a.shuffle(), a.batch(2).unbatch()).explain()
    assert [(stage.call, stage.depth) for stage in found.stages] == [
        ("from_arrays((4) int64)", 1),
        ("shuffle(seed=0)", 1),
        ("from_arrays((4) int64)", 1),
        ("batch(2)", 1),
        ("unbatch()", 1),
        ("zip(2 datasets)", 0),
    ]


def test_explain_of_endless_and_unknown_lengths_says_so():
    x = np.zeros((300, 3), "f4")
    assert "endless x" in str(ps.from_arrays(x).repeat().explain())
    assert "unknown number of x" in str(ps.from_arrays(x).filter(lambda x: True).explain())
