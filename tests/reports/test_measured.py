"""What follows from the fields of a report."""

from tests.reports.reports import report


def test_rates_and_shares_follow_from_counts_and_seconds():
    found = report()
    assert (found.num_batches, found.rows_per_second, found.elements_per_second) == (
        50,
        500.0,
        50.0,
    )
    assert found.waited_share == 0.5
    assert report(is_batched=False).num_batches == 0
    nothing = report(seconds=0.0)
    assert (nothing.rows_per_second, nothing.elements_per_second, nothing.waited_share) == (0, 0, 0)
