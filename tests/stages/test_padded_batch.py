"""padded_batch(lengths=True): batches come with the sizes that rows had."""

from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, run
from tests.stages.conformance import StageConformance, keep

import penstock as ps

COUNT = 23
RAGGED = [np.arange(i % 5, dtype="i4") for i in range(COUNT)]
PLANES = [np.full((i % 3, 2, i % 4), i, "f4") for i in range(COUNT)]
NAMES = ["n" * (i % 3) for i in range(COUNT)]


def source() -> ps.Dataset:
    return ps.from_arrays({"r": RAGGED, "p": PLANES, "y": np.arange(COUNT), "t": NAMES})


def bare() -> ps.Dataset:
    return ps.from_arrays(RAGGED)


def sizes(values: list[Any], size: int, *axes: int) -> list[Any]:
    rows = [[v.shape[a] for a in axes] if len(axes) > 1 else v.shape[axes[0]] for v in values]
    return [np.array(rows[i : i + size]) for i in range(0, len(rows), size)]


def pairs(ds: ps.Dataset, size: int, *, rest: bool = True) -> list[Any]:
    found = []
    r, p = sizes(RAGGED, size, 0), sizes(PLANES, size, 0, 2)
    for number, batch in enumerate(run(ds.padded_batch(size))):
        if not rest and len(r[number]) < size:
            break
        lengths = {"p": p[number], "r": r[number], "t": (), "y": ()}
        found.append((batch, lengths if isinstance(batch, dict) else r[number]))
    return found


CASES = {
    "rows": Case(lambda: source().padded_batch(4, lengths=True), pairs(source(), 4)),
    "flow": Case(
        lambda: source().filter(keep_row).padded_batch(4, lengths=True),
        pairs(source(), 4),
        has_length=False,
    ),
    "no remainder": Case(
        lambda: source().padded_batch(4, lengths=True, drop_remainder=True),
        pairs(source(), 4, rest=False),
    ),
    "a bare array": Case(lambda: bare().padded_batch(4, lengths=True), pairs(bare(), 4)),
}


def keep_row(row: Any) -> bool:
    return keep(row)


class TestLengths(StageConformance):
    @pytest.fixture(params=CASES)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return CASES[request.param]


def test_fields_of_one_shape_have_nothing_in_the_place_of_a_length():
    ds = ps.from_arrays((RAGGED, np.arange(COUNT))).padded_batch(4, pad=-1, lengths=True)
    ((_, lengths), *_) = ds
    assert lengths[0].tolist() == [0, 1, 2, 3]
    assert lengths[1] == ()
    assert ds.spec[1] == (ps.ArraySpec((None,), "int64"), ())


def test_lengths_of_rows_of_one_shape_are_refused():
    with pytest.raises(ValueError, match="needs a field whose shape differs"):
        ps.from_arrays(np.zeros((4, 3))).padded_batch(2, lengths=True)
