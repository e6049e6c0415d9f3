"""enumerate: rows with their numbers."""

import numpy as np
import pytest
from tests.stages.conformance import INPUTS, ROWS, Chain, StageConformance, cases, check

import penstock as ps

CHAINS: dict[str, Chain] = {
    "enumerate": Chain(
        lambda ds: ds.enumerate(), [(np.int64(i), row) for i, row in enumerate(ROWS)]
    ),
}
# Those that differ from another only in an argument are checked for what they give, in one test.
LIMITS: dict[str, Chain] = {
    "enumerate from": Chain(
        lambda ds: ds.enumerate(-3),
        [(np.int64(i), row) for i, row in enumerate(ROWS, -3)],
    ),
}


class TestEnumerate(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LIMITS)
def test_arguments_at_their_limits(name: str, kind: str):
    check(LIMITS[name], kind)


MOST = 2**63 - 1


def test_numbers_reach_both_ends_of_an_int64():
    rows = ps.from_arrays(np.arange(5))
    for ds in (rows, rows.filter(lambda _: True), rows.repeat(2).take(5)):
        for start in (-(2**63), -3, 0, MOST - 4):
            assert [int(number) for number, _ in ds.enumerate(start)] == [*range(start, start + 5)]


@pytest.mark.parametrize("start", [MOST - 3, MOST])
def test_a_number_that_an_int64_cannot_hold_is_refused_when_the_chain_is_built(start):
    with pytest.raises(ValueError, match=rf"enumerate\({start}\) numbers 5 rows up to {start + 4}"):
        ps.from_arrays(np.arange(5)).enumerate(start)
    for beyond in (MOST + 1, 2**70):
        with pytest.raises(ValueError, match=f"start must be at most {MOST}, got {beyond}"):
            ps.from_arrays(np.arange(5)).enumerate(beyond)
    assert len(ps.from_arrays(np.empty(0)).enumerate(start)) == 0


@pytest.mark.parametrize("options", [{}, {"threads": 0}], ids=str)
def test_where_the_number_of_rows_is_unknown_the_row_is_an_error_that_names_the_stage(options):
    rows = ps.from_arrays(np.arange(5))
    for ds in (rows.filter(lambda _: True), rows.repeat()):
        late = ds.enumerate(MOST - 2).with_options(**options)
        with pytest.raises(
            ps.RangeError, match=rf"enumerate\({MOST - 2}\): row 3 would have .*{MOST + 1}"
        ):
            for _ in late:
                pass
