"""A report writes itself, and shows itself in a notebook."""

import json

from tests.reports.reports import report

import penstock as ps


def test_a_report_writes_itself_in_all_forms(tmp_path):
    found = report()
    found.to_html(tmp_path / "report.html")
    found.to_json(str(tmp_path / "report.json"))
    found.to_trace(tmp_path / "report.trace.json")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert ps.Report.from_json(tmp_path / "report.json") == found
    assert json.loads((tmp_path / "report.trace.json").read_text())["traceEvents"]


def test_in_a_notebook_it_is_a_part_of_a_page():
    shown = report()._repr_html_()
    assert shown.startswith('<div class="pst')
    assert "<html" not in shown
    assert "map(f) is the bottleneck" in shown
