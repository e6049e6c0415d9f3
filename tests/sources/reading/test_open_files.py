"""Many files: of those that a stream reads, only as many are open as a process may well have."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from penstock.io.paths import expand
from penstock.sources.reading.open_files import OpenFiles, ReopenedReader

MANY_FILES = """
import os, resource, sys
import numpy as np, penstock as ps

folder = sys.argv[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
for number in range(2000):
    np.save(f"{folder}/{number:04}.npy", np.arange(number * 5, number * 5 + 5))
ds = ps.from_files(folder)
chains = [ds, ds.shuffle(seed=0), ds.shuffle(seed=0, window="20KB"), ds.with_options(on_error="skip")]
for chain in chains:
    for threads in (0, 4):
        before = len(os.listdir("/proc/self/fd"))
        with chain.batch(32).with_options(threads=threads).stream() as stream:
            found = np.concatenate(list(stream))
        assert np.array_equal(np.sort(found), np.arange(10_000))
        assert len(os.listdir("/proc/self/fd")) == before
print("all rows")
"""


def test_thousands_of_files_are_read_within_a_small_limit_of_open_ones(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MANY_FILES, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout == "all rows\n", done.stderr[-2000:]


def num_open(folder: Path) -> int:
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum(str(folder) in os.readlink(link) for link in links if link.is_symlink())


@pytest.fixture
def readers(tmp_path: Path) -> list[ReopenedReader]:
    for number in range(9):
        (tmp_path / f"{number}").write_bytes(bytes([number]) * 100)
    files = OpenFiles(most=3)
    return [ReopenedReader(location, files, direct=False) for location in expand(tmp_path)]


def test_those_that_were_read_last_stay_open(tmp_path: Path, readers: list[ReopenedReader]) -> None:
    buffer = bytearray(10)
    for _ in range(2):
        for number, reader in enumerate(readers):
            reader.read_into(buffer, 50)
            assert buffer == bytes([number]) * 10
            assert num_open(tmp_path) <= 3
    (tmp_path / "8").unlink()
    (tmp_path / "0").unlink()
    readers[8].read_into(buffer, 0)  # It is open still.
    with pytest.raises(FileNotFoundError, match="vanished"):
        readers[0].read_into(buffer, 0)
    for reader in readers[1:8]:
        reader.check_unchanged()
    for reader in readers:
        reader.close()
    assert num_open(tmp_path) == 0


def test_many_threads_read_what_is_in_the_files(
    tmp_path: Path, readers: list[ReopenedReader]
) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        buffer = bytearray(10)
        for number in np.random.default_rng(seed).integers(0, 9, 300).tolist():
            readers[number].read_into(buffer, 20)
            if buffer != bytes([number]) * 10:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    readers[0]._files.close()
    assert num_open(tmp_path) == 0
    with pytest.raises(ValueError, match="is closed"):
        readers[0].read_into(bytearray(1), 0)
