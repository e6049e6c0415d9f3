"""penstock watch: the page of what runs, and a list of it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from live.run_files import SECONDS, dead_name, written
from penstock.cli import main


@pytest.fixture(autouse=True)
def _runs_of_this_test(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def asked(url):
    """Return the runs that a page is told."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=SECONDS)
    try:
        connection.request("GET", f"{parts.path}runs")
        return json.loads(connection.getresponse().read())["runs"]
    finally:
        connection.close()


@pytest.mark.parametrize("one", [True, False])
def test_it_serves_all_runs_or_one_until_ctrl_c(one):
    wanted, _ = written(1), written(name=dead_name(7))
    arguments = [f"{os.getpid()}-1"] if one else []
    child = subprocess.Popen(
        [sys.executable, "-m", "penstock", "watch", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        line = child.stdout.readline()
        assert line.startswith("live page at http://127.0.0.1:")
        found = asked(line.split()[3])
        assert [run["name"] for run in found][:1] == [wanted]
        assert len(found) == (1 if one else 2)
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=SECONDS) == ("", "\n")
        assert child.returncode == 0
    finally:
        child.kill()
        child.communicate()


def test_runs_are_listed_as_json_and_nothing_is_served(capsys):
    name, dead = written(1), written(name=dead_name(7))
    assert main(["watch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["name"], one["status"]) for one in found] == [(name, "running"), (dead, "killed")]
    assert found[0]["rows_per_second"] == 500
    assert main(["watch", f"{os.getpid()}-7", "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["runs"]] == [dead]


def test_a_run_that_is_not_there_is_told_with_those_that_are(capsys):
    assert main(["watch", "99"]) == 1
    cure = "A dataset is shown if it has with_options(watch=True).\n"
    assert capsys.readouterr().err == (
        f"penstock watch: there is no run '99': there is none at all. {cure}"
    )
    written(1)
    assert main(["watch", "99"]) == 1
    there = f"there are {os.getpid()}-1 (running, python train.py)"
    assert capsys.readouterr().err == f"penstock watch: there is no run '99': {there}. {cure}"


def test_a_port_that_is_taken_is_told_in_a_line(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["watch", "--port", str(taken.getsockname()[1])]) == 1
    assert "Address already in use" in capsys.readouterr().err


def test_a_port_that_is_none_is_refused(capsys):
    assert main(["watch", "--port", "70000"]) == 2
    assert "70000 is not in the range" in capsys.readouterr().err
