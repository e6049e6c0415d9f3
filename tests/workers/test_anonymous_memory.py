"""Memory without a name, shared by its descriptor."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from penstock.workers import anonymous_memory
from penstock.workers.anonymous_memory import memory_file, write_all
from penstock.workers.mapped_memory import map_memory
from penstock.workers.portable import is_portable


@pytest.mark.parametrize("name", ["penstock arena of map(a/b)", "\u00e4" * 300, ""])
def test_memory_has_its_size_is_zero_and_is_in_no_folder(name):
    fd = memory_file(name, 10_000)
    try:
        assert os.fstat(fd).st_size == 10_000
        assert os.fstat(fd).st_nlink == 0
        assert not os.get_inheritable(fd)
        assert str(Path(f"/proc/self/fd/{fd}").readlink()).endswith("(deleted)")
        assert os.pread(fd, 10_000, 0) == bytes(10_000)
    finally:
        os.close(fd)


def test_what_is_written_is_seen_by_all_who_map_it():
    fd = memory_file("penstock test", 8192)
    try:
        one, other = map_memory(fd, 8192), map_memory(fd, 8192)
        write_all(fd, memoryview(np.arange(1000, dtype="u2")), 100)
        assert one[100:2100].view("u2").tolist() == list(range(1000))
        other[0] = 7
        assert one[0] == 7
    finally:
        os.close(fd)


@pytest.mark.skipif(not is_portable, reason="anonymous memory of Linux takes no room on a disk")
def test_memory_on_a_disk_without_room_is_refused_at_once():
    with pytest.raises(OSError, match=r"has .* bytes left") as caught:
        memory_file("penstock test", 1 << 60)
    assert caught.value.errno == errno.ENOSPC
    assert anonymous_memory.tempfile.gettempdir() in str(caught.value)
