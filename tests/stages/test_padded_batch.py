"""padded_batch: rows of differing shapes in one batch, and with lengths=True the sizes that they had."""

from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import (
    INPUTS,
    RAGGED_ROWS,
    RAGGED_SPEC,
    ROWS,
    Chain,
    StageConformance,
    batches,
    cases,
    check,
    keep,
    ragged,
)

import penstock as ps


def padded(rows: list[Any], size: int, pad: int) -> list[Any]:
    found = []
    for start in range(0, len(rows), size):
        group = rows[start : start + size]
        out = np.full((len(group), max(map(len, group))), pad)
        for place, row in zip(out, group, strict=True):
            place[: len(row)] = row
        found.append(out)
    return found


CHAINS: dict[str, Chain] = {
    "padded_batch": Chain(
        lambda ds: ds.map(ragged, spec=RAGGED_SPEC).padded_batch(4),
        padded(RAGGED_ROWS, 4, 0),
    ),
    "padded_batch, with a value": Chain(
        lambda ds: ds.map(ragged, spec=RAGGED_SPEC).padded_batch(4, padding_values=-1),
        padded(RAGGED_ROWS, 4, -1),
    ),
    "padded_batch, no remainder": Chain(
        lambda ds: ds.map(ragged, spec=RAGGED_SPEC).padded_batch(4, drop_remainder=True),
        padded(RAGGED_ROWS[:20], 4, 0),
    ),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "padded_batch of rows of one shape": Chain(lambda ds: ds.padded_batch(4), batches(ROWS, 4)),
}


class TestPaddedBatch(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


def test_padded_batch_pads_each_batch_to_its_own_longest_row():
    rows = [np.ones((i % 3, i % 2 + 1), "i4") * i for i in range(7)]
    found = run(ps.from_arrays(rows).padded_batch(3, padding_values=9))
    for start, batch in zip(range(0, 7, 3), found, strict=True):
        group = rows[start : start + 3]
        assert batch.shape == (len(group), *np.max([row.shape for row in group], axis=0))
        for place, row in zip(batch, group, strict=True):
            assert (place[: row.shape[0], : row.shape[1]] == row).all()
            assert (place == 9).sum() == place.size - row.size


def test_padded_batch_pads_text_and_dates_with_nothing():
    texts = [np.array(["a", "bb"][: i % 3], object) for i in range(3)]
    ds = ps.from_arrays(np.arange(3)).map(lambda i: texts[i], spec=ps.ArraySpec((None,), str))
    assert run(ds.padded_batch(3))[0].tolist() == [["", ""], ["a", ""], ["a", "bb"]]
    assert run(ds.padded_batch(3, padding_values="-"))[0].tolist() == [
        ["-", "-"],
        ["a", "-"],
        ["a", "bb"],
    ]
    dates = [np.arange(i).astype("M8[D]") for i in range(3)]
    assert np.isnat(run(ps.from_arrays(dates).padded_batch(3))[0]).sum() == 3


def test_padded_batch_of_batches_that_are_cut_short():
    ds = ps.from_arrays(np.arange(10).reshape(5, 2)).batch(2).padded_batch(3)
    (found,) = run(ds)
    assert found.tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]], [[8, 9], [0, 0]]]
    flow = ps.from_arrays(np.arange(10).reshape(5, 2)).filter(lambda x: True).batch(2)
    assert_same(run(flow.padded_batch(3)), [found])


def test_padded_batch_of_fields_that_need_it_and_fields_that_do_not():
    ds = ps.from_arrays(
        {"r": [np.arange(i) for i in range(5)], "x": np.arange(5), "t": list("abcde")}
    )
    first = run(ds.padded_batch(3, padding_values={"r": -1, "x": None, "t": None}))[0]
    assert first["r"].tolist() == [[-1, -1], [0, -1], [0, 1]]
    assert first["x"].tolist() == [0, 1, 2]
    assert first["t"].tolist() == ["a", "b", "c"]


# -- lengths=True ---------------------------------------------------------------------------------

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
    ds = ps.from_arrays((RAGGED, np.arange(COUNT))).padded_batch(4, padding_values=-1, lengths=True)
    ((_, lengths), *_) = ds
    assert lengths[0].tolist() == [0, 1, 2, 3]
    assert lengths[1] == ()
    assert ds.spec[1] == (ps.ArraySpec((None,), "int64"), ())


def test_lengths_of_rows_of_one_shape_are_refused():
    with pytest.raises(ValueError, match="needs a field whose shape differs"):
        ps.from_arrays(np.zeros((4, 3))).padded_batch(2, lengths=True)
