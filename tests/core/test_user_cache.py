"""Where things are kept that can be made again."""

from pathlib import Path

import pytest

from penstock.core.user_cache import user_cache


@pytest.mark.parametrize("given", ["", "a/relative/folder"])
def test_it_is_in_the_home_of_the_user_unless_an_absolute_folder_is_given(given, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", given)
    assert user_cache("runs") == Path("/home/someone/.cache/penstock/runs")


def test_it_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert user_cache("runs") == Path("/elsewhere/penstock/runs")
