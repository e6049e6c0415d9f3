"""A file for bytes that come back: whole pages past the page cache, all else through it."""

import errno
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import DiskFullError, WriteError
from penstock.io.local.bounce import aligned_empty
from penstock.io.local.scratch_file import ScratchFile
from penstock.io.reader import Range


def filled(nbytes, start=0):
    """Return memory on a page, or `start` bytes behind one."""
    memory = aligned_empty(nbytes + start)[start:]
    memory[:] = np.random.default_rng(nbytes + start).integers(0, 256, nbytes, dtype=np.uint8)
    return memory


def read_back(file, places):
    with file.reader() as reader:
        found = {offset: np.empty_like(memory) for offset, memory in places.items()}
        reader.read_ranges([Range(offset, memory) for offset, memory in found.items()])
    return all((found[offset] == memory).all() for offset, memory in places.items())


PIECES = [
    [filled(4096), filled(1 << 20)],  # Whole pages.
    [filled(100), filled(4096), filled(3 << 20)],  # From the first on, no place is a page's.
    [filled(8192, start=8), filled(8192)],  # Memory that is not on a page.
    [filled(1), filled(0), filled(4095)],
]


@pytest.mark.parametrize("pieces", PIECES, ids=["pages", "odd places", "odd memory", "small"])
@pytest.mark.parametrize("kind", ["direct", "no direct writes", "refused when written"])
@pytest.mark.parametrize("folder", ["disk", "memory"])
def test_what_was_written_comes_back(tmp_path, monkeypatch, pieces, kind, folder):
    if folder == "memory" and not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm; files on disk are tested")
    where = tmp_path if folder == "disk" else Path("/dev/shm")
    if kind == "no direct writes":
        monkeypatch.setattr("penstock.io.local.scratch_file._open_direct", lambda path: -1)
    with ScratchFile(where, "scratch") as file:
        if kind == "refused when written":
            direct, write = file._direct.number, os.pwrite
            monkeypatch.setattr(os, "pwrite", lambda *args: _refused(direct, write, *args))
        places = {file.append(piece): piece for piece in pieces if piece.size}
        assert file.nbytes == sum(map(len, pieces))
        assert read_back(file, places)
    assert list(tmp_path.iterdir()) == []


def _refused(direct, write, fd, memory, offset):
    if fd == direct:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    return write(fd, memory, offset)


def test_a_write_that_stops_short_goes_on(tmp_path, monkeypatch):
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, memory, at: write(fd, memory[:1000], at))
    piece = filled(1 << 14)
    with ScratchFile(tmp_path, "scratch") as file:
        assert read_back(file, {file.append(piece): piece})


def test_threads_write_side_by_side(tmp_path):
    pieces = [filled(4096 * (number % 5 + 1), start=number % 2) for number in range(40)]
    places = {}
    with ScratchFile(tmp_path, "scratch") as file:
        threads = [
            threading.Thread(
                target=lambda mine: places.update({file.append(one): one for one in mine}),
                args=(pieces[number::4],),
            )
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(places) == 40
        assert read_back(file, places)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_write_that_fails_names_the_scratch(tmp_path, monkeypatch, number):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    with ScratchFile(tmp_path, "scratch of this") as file:
        monkeypatch.setattr(os, "pwrite", fail)
        kind = DiskFullError if number == errno.ENOSPC else WriteError
        with pytest.raises(kind, match="scratch of this"):
            file.append(filled(4096))


def test_a_folder_that_is_not_there_is_an_error_that_names_the_scratch(tmp_path):
    with pytest.raises(WriteError, match="scratch of this"):
        ScratchFile(tmp_path / "nowhere", "scratch of this")
