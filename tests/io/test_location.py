"""Locations: local or remote, named without secrets."""

import os
import pickle

import pytest

from penstock.core.evidence import Unproven
from penstock.io.location import Location, is_url, split_chain, without_secrets
from penstock.io.paths import expand


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/x.npy", False),
        ("data/x.npy", False),
        ("C:/data/x.npy", False),
        ("http://host/x.npy", True),
        ("s3://bucket/x.npy", True),
        ("memory://x.npy", True),
        ("http://[::1]:8000/x.npy", True),
        ("zip://x.npy::https://host/a.zip", True),
        ("simplecache::https://host/a.npy", True),
        ("/data/a::b.npy", False),
        ("a::b.npy", False),
    ],
)
def test_urls_are_told_from_paths(path, expected):
    assert is_url(path) == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@host:80/x.npy", "https://host:80/x.npy"),
        ("https://host/x.npy?token=secret", "https://host/x.npy?..."),
        ("https://[me:secret@host/x.npy?token=secret", "host/x.npy"),
        ("zip://x.npy::https://me:secret@host/a.zip", "zip://x.npy::https://host/a.zip"),
        ("/data/why?.npy", "/data/why?.npy"),
    ],
)
def test_no_secret_is_shown(url, shown):
    assert without_secrets(url) == shown
    assert str(Location(url, 0)) == shown


@pytest.mark.parametrize(
    ("url", "name", "suffix"),
    [
        ("/data/part.1.NPY", "part.1.NPY", ".npy"),
        ("https://host/a/x.npz?token=a/b.c", "x.npz", ".npz"),
        ("/data/.hidden", ".hidden", ""),
        ("/data/array.zarr/", "array.zarr", ".zarr"),
        ("zip://in/x.npy::https://host/a.zip", "x.npy", ".npy"),
    ],
)
def test_name_and_suffix(url, name, suffix):
    location = Location(url, 0)
    assert (location.name, location.suffix) == (name, suffix)


def test_an_ipv6_host_is_no_chain():
    assert split_chain("http://[::1]:8000/x") == ("http://[::1]:8000/x", "")


def test_a_location_pickles():
    location = Location("/x", 5, mtime_ns=7)
    assert pickle.loads(pickle.dumps(location)) == location


def test_a_version_of_a_file_is_its_size_time_and_inode_or_what_the_server_says(tmp_path):
    (tmp_path / "x").write_bytes(b"1234")
    found = (tmp_path / "x").stat()
    (local,) = expand(tmp_path / "x")
    assert local.identity() == [4, found.st_mtime_ns, found.st_ino]
    assert Location("https://host/x", 4, etag="abc").identity() == [4, "abc"]
    for unknown in (Location("https://host/x", 4), Location("/x", 4)):
        with pytest.raises(Unproven, match="no version of it is known"):
            unknown.identity()


def test_a_version_of_a_folder_is_that_of_all_files_in_it(tmp_path):
    (tmp_path / "a").mkdir()
    for name in ("a/x", "a/y"):
        (tmp_path / name).write_bytes(b"1234")
    folder = Location(str(tmp_path), 0, mtime_ns=1, is_directory=True)
    first = folder.identity()
    assert first[0] == 8
    assert folder.identity() == first
    os.utime(tmp_path / "a/y", ns=(1, 1))
    second = folder.identity()
    (tmp_path / "a/y").rename(tmp_path / "a/z")
    assert len({str(one) for one in (first, second, folder.identity())}) == 3
    with pytest.raises(Unproven):
        Location("https://host/x.zarr", 0, is_directory=True).identity()
