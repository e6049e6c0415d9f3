"""A folder of runs for each test."""

import pytest


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    """Runs of this test, and of the processes that it starts, are in a folder of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "penstock" / "runs"
