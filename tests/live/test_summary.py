"""What the page is told of all runs, and of one."""

import json

import pytest

from live.run_files import dead_name, run, written
from penstock.live.runs import run_name, write_run
from penstock.live.summary import all_runs, progress, seconds_left
from reports.reports import sample


def test_runs_that_go_on_come_first_and_the_one_wanted_is_told_whole():
    dead = written(name=dead_name(1))
    first, second = written(1), written(2)
    found = all_runs()
    assert [one["name"] for one in found["runs"]] == [first, second, dead]
    assert [one["status"] for one in found["runs"]] == ["running", "running", "killed"]
    assert found["run"]["name"] == first
    assert found["run"]["report"]["num_rows"] == 500
    assert all_runs(wanted=dead)["run"]["name"] == dead
    assert all_runs(wanted="nobody")["run"]["name"] == first
    assert json.loads(json.dumps(found)) == found


def test_one_run_or_one_process_may_be_all_that_is_seen():
    first, second, _ = written(1), written(2), written(name="1-2-00000000-1")
    pid = first.partition("-")[0]
    assert [one["name"] for one in all_runs(only=pid)["runs"]] == [first, second]
    assert [one["name"] for one in all_runs(only=f"{pid}-2")["runs"]] == [second]
    assert all_runs(only="77")["run"] is None


def test_the_runs_of_this_process_are_shown_before_those_of_others():
    other = run("1-2-00000000-1")
    other["began_at"] = 1.0
    write_run("1-2-00000000-1", other)
    own = written(1)
    found = all_runs()
    assert [one["name"] for one in found["runs"]] == ["1-2-00000000-1", own]
    assert found["run"]["name"] == own


def test_a_run_that_lacks_something_is_left_out(runs_folder):
    name = run_name(1)
    found = run(name)
    del found["now"]
    runs_folder.mkdir(parents=True)
    (runs_folder / f"{name}.json").write_text(json.dumps(found))
    shown = all_runs()
    assert (shown["runs"], shown["run"]) == ([], None)


def test_a_run_that_goes_on_is_shown_as_it_is_now_and_one_that_ended_as_it_was():
    goes_on = all_runs(wanted=written(1, num_expected=100))["run"]
    assert goes_on["memory_nbytes"] == 2500  # That of the last sample.
    assert goes_on["memory_share"] == 0.25
    assert goes_on["seconds_left"] == pytest.approx(1.0)
    ended = all_runs(wanted=written(name=dead_name(), state="ended"))["run"]
    assert ended["memory_nbytes"] == 3000  # The most.
    assert ended["rows_per_second"] == 500
    assert ended["waited_share"] == 0.5
    assert ended["seconds_left"] is None


@pytest.mark.parametrize(
    ("done", "expected", "share"), [(50, 100, 0.5), (0, 100, 0.0), (50, None, None), (0, 0, 1.0)]
)
def test_progress_is_what_was_given_out_of_what_there_is(done, expected, share):
    assert progress({"num_elements": done, "num_expected": expected}) == share


def test_the_time_left_goes_by_the_later_half_of_the_time():
    # A slow start, as that of a model that is compiled: 10 batches in 8 seconds, then 10 a second.
    slow = [sample(1.0)._replace(seconds=second, num_elements=10) for second in (4.0, 8.0)]
    fast = [
        sample(1.0)._replace(seconds=8.0 + more, num_elements=10 + 10 * more)
        for more in range(1, 9)
    ]
    found = run(
        run_name(1), timeline=(*slow, *fast), seconds=16.0, num_elements=90, num_expected=190
    )
    assert seconds_left(found["report"]) == pytest.approx(10.0)


def test_nobody_knows_the_time_left_of_a_flow_or_before_the_first_batch():
    assert seconds_left(run(run_name(1), num_expected=None)["report"]) is None
    assert seconds_left(run(run_name(1), num_elements=0, num_expected=10)["report"]) is None
