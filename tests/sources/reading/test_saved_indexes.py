"""Indexes in the user's cache directory: whole and of this version of a file, or not believed."""

import os
from pathlib import Path

import numpy as np
import pytest

from penstock.errors import StreamClosedError
from penstock.io.location import Location
from penstock.io.paths import expand
from penstock.sources.reading.saved_indexes import Scan, cache_folder, each_in_parallel, load, save

NUMBERS = np.arange(10) * 7
WORDS = (1, "of this kind")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "penstock" / "some-index"


def listed(path: Path) -> Location:
    return expand(path)[0]


def test_what_was_saved_is_loaded_for_the_same_version_only(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello\n")
    assert load("some", listed(path), WORDS, lambda _: True) is None
    save("some", listed(path), WORDS, NUMBERS)
    assert cache_folder("some") == home
    found = load("some", listed(path), WORDS, lambda count: count == 10)
    assert found is not None
    assert found.tolist() == NUMBERS.tolist()
    assert load("some", listed(path), WORDS, lambda _: False) is None
    assert load("some", listed(path), (2, "of this kind"), lambda _: True) is None
    assert load("some", listed(path), (1, "of another"), lambda _: True) is None
    os.utime(path, ns=(1, 1))
    assert load("some", listed(path), WORDS, lambda _: True) is None
    save("some", listed(path), WORDS, NUMBERS)
    assert len(list(home.glob("*.npy"))) == 1  # That of the earlier version is gone.


def test_a_damaged_or_unwritable_index_is_done_without(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("hello\n")
    save("some", listed(path), WORDS, NUMBERS)
    (kept,) = home.glob("*.npy")
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-8], whole[:140] + b"x" + whole[141:], whole + bytes(8)):
        kept.write_bytes(damaged)
        assert load("some", listed(path), WORDS, lambda _: True) is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    save("some", listed(path), WORDS, NUMBERS)
    assert load("some", listed(path), WORDS, lambda _: True) is None


def test_an_error_ends_the_other_scans(tmp_path: Path) -> None:
    names = [tmp_path / f"{number}.txt" for number in range(3)]
    for name in names:
        name.write_text(name.name)
    locations = [listed(name) for name in names]
    assert each_in_parallel(locations, lambda one, _: one.name) == ["0.txt", "1.txt", "2.txt"]
    assert each_in_parallel([], lambda one, _: one.name) == []
    scans = []

    def fail(location: Location, scan: Scan) -> str:
        scans.append(scan)
        raise ValueError(location.name)

    with pytest.raises(ValueError, match=r"0\.txt"):
        each_in_parallel(locations, fail)
    assert scans
    for scan in scans:
        with pytest.raises(StreamClosedError, match="was stopped"):
            scan.passed(1)
