"""The pace of the last seconds."""

import pytest

from penstock.live.pace import Pace
from reports.reports import MAP, SOURCE, report


def at(seconds: float, rows: int, **values):
    stages = (SOURCE, MAP)
    return report(
        seconds=seconds,
        num_rows=rows,
        num_elements=rows // 10,
        stages=stages,
        state="open",
        timeline=(),
        **values,
    )


def test_the_first_report_tells_of_all_the_time():
    now = Pace().now(at(2.0, 1000, waited_seconds=0.5, read_nbytes=80), is_asking=False)
    assert (now.rows_per_second, now.elements_per_second, now.waited_share) == (500, 50, 0.25)
    assert now.read_per_second == 40
    assert now.stage_rows == (250, 250)
    assert now.stage_busy == (0.05, 0.2)


def test_it_is_that_of_the_last_seconds_and_not_of_the_epoch():
    pace = Pace()
    for second in range(20):
        pace.now(at(float(second), 0, waited_seconds=float(second)), is_asking=True)
    for second in range(20, 27):
        now = pace.now(at(float(second), 100 * (second - 19), waited_seconds=20.0), is_asking=False)
    assert now.rows_per_second == 100
    assert now.waited_share == 0


@pytest.mark.parametrize(
    ("asks", "rows", "expected"), [(False, 0, True), (True, 0, False), (False, 10, False)]
)
def test_a_consumer_waits_elsewhere_if_it_is_given_nothing_and_asks_for_nothing(
    asks, rows, expected
):
    pace = Pace()
    pace.now(at(1.0, 100), is_asking=False)
    pace.now(at(2.0, 100), is_asking=False)
    assert pace.now(at(3.5, 100 + rows), is_asking=asks).is_waiting is expected


def test_a_stream_that_ended_waits_for_nobody():
    pace = Pace()
    pace.now(at(1.0, 100), is_asking=False)
    ended = report(seconds=9.0, num_rows=100, num_elements=10, state="ended")
    assert not pace.now(ended, is_asking=False).is_waiting
