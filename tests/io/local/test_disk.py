"""How many reads run at once: found by a measurement, told by explain(), and no byte depends on it."""

import os
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.io.local import disk as disk_module
from penstock.io.local.disk import MOST_AT_ONCE, Disk, disk_of, fewest
from penstock.io.local.reader import LocalReader
from penstock.io.paths import expand
from penstock.sources import files

SIZE = 64 << 20


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("disk") / "large.npy"
    np.save(path, np.random.default_rng(0).integers(0, 99, SIZE, np.uint8).reshape(-1, 1024))
    with LocalReader(location(path), direct=True) as reader:
        reader.read_into(bytearray(1 << 20), 0)
        if not reader.is_direct:
            pytest.skip("this file system has no reads past the page cache")
    return path


@pytest.fixture
def unknown(large, monkeypatch) -> Disk:
    """The disk of the large file, as if nobody had read from it."""
    monkeypatch.delitem(disk_module._disks, large.stat().st_dev, raising=False)
    return disk_of(large.stat().st_dev)


def location(path: Path):
    return expand(str(path))[0]


def measure(disk: Disk, path: Path) -> None:
    fds = [os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY | os.O_DIRECT)]
    try:
        disk.measure(*fds, path.stat().st_size)
    finally:
        for fd in fds:
            os.close(fd)


@pytest.mark.parametrize(
    ("rates", "best"),
    [
        ({}, MOST_AT_ONCE),
        ({16: 1.0}, 16),
        ({2: 0.97, 4: 1.0, 8: 0.9, 16: 0.5}, 2),  # One that gets slower with more of them.
        ({2: 0.1, 4: 0.5, 8: 0.94, 16: 1.0}, 16),
        ({2: 0.1, 4: 0.5, 8: 0.96, 16: 1.0}, 8),
    ],
)
def test_the_fewest_reads_that_are_about_as_fast_as_any(rates, best):
    assert fewest(rates) == best


def test_a_disk_is_measured_once_and_says_what_was_found(large, unknown):
    assert unknown.describe() == f"up to {MOST_AT_ONCE} reads at once a thread"
    measure(unknown, large)
    assert set(unknown.rates) <= {2, 4, 8, 16}
    assert all(1e6 < rate < 1e12 for rate in unknown.rates.values())
    assert unknown.at_once == fewest(unknown.rates)
    assert f"{unknown.at_once} reads at once a thread (measured, GB/s by" in unknown.describe()
    rates = dict(unknown.rates)
    measure(unknown, large)
    assert unknown.rates == rates


def test_it_is_measured_after_some_reading_and_not_before(large, unknown):
    target = bytearray(16 << 20)
    with LocalReader(location(large), direct=True) as reader:
        for count in range(1, 5):
            reader.read_into(target, 0)
            assert bool(unknown.rates) == (count == 4)


def test_a_small_or_broken_file_tells_nothing(tmp_path, large, unknown):
    small = tmp_path / "small"
    small.write_bytes(bytes(100_000))
    measure(unknown, small)
    assert not unknown.rates
    unknown.measure(-1, -1, SIZE)
    assert not unknown.rates
    assert unknown.at_once == MOST_AT_ONCE


@pytest.mark.parametrize("at_once", [1, 2, 4, 8, 16])
def test_bytes_do_not_depend_on_it(large, unknown, at_once):
    unknown.at_once = at_once
    target = bytearray(5_000_001)
    with LocalReader(location(large), direct=True) as reader:
        reader.read_into(target, 777)
    assert bytes(target) == large.read_bytes()[777 : 777 + len(target)]


def test_explain_measures_and_shows_it(large, unknown, monkeypatch):
    monkeypatch.setattr(files, "page_cache_room", lambda: 1 << 20)
    text = str(ps.from_files(large).shuffle(seed=0, window="16MB").batch(32).explain())
    assert "read past the page cache" in text
    assert unknown.describe() in text
    assert "measured" in text
    assert "in random blocks of" in text
