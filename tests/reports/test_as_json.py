"""A report as JSON: nothing is lost, and what is no report is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.reports.reports import report

import penstock as ps
from penstock.reports.figures import DeviceTraffic


def real() -> ps.Report:
    rows = [np.arange(n % 7 + 1) for n in range(300)]
    ds = ps.from_arrays(rows).shuffle(seed=1).map(lambda x: x * 2).padded_batch(8)
    with ds.stream() as stream:
        for _ in stream:
            pass
        return stream.report()


def test_a_report_comes_back_from_its_file_as_it_was(tmp_path):
    found = replace(real(), device=DeviceTraffic(1, 2, 3), ranks=(report(),))
    found.to_json(tmp_path / "report.json")
    assert ps.Report.from_json(tmp_path / "report.json") == found


def test_spans_can_be_left_out_and_a_later_version_may_have_more():
    found = real()
    small = found.to_dict(spans=False)
    assert small["spans"]["stage"] == []
    small["stages"][0]["colour"] = "red"
    small["weather"] = "fine"
    small = json.loads(json.dumps(small))
    assert ps.Report.from_dict(small) == replace(found, spans=())


def test_what_is_no_report_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"dict with format 'penstock report', got \[1\]"):
        ps.Report.from_dict([1])  # type: ignore[arg-type]
    (tmp_path / "no.json").write_text("{")
    with pytest.raises(ValueError, match=r"no\.json holds no report, but no JSON at all: "):
        ps.Report.from_json(tmp_path / "no.json")
