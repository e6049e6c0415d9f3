"""Reports of several ranks as one."""

from dataclasses import replace

import numpy as np
import pytest
from tests.reports.reports import report

import penstock as ps
from penstock.reports.figures import Decided, DeviceTraffic, SkippedFile, StagePadding, StageTime


def test_counts_are_added_and_the_time_is_that_of_all():
    ranks = [
        report(
            rank=1,
            world=2,
            opened_at=10.5,
            seconds=1.0,
            num_rows=300,
            state="closed",
            num_expected=50,
            skipped_files=(SkippedFile("a", 1),),
            padding=(StagePadding("pack", 1, 1),),
            error="E: x",
        ),
        report(
            rank=0,
            world=2,
            opened_at=10.0,
            seconds=1.0,
            num_rows=500,
            num_expected=60,
            skipped_files=(SkippedFile("b", 2), SkippedFile("a", 2)),
            padding=(StagePadding("pack", 3, 1),),
            decisions=(Decided("a", "b"),),
            device=DeviceTraffic(1, 2, 1),
        ),
    ]
    found = ps.merge_reports(ranks)
    assert [one.rank for one in found.ranks] == [0, 1]
    assert (found.num_rows, found.num_elements, found.num_expected) == (800, 50, 60)
    assert (found.seconds, found.waited_seconds, found.opened_at) == (1.5, 0.5, 10.0)
    assert (found.peak_nbytes, found.budget_nbytes, found.threads) == (6000, 20_000, 4)
    assert [stage.seconds for stage in found.stages] == [0.2, 0.8]
    assert [(one.file, one.num_rows) for one in found.skipped_files] == [("a", 3), ("b", 2)]
    assert found.padding == (StagePadding("pack", 4, 2),)
    assert [one.what for one in found.decisions] == ["rank 0: a"]
    assert found.device == DeviceTraffic(1, 2, 1)
    assert (found.state, found.error) == ("closed", "rank 1: E: x")
    assert "epoch 0 of 2 ranks" in str(found)


def test_the_timeline_has_all_ranks_on_one_axis_and_ends_with_all_rows():
    ranks = [report(rank=0, world=2, opened_at=0.0), report(rank=1, world=2, opened_at=1.0)]
    line = ps.merge_reports(ranks).timeline
    rows = {round(one.seconds, 6): one.num_rows for one in line}
    assert rows[0.5] == 250  # The second rank was not open yet.
    assert rows[1.0] == 500
    assert rows[1.5] == 750
    assert line[-1].seconds == 2.0
    assert line[-1].num_rows == 1000
    ledger = {round(one.seconds, 6): one.ledger_nbytes for one in line}
    assert (ledger[0.5], ledger[1.5]) == (2500, 2500)


def test_long_timelines_of_many_ranks_stay_bounded():
    ranks = [report(rank=n, world=64, opened_at=0.001 * n) for n in range(64)]
    line = ps.merge_reports(ranks).timeline
    assert len(line) <= 240
    assert line[-1].num_rows == 64 * 500


def test_reports_that_do_not_belong_together_are_refused():
    one, two = report(rank=0), report(rank=1)
    with pytest.raises(ValueError, match="needs at least one report, got none"):
        ps.merge_reports([])
    with pytest.raises(ValueError, match=r"one report of each rank, got those of ranks \[0, 0\]"):
        ps.merge_reports([one, one])
    with pytest.raises(ValueError, match="epoch 0 with 2 stages and epoch 3 with 2"):
        ps.merge_reports([one, report(rank=1, epoch=3)])
    with pytest.raises(ValueError, match=r"merged before: merge its \.ranks"):
        ps.merge_reports([ps.merge_reports([one, two])])


def test_ranks_of_a_real_run_add_up_to_the_whole_and_survive_json(tmp_path):
    ds = ps.from_arrays(np.arange(960)).shuffle(seed=0).batch(12)
    for rank in range(3):
        with ds.distribute(rank=rank, world=3).stream(epoch=2) as stream:
            assert sum(len(batch) for batch in stream) == 320
            stream.report().to_json(tmp_path / f"{rank}.json")
    found = ps.merge_reports(
        [ps.Report.from_json(path) for path in sorted(tmp_path.glob("*.json"))]
    )
    assert (found.epoch, found.world, found.num_rows, found.num_batches, found.state) == (
        2,
        3,
        960,
        80,
        "ended",
    )
    assert found.timeline[-1].num_rows == 960


def test_advice_names_options_of_one_process():
    function = StageTime(
        "map(f)",
        0.4,
        500,
        is_function=True,
        kind="function",
        num_processes=1,
        placement="1 process",
    )
    one = report(stages=(function,), cores=2, budget_nbytes=64_000_000, full_nbytes=100_000_000)
    found = ps.merge_reports([replace(one, rank=rank, world=4) for rank in range(4)])
    assert "processes=2)" in one.advice
    assert "processes=2)" in found.advice
    assert "on 4 processes" in found.advice
    assert "The budget of 64 MB" in found.advice
    assert found.budget_nbytes == 256_000_000


def test_ranks_that_are_missing_are_told():
    found = ps.merge_reports([report(rank=1, world=3), report(rank=2, world=3)])
    assert "epoch 0 of 2 of 3 ranks" in str(found)
