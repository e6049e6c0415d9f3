"""Writes to a disk that fails at any moment: an error with file and cure, and the next write works."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("on_a_failing_disk.py")
WAYS = (
    "write npy",
    "write flow",
    "overwrite npy",
    "write tfrecord",
    "overwrite tfrecord",
    "npy over tfrecord",
    "tfrecord over npy",
    "cache rows",
    "cache rows threaded",
    "cache flow",
    "cache flow shuffled",
    "scratch",
    "index",
)


@pytest.fixture(scope="module")
def failing_disk(tmp_path_factory):
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} to build the failing disk with")
    library = tmp_path_factory.mktemp("failing") / "disk.so"
    source = Path(__file__).with_name("failing_disk.cpp")
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def check(folder, failing_disk, way, code, stays, step):
    """Let every `step`-th call fail, one after the other, and see what comes of it."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), way, code, stays, str(step)],
        env=os.environ | {"LD_PRELOAD": str(failing_disk)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    assert tries
    kinds = ("WriteError", "DiskFullError") if code == "ENOSPC" else ("WriteError",)
    wrong = [one for one in tries if one["first"] and not one["first"].startswith(kinds)]
    assert not wrong, wrong[:2]
    assert way == "index" or any(one["first"] for one in tries)
    for problem in ("second", "leak", "lost", "left"):
        found = [one for one in tries if one.get(problem)]
        assert not found, (problem, found[:2])


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("way", "code", "stays", "step"),
    [
        ("write npy", "EIO", "once", 5),
        ("write npy", "ENOSPC", "stays", 17),
        ("overwrite npy", "EIO", "stays", 11),
        ("write tfrecord", "EIO", "once", 5),
        ("tfrecord over npy", "EIO", "once", 5),
        ("cache rows", "EIO", "once", 9),
        ("cache flow", "EROFS", "stays", 9),
        ("scratch", "EIO", "once", 1),
        ("index", "EIO", "once", 2),
        ("write npy", "KILL", "once", 23),
        ("cache flow", "KILL", "once", 13),
    ],
)
def test_after_a_failure_the_next_write_works(tmp_path, failing_disk, way, code, stays, step):
    check(tmp_path, failing_disk, way, code, stays, step)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stays", ["once", "stays"])
@pytest.mark.parametrize("code", ["EIO", "ENOSPC", "EDQUOT", "EROFS", "EPERM", "KILL"])
@pytest.mark.parametrize("way", WAYS)
def test_whichever_call_fails_the_next_write_works(tmp_path, failing_disk, way, code, stays):
    check(tmp_path, failing_disk, way, code, stays, 1)
