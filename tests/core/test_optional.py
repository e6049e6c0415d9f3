"""An optional package is the package, or an error that says how to install it."""

import importlib
import json
import os.path
import re
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.core import optional
from penstock.core.optional import require


def test_a_package_that_is_there_is_that_package():
    assert require("json", "reading", "some") is json
    assert require("os.path", "reading", "some") is os.path


@pytest.mark.parametrize("package", ["nobody_made_this", "nobody_made_this.part.of_it"])
def test_a_package_that_is_missing_is_named_with_what_needs_it_and_how_to_get_it(package: str):
    message = r"^reading \.abc needs nobody_made_this: pip install 'penstock\[abc\]'$"
    with pytest.raises(ImportError, match=message) as caught:
        require(package, "reading .abc", "abc")
    assert caught.value.name == "nobody_made_this"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_a_package_that_cannot_import_what_it_needs_keeps_its_own_error_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "half_made.py").write_text("raise ImportError('libhalf.so is missing')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ImportError, match=r"^x needs half_made: pip install 'penstock\[half\]'$"
    ) as caught:
        require("half_made", "x", "half")
    assert str(caught.value.__cause__) == "libhalf.so is missing"
    assert "half_made" not in sys.modules


def test_other_errors_of_a_package_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "ill_made.py").write_text("raise ValueError('wrong version')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^wrong version$"):
        require("ill_made", "x", "ill")


@pytest.mark.parametrize("package", ["h5py", "pyarrow", "zarr"])
def test_a_version_that_is_too_old_is_named_with_the_one_that_would_do(
    package: str, monkeypatch: pytest.MonkeyPatch
):
    least = optional._LEAST[package]
    monkeypatch.setattr(optional, "_new_enough", set())
    monkeypatch.setattr(importlib.import_module(package), "__version__", "2.18.7")
    message = rf"^reading \.abc needs {package} {least} or newer, and 2\.18\.7 is installed: pip in"
    with pytest.raises(ImportError, match=message):
        require(package, "reading .abc", "abc")
    for version in (least, f"{least}.post1", "99.0.0rc1", "99.1.0.dev5+g1234"):
        monkeypatch.setattr(importlib.import_module(package), "__version__", version)
        monkeypatch.setattr(optional, "_new_enough", set())
        assert require(package, "reading .abc", "abc").__name__ == package


def test_the_least_versions_are_those_that_the_extras_install():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    bounds = {re.sub(r"\[.*\]", "", one) for extra in extras.values() for one in extra}
    for package, least in optional._LEAST.items():
        assert f"{package}>={least}" in bounds
