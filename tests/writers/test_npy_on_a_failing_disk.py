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
    "write parquet",
    "overwrite parquet",
    "write zarr",
    "overwrite zarr",
    "zarr over npy",
    "parquet over zarr",
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


def check(folder, failing_disk, jobs):
    """Let every `step`-th call of each job fail, one after the other, and see what comes of it."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *jobs],
        env=os.environ | {"LD_PRELOAD": str(failing_disk)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-500:], done.stderr[-3000:])
    tries = {}
    for line in map(json.loads, done.stdout.splitlines()):
        if "job" in line:
            job = tries.setdefault(line["job"], [])
        else:
            job.append(line)
    assert set(tries) == set(jobs)
    for job, found in tries.items():
        kind = "DiskFullError" if "ENOSPC" in job or "EDQUOT" in job else "WriteError"
        wrong = [one for one in found if one["first"] and not one["first"].startswith(kind)]
        assert not wrong, (job, wrong[:2])
        assert job.startswith("index") or any(one["first"] for one in found), job
        for problem in ("second", "leak", "lost", "left"):
            bad = [one for one in found if one.get(problem)]
            assert not bad, (job, problem, bad[:2])


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_after_a_failure_the_next_write_works(tmp_path, failing_disk):
    jobs = [
        "write npy:EIO:once:7",
        "write npy:ENOSPC:stays:29",
        "overwrite npy:EIO:stays:23",
        "write tfrecord:EIO:once:5",
        "tfrecord over npy:EIO:once:7",
        "write parquet:EIO:once:5",
        "parquet over zarr:ENOSPC:stays:41",
        "write zarr:EIO:once:31",
        "overwrite zarr:EIO:stays:97",
        "cache rows:EIO:once:13",
        "cache flow:EROFS:stays:11",
        "scratch:EIO:once:2",
        "index:EIO:once:3",
        "write npy:KILL:once:31",
        "cache flow:KILL:once:17",
    ]
    check(tmp_path, failing_disk, jobs)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stays", ["once", "stays"])
@pytest.mark.parametrize("code", ["EIO", "ENOSPC", "EDQUOT", "EROFS", "EPERM", "KILL"])
@pytest.mark.parametrize("way", WAYS)
def test_whichever_call_fails_the_next_write_works(tmp_path, failing_disk, way, code, stays):
    check(tmp_path, failing_disk, [f"{way}:{code}:{stays}:1"])
