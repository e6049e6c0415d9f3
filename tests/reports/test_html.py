"""The page of a report: whole, of one file, for any report."""

import re
from dataclasses import replace

import numpy as np
import pytest
from tests.reports.pages import checked
from tests.reports.reports import MAP, report

import penstock as ps
from penstock.reports.figures import (
    DeviceTraffic,
    SkippedFile,
    StagePadding,
    StageShuffle,
    StageTime,
)
from penstock.reports.html import fragment, write

NASTY = 'map(<b>"f"</b> & more)' + "x" * 300
REPORTS = {
    "plain": report(),
    "nothing": report(
        num_elements=0, num_rows=0, waited_seconds=0.0, stages=(), timeline=(), seconds=0.0
    ),
    "no timeline": report(timeline=()),
    "one stage": report(stages=(StageTime("from_arrays", 0.1, 500),)),
    "many stages": report(
        stages=tuple(
            StageTime(f"map({n})", n / 10, 500, inputs=(n - 1,) if n else ()) for n in range(40)
        )
    ),
    "nasty names": report(
        stages=(StageTime(NASTY, 0.1, 500, placement=NASTY),), error=NASTY, skipped=(NASTY,)
    ),
    "everything": report(
        num_skipped=3,
        skipped=("bad",),
        skipped_files=(SkippedFile("a.npz", 3),),
        padding=(StagePadding("pack", 5, 5),),
        shuffles=(StageShuffle("shuffle", "exact", 1.0),),
        device=DeviceTraffic(1, 2, 1),
        read_nbytes=7,
        net_nbytes=5,
        state="open",
    ),
    "ranks": ps.merge_reports([report(rank=rank, world=3) for rank in range(3)]),
}


@pytest.mark.parametrize("kind", REPORTS)
def test_the_page_of_any_report_is_whole_and_needs_nothing_else(kind: str, tmp_path):
    found = REPORTS[kind]
    write(found, tmp_path / "report.html")
    text = checked((tmp_path / "report.html").read_text())
    assert found.advice[:40] in text
    assert found.error[:200] in text
    assert checked(fragment(found))


def test_names_are_shown_as_they_are_and_never_as_html():
    text = checked(fragment(REPORTS["nasty names"]))
    assert 'map(<b>"f"</b> & more)' in text


def test_a_page_has_its_plots_and_a_lane_for_each_stage():
    text = checked(fragment(report()))
    for title in ("Throughput", "Waiting", "Memory", "Queue", "Stages over time", "Pipeline"):
        assert title in text
    assert text.count("map(f)") >= 3


def test_a_real_stream_has_a_picture_of_each_threads_work_where_inner_work_is_below_outer():
    ds = (
        ps.from_arrays(np.zeros((3000, 500)))
        .map(np.sort)
        .batch(30)
        .with_options(processes=0, threads=2)
    )
    with ds.stream() as stream:
        for _ in stream:
            pass
        found = stream.report()
    page = fragment(found)
    text = checked(page)
    assert "each thread's work" in text
    assert any(name in text for name in found.thread_names)
    levels = {int(y) for y in re.findall(r'y="(\d+)" width="[\d.]+" height="11"', page)}
    assert levels >= {0, 12, 24}  # The batch, the function in it, and the source below that.


def test_a_budget_is_drawn_only_where_it_can_be_seen():
    assert 'stroke-dasharray="5 4"' in fragment(report(budget_nbytes=5000))
    assert 'stroke-dasharray="5 4"' not in fragment(report(budget_nbytes=5_000_000))


def test_names_of_files_that_are_not_utf8_are_written(tmp_path):
    name = b"a\xff.npy".decode("utf-8", "surrogateescape")
    report(stages=(replace(MAP, call=name),)).to_html(tmp_path / "a.html")
    assert "a\\udcff.npy" in (tmp_path / "a.html").read_text()
