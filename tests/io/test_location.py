"""Locations: local or remote, named without secrets."""

import pickle

import pytest

from penstock.io.location import Location, is_url, split_chain, without_secrets


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
