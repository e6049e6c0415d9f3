"""The index of TFRecord files is kept in a cache directory: one a test."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """The user's cache directory, one a test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "penstock" / "tfrecord-index"
