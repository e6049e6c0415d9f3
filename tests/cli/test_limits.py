"""A process with a memory limit: told of, killed above it, in a cgroup and without one."""

import sys

import pytest

from penstock.cli import limits

WORKER = """
import json, os, sys
_, what, pipe, group = sys.argv
if group:
    open(os.path.join(group, "cgroup.procs"), "w").write(str(os.getpid()))
print("what a framework logs", file=sys.stderr)
if what == "fail":
    raise ValueError("no such luck")
os.write(int(pipe), b'{"batches": 1}\\n')
if what == "grow":
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)))
os.write(int(pipe), json.dumps({"result": {"group": group}}).encode() + b"\\n")
"""


@pytest.fixture(params=["cgroup", "watched"])
def run(request, tmp_path, monkeypatch, capfd):
    (tmp_path / "worker_of_limits.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if request.param == "watched":
        monkeypatch.setattr(limits, "_KINDS", ())
    heard = []

    def run(what):
        done = limits.run_limited("worker_of_limits", [what], limit=200_000_000, heard=heard.append)
        if request.param == "cgroup" and not done.is_in_cgroup:
            pytest.skip("no memory cgroup can be made here; processes are watched instead")
        assert done.is_in_cgroup == (request.param == "cgroup")
        assert capfd.readouterr() == ("", "")
        return done, heard

    return run


def test_what_ends_well_tells_its_result(run):
    done, heard = run("work")
    assert heard[0] == {"batches": 1}
    assert done.result is not None
    assert bool(done.result["group"]) == done.is_in_cgroup
    assert not done.was_killed
    assert done.error == ""


def test_what_takes_more_is_killed(run):
    done, heard = run("grow")
    assert done.was_killed
    assert done.result is None
    assert done.peak_nbytes > 150_000_000
    assert heard == [{"batches": 1}]


def test_what_fails_says_why(run):
    done, _ = run("fail")
    assert not done.was_killed
    assert done.error == "ValueError: no such luck"
    assert sys.executable
