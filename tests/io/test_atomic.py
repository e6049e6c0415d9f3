"""What is written appears whole or not at all: after errors, kills, full disks and races."""

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.core.system import is_portable
from penstock.errors import DiskFullError, TargetExistsError, WriteError
from penstock.io import atomic, leftovers
from penstock.io.atomic import (
    atomic_directory,
    atomic_file,
    remove_leftovers,
    temporary_folder,
)

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=ENVIRONMENT)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_whole(tmp_path):
    with atomic_file(tmp_path / "x.npy") as file:
        file.write(b"hel")
        file.flush()
        assert not (tmp_path / "x.npy").exists()
        assert len(names(tmp_path)) == 1
        file.write(b"lo")
    assert (tmp_path / "x.npy").read_bytes() == b"hello"
    assert names(tmp_path) == ["x.npy"]


def test_a_file_can_be_rewritten_from_its_start(tmp_path):
    with atomic_file(tmp_path / "x.npy") as file:
        file.write(b"header data")
        file.seek(0)
        file.write(b"HEADER")
        file.seek(0)
        assert file.read() == b"HEADER data"
    assert (tmp_path / "x.npy").read_bytes() == b"HEADER data"


def test_a_folder_appears_when_it_is_whole(tmp_path):
    with atomic_directory(tmp_path / "cache") as folder:
        (folder / "a.npy").write_bytes(b"1")
        (folder / "deep").mkdir()
        (folder / "deep/b.npy").write_bytes(b"2")
        assert not (tmp_path / "cache").exists()
    assert names(tmp_path) == ["cache"]
    assert (tmp_path / "cache/deep/b.npy").read_bytes() == b"2"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, GeneratorExit, SystemExit])
@pytest.mark.parametrize("write", [atomic_file, atomic_directory])
def test_nothing_is_left_after_an_error(tmp_path, write, error):
    def fail():
        with write(tmp_path / "x") as target:
            if write is atomic_directory:
                (target / "a.npy").write_bytes(b"1")
            else:
                target.write(b"1" * 1_000_000)
            raise error

    with pytest.raises(error):
        fail()
    assert names(tmp_path) == []


@pytest.mark.parametrize("write", [atomic_file, atomic_directory])
def test_an_error_of_the_callers_own_passes_unchanged(tmp_path, write):
    mine = ConnectionResetError(errno.ECONNRESET, "the peer")
    with pytest.raises(ConnectionResetError) as caught, write(tmp_path / "x"):
        raise mine
    assert caught.value is mine


def test_a_temporary_folder_is_gone_at_the_end_and_no_cleaner_removes_it_before(tmp_path):
    with temporary_folder(tmp_path / "tasks") as folder:
        (folder / "file").touch()
        assert remove_leftovers(tmp_path) == []
        assert folder.parent == tmp_path
        assert (folder / "file").exists()
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_not_replaced_unasked(tmp_path):
    (tmp_path / "x").write_bytes(b"old")
    with (
        pytest.raises(TargetExistsError, match=r"x: this exists already\. Remove it"),
        atomic_file(tmp_path / "x"),
    ):
        pytest.fail("it should not have begun")
    with pytest.raises(FileExistsError), atomic_directory(tmp_path / "x"):
        pytest.fail("it should not have begun")
    assert (tmp_path / "x").read_bytes() == b"old"
    assert names(tmp_path) == ["x"]


def test_what_exists_is_replaced_when_asked(tmp_path):
    for content in (b"old", b"new"):
        with atomic_file(tmp_path / "x", replace=True) as file:
            file.write(content)
        with atomic_directory(tmp_path / "folder", replace=True) as folder:
            (folder / content.decode()).write_bytes(content)
    assert (tmp_path / "x").read_bytes() == b"new"
    assert names(tmp_path / "folder") == ["new"]
    assert names(tmp_path) == ["folder", "x"]


def test_what_was_there_comes_back_if_replacing_fails(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/old").write_bytes(b"1")
    rename = Path.rename

    def fail(self, target):
        if (
            self.name.startswith(".folder")
            and Path(target).name == "folder"
            and (self / "new").exists()
        ):
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    with (
        pytest.raises(WriteError, match="writing failed: Input/output error"),
        atomic_directory(tmp_path / "folder", replace=True) as folder,
    ):
        (folder / "new").write_bytes(b"2")
    assert names(tmp_path / "folder") == ["old"]
    assert names(tmp_path) == ["folder"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_what_was_there_comes_back_if_it_may_not_be_removed(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(atomic, "_exchange", lambda one, other: False)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/old").write_bytes(b"1")

    def refuse(old):
        assert (old / "old").exists()
        assert (tmp_path / "folder/new").exists()
        raise PermissionError("not this one")

    with (
        pytest.raises(WriteError),
        atomic_directory(tmp_path / "folder", replace=True, discard=refuse) as folder,
    ):
        (folder / "new").write_bytes(b"2")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(is_portable, reason="a portable build can't exchange names in one step")
def test_there_is_never_nothing_where_a_folder_is_replaced(tmp_path, monkeypatch):
    """The names are exchanged: neither the old folder nor the new one is moved away first."""
    (tmp_path / "folder").mkdir()
    monkeypatch.setattr(Path, "rename", None)
    with atomic_directory(tmp_path / "folder", replace=True) as folder:
        (folder / "new").write_bytes(b"2")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]


def test_an_empty_folder_is_as_good_as_none(tmp_path):
    (tmp_path / "out").mkdir()
    with atomic_directory(tmp_path / "out") as folder:
        (folder / "a").write_bytes(b"1")
    assert names(tmp_path / "out") == ["a"]


@pytest.mark.parametrize("write", [atomic_file, atomic_directory])
def test_who_comes_second_is_told_at_the_end(tmp_path, write):
    def fill(target, name):
        if write is atomic_directory:
            (target / name).write_bytes(b"1")

    def come_second():
        with write(tmp_path / "x") as mine:
            with write(tmp_path / "x") as theirs:
                fill(theirs, "theirs")
            fill(mine, "mine")

    with pytest.raises(TargetExistsError):
        come_second()
    assert names(tmp_path) == ["x"]


def test_without_hard_links_it_still_does_not_replace(tmp_path, monkeypatch):
    def refuse(self, target):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    with atomic_file(tmp_path / "x") as file:
        file.write(b"1")
    assert names(tmp_path) == ["x"]
    with pytest.raises(TargetExistsError), atomic_file(tmp_path / "y"):
        (tmp_path / "y").write_bytes(b"theirs")
    assert (tmp_path / "y").read_bytes() == b"theirs"


def test_a_missing_folder_is_named(tmp_path):
    with (
        pytest.raises(WriteError, match=r"its folder does not exist\. Create"),
        atomic_file(tmp_path / "none/x"),
    ):
        pytest.fail("it should not have begun")


def test_a_long_name_is_fine(tmp_path):
    for name in ("x" * 255, "ü" * 127):
        with atomic_file(tmp_path / name) as file:
            file.write(b"1")
    assert len(names(tmp_path)) == 2


def test_no_permission_is_named(without_privileges, tmp_path_factory):
    folder = tmp_path_factory.mktemp("private")
    folder.chmod(0o555)
    with (
        without_privileges(),
        pytest.raises(WriteError, match="no permission to write here"),
        atomic_file(folder / "x"),
    ):
        pytest.fail("it should not have begun")


WRITE_AND_WAIT = """
import sys
from pathlib import Path
from penstock.io.atomic import atomic_directory, atomic_file
if sys.argv[1] == "file":
    with atomic_file(Path(sys.argv[2])) as file:
        file.write(b"half")
        file.flush()
        print("ready", flush=True)
        sys.stdin.read()
else:
    with atomic_directory(Path(sys.argv[2])) as folder:
        (folder / "half").write_bytes(b"1")
        print("ready", flush=True)
        sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path, kind):
    with python(WRITE_AND_WAIT, kind, tmp_path / "x") as process:
        assert process.stdout.readline() == "ready\n"
        (left,) = names(tmp_path)
        pattern = rf"\.x\.{process.pid}-\d+-[0-9a-f]{{8}}-[0-9a-f]{{8}}\.penstock-tmp"
        assert re.fullmatch(pattern, left)
        assert remove_leftovers(tmp_path) == [], "it is alive"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert names(tmp_path) == [left]
        with atomic_file(tmp_path / "y") as file:
            file.write(b"1")
        assert names(tmp_path) == ["y"]


def test_a_lock_counts_more_than_a_number_in_another_container(tmp_path, monkeypatch):
    with python(WRITE_AND_WAIT, "file", tmp_path / "x") as process:
        assert process.stdout.readline() == "ready\n"
        # Seen from elsewhere, the number means nothing; the lock does.
        monkeypatch.setattr(leftovers, "_process_space", lambda: "00000000")
        assert remove_leftovers(tmp_path) == []
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert len(remove_leftovers(tmp_path)) == 1


def test_without_locks_the_number_decides_and_doubt_is_for_the_living(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(leftovers.fcntl, "flock", refuse)
    with atomic_file(tmp_path / "x") as file:
        file.write(b"1")
        assert remove_leftovers(tmp_path) == []
    space = leftovers._process_space()
    dead = tmp_path / f".x.4194999-1-{space}-00000000.penstock-tmp"
    # Same number as ours, but another start: ours was not there yet.
    reused = tmp_path / f".x.{os.getpid()}-1-{space}-00000000.penstock-tmp"
    elsewhere = tmp_path / ".x.4194999-1-ffffffff-00000000.penstock-tmp"
    for path in (dead, reused, elsewhere):
        path.write_bytes(b"")
    assert set(remove_leftovers(tmp_path)) == {dead, reused}
    assert names(tmp_path) == [elsewhere.name, "x"]


def test_other_files_are_never_taken_for_leftovers(tmp_path):
    others = [".x.tmp", "x.penstock-tmp", ".x.1-2-3-4.penstock-tmp", ".penstock-tmp", ".x.swp"]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "target").write_bytes(b"mine")
    link = tmp_path / f".x.1-1-{leftovers._process_space()}-00000000.penstock-tmp"
    link.symlink_to(tmp_path / "target")
    assert remove_leftovers(tmp_path) == []
    assert remove_leftovers(tmp_path / "none") == []
    assert len(names(tmp_path)) == len(others) + 2


def test_a_cleaner_that_is_faster_than_the_lock_costs_another_try(tmp_path, monkeypatch):
    real_lock = atomic.lock
    tries = []

    def robbed(fd, path):
        tries.append(path)
        if len(tries) == 1:
            leftovers.remove(path)
        return real_lock(fd, path)

    monkeypatch.setattr(atomic, "lock", robbed)
    with atomic_file(tmp_path / "x") as file:
        file.write(b"1")
    tries.clear()
    with atomic_directory(tmp_path / "y") as folder:
        (folder / "a").write_bytes(b"1")
    assert names(tmp_path) == ["x", "y"]


RACE = """
import sys
from pathlib import Path
from penstock.io.atomic import atomic_directory
from penstock.errors import TargetExistsError
print("ready", flush=True)
sys.stdin.readline()
try:
    with atomic_directory(Path(sys.argv[1])) as folder:
        for index in range(20):
            (folder / str(index)).write_text(sys.argv[2])
    print("won")
except TargetExistsError:
    print("lost")
"""


def test_of_processes_that_make_the_same_folder_one_wins(tmp_path):
    racers = [python(RACE, tmp_path / "cache", name) for name in "abcd"]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    results = [racer.communicate()[0].strip() for racer in racers]
    assert sorted(results) == ["lost", "lost", "lost", "won"]
    winner = "abcd"[results.index("won")]
    assert {path.read_text() for path in (tmp_path / "cache").iterdir()} == {winner}
    assert len(names(tmp_path / "cache")) == 20
    assert names(tmp_path) == ["cache"]


FILL_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from penstock.io.atomic import atomic_directory, atomic_file, check_space
from penstock.errors import DiskFullError

disk = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "penstock-test", disk], check=True)

def write_file():
    with atomic_file(disk / "x") as file:
        file.write(bytes(2 << 20))

def write_folder():
    with atomic_directory(disk / "x") as folder:
        for index in range(20):
            (folder / str(index)).write_bytes(bytes(100_000))

def ask_first():
    check_space(disk, 2 << 20)

for write in (write_file, write_folder, ask_first):
    try:
        write()
    except DiskFullError as error:
        print(error)
    assert not list(disk.iterdir())
check_space(disk, 1 << 20)
"""


def test_a_full_disk_is_named_and_left_clean(tmp_path):
    # The disk is seen by that one process alone, and gone with it.
    alone = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    try:
        can_mount = (
            subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
        )
    except FileNotFoundError:
        can_mount = False
    if not can_mount:
        pytest.skip("no small disk can be mounted here; a simulated full disk is tested below")
    command = [*alone, sys.executable, "-c", FILL_A_SMALL_DISK, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert result.returncode == 0, result.stderr
    full = f"{tmp_path}/x: the disk is full. Free some space, or choose a path on another disk."
    asked = f"{tmp_path}: 2097152 bytes are needed here, and 1048576 are free."
    assert result.stdout.splitlines()[:2] == [full, full]
    assert result.stdout.splitlines()[2].startswith(asked)


def test_a_disk_that_is_full_when_the_bytes_are_flushed_is_named(tmp_path, monkeypatch):
    def fail(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with (
        pytest.raises(DiskFullError, match="the disk is full") as caught,
        atomic_file(tmp_path / "x") as file,
    ):
        file.write(b"1")
    assert caught.value.errno == errno.ENOSPC
    assert names(tmp_path) == []


@pytest.mark.parametrize("write", [atomic_file, atomic_directory])
def test_no_descriptor_is_left(tmp_path, write):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("x", "y", "none/z"):
        with contextlib.suppress(WriteError), write(tmp_path / name):
            pass
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_bytes_are_on_disk_before_the_name_is(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: events.append("sync") or fsync(fd))
    monkeypatch.setattr(
        Path, "replace", lambda self, target: events.append("name") or replace(self, target)
    )
    with atomic_file(tmp_path / "x", replace=True) as file:
        file.write(b"1")
    assert events == ["sync", "name", "sync"]
