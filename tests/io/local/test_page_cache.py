"""The memory of the machine, or of the container around the process if that is smaller."""

import pytest

from penstock.io.local.page_cache import memory_limit, page_cache_room

GB = 1 << 30


@pytest.fixture
def machine(tmp_path):
    """A root with a /proc and a /sys/fs/cgroup of our own, with 64 GB."""
    proc, cgroups = tmp_path / "proc", tmp_path / "sys/fs/cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal:       {64 * GB // 1024} kB\nMemFree: 1 kB\n")

    def write(name: str, text: str) -> None:
        (cgroups / name).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / name).write_text(text)

    return tmp_path, proc, write


def test_without_a_container_it_is_the_machine(machine):
    root, _, _ = machine
    assert memory_limit(root) == 64 * GB


def test_the_smallest_limit_on_the_way_up_counts(machine):
    root, proc, write = machine
    (proc / "self/cgroup").write_text("0::/pod/container\n")
    write("pod/container/memory.max", "max\n")
    write("pod/memory.max", f"{2 * GB}\n")
    assert memory_limit(root) == 2 * GB


def test_a_container_that_sees_only_itself(machine):
    root, proc, write = machine
    (proc / "self/cgroup").write_text("0::/../../other\n")
    write("memory.max", f"{GB}\n")
    assert memory_limit(root) == GB


def test_version_1_cgroups(machine):
    root, proc, write = machine
    (proc / "self/cgroup").write_text("5:cpu,memory:/job\n4:devices:/\n0::/\n")
    write("memory/job/memory.limit_in_bytes", f"{GB}\n")
    write("memory/memory.limit_in_bytes", "9223372036854771712\n")
    assert memory_limit(root) == GB


def test_without_proc_it_is_careful(tmp_path):
    assert memory_limit(tmp_path) == GB


def test_here_it_is_a_quarter():
    assert 0 < page_cache_room() == memory_limit() // 4
