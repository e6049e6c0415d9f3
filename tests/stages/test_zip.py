"""zip: rows side by side, and where the shortest ends."""

import pytest
from tests.stages.conformance import (
    MAPPED,
    NUM_ROWS,
    ROWS,
    Chain,
    StageConformance,
    cases,
    is_odd,
    numbered,
    scaled,
)

import penstock as ps

CHAINS: dict[str, Chain] = {
    "zip": Chain(
        lambda ds: ps.zip(ds, ds.map(scaled)),
        list(zip(ROWS, MAPPED, strict=True)),
    ),
    "zip to the shortest": Chain(
        lambda ds: ps.zip(ds, ds.take(4), strict=False),
        list(zip(ROWS[:4], ROWS[:4], strict=True)),
    ),
    "zip with what never ends": Chain(
        lambda ds: ps.zip(ds, ds.take(4).repeat(), strict=False),
        list(zip(ROWS, (ROWS[:4] * 6)[:NUM_ROWS], strict=True)),
    ),
}


class TestZip(StageConformance):
    case = cases(CHAINS)


def test_zip_of_unequal_flows_is_an_error_at_their_end():
    short = numbered().filter(is_odd)
    with pytest.raises(ps.LengthError, match=r"input 0 ended after 11 rows .* strict=False"):
        list(ps.zip(short, numbered()))
    assert len(list(ps.zip(short, numbered(), strict=False))) == 11
