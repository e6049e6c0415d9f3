"""How sizes are written, and what this process may use: its cgroup, of either version, or the host."""

from pathlib import Path

import numpy as np
import pytest

from penstock.memory import default_budget, format_nbytes, parse_nbytes

GIB = 1 << 30
MOST = 2 * GIB


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        (1, 1),
        (10**12, 10**12),
        (np.int64(4096), 4096),
        ("1", 1),
        ("512MB", 512_000_000),
        ("512 mb", 512_000_000),
        ("512M", 512_000_000),
        ("2GiB", 2 << 30),
        ("2gi", 2 << 30),
        (" 1.5 KiB ", 1536),
        ("0.5GB", 500_000_000),
        ("3TB", 3 * 10**12),
        ("7B", 7),
    ],
)
def test_a_size_is_a_number_or_a_text(text, nbytes):
    assert parse_nbytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "MB", "5 XB", "1e9", "-5MB", "5MB5", "1,5GB", "5 M B", "٣MB"])
def test_a_text_that_is_no_size_is_an_error(text):
    with pytest.raises(ValueError, match="must look like '512MB' or '2GiB'"):
        parse_nbytes(text)


@pytest.mark.parametrize("size", [0, -1, "0", "0.1"])
def test_a_size_below_one_byte_is_an_error(size):
    with pytest.raises(ValueError, match="at least 1 byte"):
        parse_nbytes(size)


@pytest.mark.parametrize("size", [1.5, None, True, b"5MB", [1]])
def test_a_size_of_another_type_is_an_error(size):
    with pytest.raises(TypeError, match="number of bytes or a text like '512MB'"):
        parse_nbytes(size)


def test_sizes_are_written_as_people_say_them():
    sizes = [0, 1, 999, 1000, 1536, 999_600, 1_000_000, 2**30, 10**12, 10**16]
    texts = [
        "0 B",
        "1 B",
        "999 B",
        "1 KB",
        "1.54 KB",
        "1000 KB",
        "1 MB",
        "1.07 GB",
        "1 TB",
        "10000 TB",
    ]
    assert list(map(format_nbytes, sizes)) == texts


class Tree:
    """A root directory with the files that tell what is free."""

    def __init__(self, root: Path, *, available: int = 64 * GIB) -> None:
        self.root = root
        self.write("proc/meminfo", f"MemTotal: 1 kB\nMemAvailable: {available // 1024} kB\n")

    def write(self, path: str, text: object) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def v1(self, group: str, limit: object, used: int, cache: int = 0) -> None:
        base = f"sys/fs/cgroup/memory/{group}"
        self.write(f"{base}/memory.limit_in_bytes", limit)
        self.write(f"{base}/memory.usage_in_bytes", used)
        self.write(f"{base}/memory.stat", f"cache 1\ntotal_inactive_file {cache}")

    def v2(self, group: str, limit: object, used: int, cache: int = 0) -> None:
        base = f"sys/fs/cgroup/{group}"
        self.write(f"{base}/memory.max", limit)
        self.write(f"{base}/memory.current", used)
        self.write(f"{base}/memory.stat", f"anon 1\ninactive_file {cache}")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_without_a_cgroup_it_is_a_quarter_of_what_the_host_has_free(tmp_path):
    assert default_budget(Tree(tmp_path, available=2 * GIB).root) == GIB


def test_it_is_two_gibibytes_at_most(tree):
    assert default_budget(tree.root) == MOST


def test_a_cgroup_of_version_2_binds(tree):
    tree.write("proc/self/cgroup", "0::/user/job")
    tree.v2("user/job", 2 * GIB, used=GIB)
    assert default_budget(tree.root) == GIB // 2


def test_a_cgroup_of_version_1_binds(tree):
    tree.write("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/job\n1:name=systemd:/")
    tree.v1("docker/job", 3 * GIB, used=GIB)
    assert default_budget(tree.root) == GIB


def test_the_tightest_group_above_the_process_binds(tree):
    tree.write("proc/self/cgroup", "0::/a/b/c")
    tree.v2("a/b/c", "max", used=0)
    tree.v2("a/b", 8 * GIB, used=0)
    tree.v2("a", 2 * GIB, used=0)
    assert default_budget(tree.root) == GIB


def test_pages_of_files_that_nobody_uses_are_free(tree):
    tree.write("proc/self/cgroup", "0::/")
    tree.v2("", GIB, used=GIB, cache=GIB // 2)
    assert default_budget(tree.root) == GIB // 4
    tree.write("proc/self/cgroup", "3:memory:/")
    tree.v1("", GIB, used=GIB, cache=GIB // 4)
    assert default_budget(tree.root) == GIB // 8


def test_no_limit_is_no_limit_in_either_version(tree):
    tree.write("proc/self/cgroup", "4:memory:/job\n0::/job")
    tree.v1("job", (1 << 63) - 4096, used=5 * GIB)
    tree.v2("job", "max", used=5 * GIB)
    assert default_budget(tree.root) == MOST


def test_in_a_container_the_path_of_the_host_leads_nowhere_and_the_mount_counts(tree):
    tree.write("proc/self/cgroup", "4:memory:/docker/0123456789abcdef")
    tree.v1("", 2 * GIB, used=0)
    assert default_budget(tree.root) == GIB


def test_a_hybrid_host_is_read_in_both_versions(tree):
    tree.write("proc/self/cgroup", "4:memory:/job\n0::/job")
    tree.v1("job", 4 * GIB, used=0)
    tree.v2("unified/job", 2 * GIB, used=0)
    assert default_budget(tree.root) == GIB


def test_a_group_that_is_over_its_limit_leaves_the_least_there_is(tree):
    tree.write("proc/self/cgroup", "0::/")
    tree.v2("", GIB, used=2 * GIB)
    assert default_budget(tree.root) == 1


def test_files_that_cannot_be_read_are_passed_over(tree):
    tree.write("proc/self/cgroup", "0::/job")
    tree.write("sys/fs/cgroup/job/memory.max", "what?")
    assert default_budget(tree.root) == MOST


def test_the_real_one_is_something_sensible():
    assert 1 << 20 <= default_budget() <= MOST


def test_what_streams_have_already_counts_as_free(tmp_path):
    tree = Tree(tmp_path, available=GIB)
    assert default_budget(tree.root, own_nbytes=GIB // 2) == 3 * GIB // 4
    assert default_budget(tree.root, own_nbytes=8 * GIB) == MOST
