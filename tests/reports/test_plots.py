"""Plots: lines stay within their frames, and numbers are short."""

import re

from tests.reports.pages import checked

from penstock.reports.plots import Bar, Line, flame, lane, plot


def test_a_plot_has_its_axes_and_keys_and_draws_steps_within_its_frame():
    lines = [
        Line("rows", [(1.0, 5.0), (2.0, 10.0), (9.0, 7.0)], "c0", is_area=True),
        Line("more", [(2.0, 1.0)], "c1"),
    ]
    page = plot("Pace", "of <rows>", lines, seconds=2.0, unit=str, marks=[(1.0, "a & b")])
    assert checked(page) == "Pace of <rows> 0.0 5.0 10.0 a & b rows more 0 s 1.0 s 2.0 s rows more"
    steps = re.search(r'd="(M0 [^"]*)" fill="none"', page)
    assert steps is not None
    assert (
        steps[1] == "M0 50.00V50.00H500.0V0.00H1000.0V30.00H1000.0"
    )  # What is later ends at the frame.


def test_a_plot_of_nothing_is_empty():
    assert checked(plot("Pace", "", [Line("rows", [], "c0")], seconds=0.0, unit=str)).startswith(
        "Pace"
    )


def test_a_lane_leaves_out_what_nobody_would_see():
    page = lane([(0.0, 1.0, 0.5), (1.0, 2.0, 0.0), (2.0, 4.0, 3.0)], 4.0, "c0")
    checked(page)
    assert re.findall(r'x="([\d.]+)" y="0" width="([\d.]+)"', page) == [
        ("0.00", "250.00"),
        ("500.00", "500.00"),
    ]


def test_a_flame_has_a_row_for_each_level():
    page = flame([Bar(1.0, 2.0, 0, "c0", "batch"), Bar(1.0, 1.5, 1, "c1", "map")], 1.0, 2.0)
    assert "batch, 1.0 s" in checked(page)
    assert 'viewBox="0 0 1000 24"' in page
