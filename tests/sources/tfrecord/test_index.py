"""The index of TFRecord files: kept in the cache directory, and made anew when a file changes."""

import os
import pickle

import numpy as np
import pytest
from tests.conformance import run
from tests.sources.tfrecord.files import FIXED, damaged, labels, payloads, starts, write

import penstock as ps
from penstock.errors import DataError, FileChangedError
from penstock.sources.tfrecord import index as tfrecord_index


def scans(monkeypatch):
    """Count the scans from here on."""
    made = []
    real = tfrecord_index._scan

    def scan(location, **options):
        made.append(location.name)
        return real(location, **options)

    monkeypatch.setattr(tfrecord_index, "_scan", scan)
    return made


def test_the_index_is_kept_in_the_cache_directory_and_not_beside_the_data(
    tmp_path, cache, monkeypatch
):
    write(tmp_path / "a.tfrecord", payloads(10))
    made = scans(monkeypatch)
    assert len(ps.from_tfrecord(tmp_path / "a.tfrecord", FIXED)) == 10
    assert len(ps.from_tfrecord(tmp_path / "a.tfrecord", FIXED)) == 10
    assert made == ["a.tfrecord"]
    assert [one.name for one in tmp_path.iterdir()] == ["a.tfrecord"]
    (kept,) = cache.glob("*.npy")
    assert np.load(kept)[:-1].tolist() == starts(payloads(10))


def test_the_index_is_made_anew_when_size_or_time_change(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    made = scans(monkeypatch)
    assert len(ps.from_tfrecord(path, FIXED)) == 10
    write(path, payloads(12))
    assert len(ps.from_tfrecord(path, FIXED)) == 12
    other = payloads(12)
    other[0], other[1] = other[1], other[0]
    write(path, other)
    os.utime(path, ns=(1, 1))
    assert labels(ps.from_tfrecord(path, FIXED))[:3] == [1, 0, 2]
    assert len(made) == 3
    assert len(list(cache.glob("*.npy"))) == 1  # Those of earlier versions are gone.


@pytest.mark.parametrize("content", [b"", b"garbage", "short", "wrong", "pipe"])
def test_a_bad_cache_entry_is_made_anew(tmp_path, cache, content):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    ps.from_tfrecord(path, FIXED)
    (kept,) = cache.glob("*.npy")
    if content == "short":
        np.save(kept, np.load(kept)[:5])
    elif content == "wrong":
        np.save(kept, np.load(kept).astype("float64"))
    elif content == "pipe":
        kept.unlink()
        os.mkfifo(kept)
    else:
        kept.write_bytes(content)
    assert labels(ps.from_tfrecord(path, FIXED)) == list(range(10))
    assert np.load(kept)[:-1].tolist() == starts(payloads(10))


def test_an_unwritable_cache_directory_is_done_without(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    ds = ps.from_tfrecord(path, FIXED).shuffle(seed=1)
    assert sorted(labels(ds)) == list(range(10))
    assert labels(pickle.loads(pickle.dumps(ds))) == labels(ds)


def test_a_file_that_changes_under_the_index_is_an_error(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    ds = ps.from_tfrecord(path, FIXED)
    write(path, payloads(9))
    with pytest.raises(FileChangedError, match="changed after it was listed"):
        run(ds)


def test_many_files_are_scanned_and_the_first_damaged_one_is_named(tmp_path):
    paths = [write(tmp_path / f"{n:02}.tfrecord", payloads(50, 50 * n)) for n in range(20)]
    assert labels(ps.from_tfrecord(paths, FIXED)) == list(range(1000))
    for number in (7, 13):
        damaged(paths[number], 0)
    with pytest.raises(DataError, match=r"07\.tfrecord, byte 0, row 0"):
        run(ps.from_tfrecord(paths, FIXED))
