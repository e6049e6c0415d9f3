"""What stands in for what only Linux has gives what Linux gives: on a portable build, these tests are about it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _native
from penstock.core import system


def test_at_least_one_core_is_usable_and_no_more_than_there_are():
    assert 1 <= system.usable_cores() <= os.cpu_count()


@pytest.mark.skipif(system.is_portable, reason="only Linux tells which cores a process may use")
def test_cores_that_the_process_may_not_use_do_not_count():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert system.usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("", {}, sys.maxsize),
        ("0::/", {"cpu.max": "max 100000"}, sys.maxsize),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "10000 100000"}, 1),
        ("0::/pod/job", {"pod/job/cpu.max": "800000 100000", "pod/cpu.max": "300000 100000"}, 3),
        ("0::/../../other", {"cpu.max": "400000 100000"}, 4),
        ("0::/", {"cpu.max": "what"}, sys.maxsize),
        ("0::/", {"cpu.max": "100 x"}, sys.maxsize),
        (
            "2:cpu,cpuacct:/docker/1\n1:memory:/docker/1",
            {"cpu/cpu.cfs_quota_us": "250000", "cpu/cpu.cfs_period_us": "100000"},
            3,
        ),
        (
            "1:cpu:/a",
            {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "100000"},
            sys.maxsize,
        ),
    ],
)
def test_a_share_of_time_on_cores_is_rounded_up(groups, files, cores, tmp_path):
    limits = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in {"proc/self/cgroup": groups, **limits}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n" if text else "")
    assert system.cores_of_cgroups(str(tmp_path)) == cores


LIMITED = """
import pathlib, sys, os
pathlib.Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
import numpy as np, penstock as ps
print(ps.from_arrays(np.zeros((9, 9))).explain().threads)
"""


@pytest.mark.skipif(system.is_portable, reason="only Linux has cgroups")
def test_a_container_with_one_core_has_one_thread():
    group = Path(f"/sys/fs/cgroup/cpu/penstock-{os.getpid()}")
    try:
        group.mkdir()
        (group / "cpu.cfs_quota_us").write_text("100000")
    except OSError as error:
        pytest.skip(f"no CPU cgroup of version 1 can be made: {error}")
    try:
        command = [sys.executable, "-c", LIMITED, str(group)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout == "1\n"
    finally:
        group.rmdir()


PEAK = """
from penstock.core.system import peak_nbytes
before = peak_nbytes()
memory = bytes(range(256)) * (before >> 7)
high = peak_nbytes()
del memory
# The kernel counts pages of each thread by itself, and adds them up a little later.
assert 0 < 2 * before < high <= peak_nbytes() + (1 << 20), (before, high, peak_nbytes())
"""


def test_the_peak_of_memory_stays_when_memory_is_given_back():
    subprocess.run([sys.executable, "-c", PEAK], check=True)


def test_a_file_without_a_name_can_be_opened_once_more(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"content")
    with path.open("rb") as file:
        path.unlink()
        again = os.open(system.path_of_open(file.fileno()), os.O_RDONLY)
    try:
        assert os.pread(again, 100, 0) == b"content"
    finally:
        os.close(again)


def test_data_is_synced_and_advice_taken_on_any_file(tmp_path):
    with (tmp_path / "x").open("wb") as file:
        file.write(b"content")
        file.flush()
        system.sync_data(file.fileno())
        system.drop_from_page_cache(file.fileno())
    ends = os.pipe()
    try:
        system.advise(ends[0], "RANDOM")  # Advice about a pipe is refused, which is no error.
    finally:
        for end in ends:
            os.close(end)
    with pytest.raises(OSError, match="Bad file descriptor"):
        system.sync_data(ends[0])


def test_an_attribute_of_a_file_is_what_it_was_given_last(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"")
    try:
        system.set_attribute(path, "user.penstock", b"12 345")
    except OSError:
        pytest.skip("this file system holds no attributes")
    assert system.get_attribute(path, "user.penstock") == b"12 345"
    system.set_attribute(path, "user.penstock", b"\0\xff")
    assert system.get_attribute(path, "user.penstock") == b"\0\xff"
    link = tmp_path / "link"
    link.symlink_to(path)
    for one in (link, tmp_path / "nowhere"):
        with pytest.raises(OSError, match=str(one)):
            system.get_attribute(one, "user.penstock")
    with pytest.raises(OSError, match=r"No data available|Attribute not found"):
        system.get_attribute(path, "user.other")


def test_the_native_module_says_whether_it_is_portable():
    assert system.is_portable is _native.is_portable
    assert _native.is_portable in (True, False)
