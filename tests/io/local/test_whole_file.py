"""Small files that are read whole: only plain ones, and none that is larger than it may be."""

import os
from pathlib import Path

import pytest

from penstock.io.local.whole_file import read_whole


@pytest.mark.parametrize("nbytes", [0, 1, 10])
def test_a_plain_file_is_read_up_to_its_limit(tmp_path: Path, nbytes: int) -> None:
    (tmp_path / "a").write_bytes(b"a" * nbytes)
    (tmp_path / "link").symlink_to("a")
    assert read_whole(tmp_path / "a", most=10) == b"a" * nbytes
    assert read_whole(tmp_path / "link", most=10) == b"a" * nbytes


def test_a_larger_file_is_refused_without_being_read(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="more than 10 bytes"):
        read_whole(tmp_path / "a", most=10)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to itself"])
def test_what_is_no_plain_file_is_an_error_and_nobody_waits(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    with pytest.raises(OSError, match=r"plain file|directory|symbolic links"):
        read_whole(path, most=10)
