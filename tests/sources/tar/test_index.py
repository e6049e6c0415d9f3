"""The index of tars: saved for the next time, and not believed if it can't be one."""

import os

import numpy as np
import pytest
from tests.sources.tar.tars import samples, write_tar

import penstock as ps
from penstock.io.paths import expand
from penstock.sources.reading.saved_indexes import cache_folder, save
from penstock.sources.tar import index
from penstock.sources.tar.index import TarIndex, tar_indexes


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setattr(index, "_SAVED_NBYTES", 1)


def test_it_is_found_again_without_a_scan(tmp_path, monkeypatch):
    write_tar(tmp_path / "a.tar", samples(30))
    before = list(ps.from_files(tmp_path / "a.tar", ("__key__", "cls")))
    assert len(list(cache_folder("tar").iterdir())) == 1

    def never(*_):
        raise AssertionError("it was scanned")

    monkeypatch.setattr(index, "_scanned", never)
    assert list(ps.from_files(tmp_path / "a.tar", ("__key__", "cls"))) == before
    os.utime(tmp_path / "a.tar", ns=(1, 1))  # Another version.
    with pytest.raises(AssertionError, match="it was scanned"):
        ps.from_files(tmp_path / "a.tar")


def test_numbers_that_can_not_be_an_index_are_not_believed(tmp_path):
    write_tar(tmp_path / "a.tar", samples(30))
    (location,) = expand(tmp_path / "a.tar")
    (found,) = tar_indexes([location])
    numbers = found.to_numbers()
    again = TarIndex.from_numbers(location, numbers)
    assert again.extensions == found.extensions
    assert again.keys.value(7) == "000007"
    random = np.random.default_rng(0)
    for number in range(300):
        damaged = numbers.copy()
        place = int(random.integers(0, len(numbers) - 100))
        damaged[place] = random.choice([-1, 10**12, 2**62, damaged[place] + 1])
        wrong = TarIndex.from_numbers(location, damaged)
        if wrong is not None:  # What it names lies in the file.
            assert (wrong.offsets + wrong.sizes <= location.size).all(), number
            assert wrong.starts[-1] == len(wrong.offsets)
    for length in (0, 3, 4, len(numbers) - 1):
        assert TarIndex.from_numbers(location, numbers[:length]) is None
    save("tar", location, (1, ""), numbers[:-1])
    assert len(ps.from_files(tmp_path / "a.tar")) == 30
