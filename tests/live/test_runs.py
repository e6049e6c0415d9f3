"""The folder of runs: what is written, who may read it, how a run stands, and what is removed."""

import json
import os
import stat
from time import time

import pytest

from live.run_files import dead_name, run, written
from penstock.live import runs
from penstock.live.runs import clean_up, is_meant, read_run, run_name, run_names, status


def test_what_is_written_is_read_back_and_replaced():
    for rows in (500, 600):
        name = written(1, num_rows=rows)
        # As if both were written at the same moment.
        os.utime(runs.runs_folder() / f"{name}.json", ns=(1, 1))
        assert read_run(name)["report"]["num_rows"] == rows
    assert run_names() == [name]


def test_only_the_user_may_look(runs_folder):
    name = written(1)
    assert stat.S_IMODE(runs_folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((runs_folder / f"{name}.json").stat().st_mode) == 0o600
    assert [path.name for path in runs_folder.iterdir()] == [f"{name}.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON",
        "[" * 100_000,
        "3",
        '{"format": "another"}',
        '{"format": "penstock run", "version": 2}',
    ],
)
def test_a_file_that_holds_no_run_is_left_out(text, runs_folder):
    name = written(1)
    (runs_folder / f"{name}.json").write_text(text)
    assert read_run(name) is None


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "1-2-3", "1-2-0a1b2c3d-1/../x"])
def test_what_is_no_name_of_a_run_is_never_opened(name):
    assert read_run(name) is None


def test_a_user_names_a_run_by_its_process_or_by_its_number_in_that():
    name = "4711-81234-0a1b2c3d-2"
    assert all(is_meant(name, wanted) for wanted in ("4711", "4711-2", name))
    assert not any(is_meant(name, wanted) for wanted in ("47", "4711-1", "2", ""))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({}, "running"),
        ({"is_waiting": True}, "waiting"),
        ({"updated_at": time() - 100}, "silent"),
        ({"state": "ended"}, "between"),
        ({"state": "closed"}, "stopped"),
        ({"state": "closed", "error": "ValueError: no"}, "failed"),
        ({"state": "failed"}, "failed"),
    ],
)
def test_a_run_whose_process_lives_stands_as_it_says(values, word):
    name = run_name(1)
    assert status(name, run(name, **values)) == word


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({}, "killed"),
        ({"is_waiting": True}, "killed"),
        ({"state": "ended"}, "ended"),
        ({"state": "ended", "error": "ValueError: later"}, "ended"),
        ({"state": "closed"}, "stopped"),
        ({"state": "failed"}, "failed"),
    ],
)
def test_a_run_whose_process_is_gone_was_killed_unless_it_said_how_it_ended(values, word):
    name = dead_name()
    assert status(name, run(name, **values)) == word


def test_a_run_of_another_boot_or_container_lives_as_long_as_it_is_heard_of():
    name = run_name(1)
    pid, start, _, number = name.split("-")
    other = f"{pid}-{start}-00000000-{number}"
    assert status(other, run(other)) == "running"
    assert status(other, run(other, updated_at=time() - 30)) == "silent"
    assert status(other, run(other, updated_at=time() - 100)) == "killed"


def test_runs_that_are_over_go_after_a_week_and_the_oldest_if_they_are_many(
    runs_folder, monkeypatch
):
    monkeypatch.setattr(runs, "_MOST_RUNS", 3)
    names = [written(name=dead_name(number)) for number in range(1, 6)]
    for age, name in enumerate(names):
        os.utime(runs_folder / f"{name}.json", (time() - age, time() - age))
    week = 8 * 86_400
    os.utime(runs_folder / f"{names[1]}.json", (time() - week, time() - week))
    alive = written(1)
    os.utime(runs_folder / f"{alive}.json", (time() - week, time() - week))
    (runs_folder / f".{dead_name(9)}.new").write_text("cut short")
    (runs_folder / "notes.txt").write_text("mine")
    clean_up()
    assert run_names() == [names[0], names[2], names[3], alive]
    assert sorted(path.name for path in runs_folder.iterdir() if path.suffix != ".json") == [
        "notes.txt"
    ]


def test_a_folder_that_is_not_there_has_no_runs():
    clean_up()
    assert run_names() == []


def test_a_run_is_plain_json(runs_folder):
    name = written(1)
    found = json.loads((runs_folder / f"{name}.json").read_text())
    assert found["format"] == "penstock run"
    assert found["report"]["format"] == "penstock report"
