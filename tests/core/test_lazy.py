"""A lazy module is the very module that `import` gives, and loads once, at its first attribute."""

import importlib
import sys
from pathlib import Path

import pytest

from penstock.core.lazy import lazy


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder to import from; what was imported is forgotten after the test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("lazily"):
            del sys.modules[name]


def write(path: Path, log: Path) -> None:
    """Write a module that notes each of its loads in `log`."""
    path.write_text(
        f"import pathlib\nwith pathlib.Path({str(log)!r}).open('a') as f: f.write('x')\nANSWER = 42\n"
    )
    log.touch()


def test_a_module_loads_once_at_its_first_attribute_and_is_the_one_import_gives(folder: Path):
    log = folder / "log"
    write(folder / "lazily_one.py", log)
    module = lazy("lazily_one")
    assert log.read_text() == ""
    assert lazy("lazily_one") is module
    assert log.read_text() == ""
    assert module.ANSWER == 42
    assert log.read_text() == "x"
    assert importlib.import_module("lazily_one") is module
    assert lazy("lazily_one") is module
    assert module.ANSWER == 42
    assert log.read_text() == "x"


def test_an_attribute_that_is_not_there_is_an_attribute_error_of_a_loaded_module(folder: Path):
    log = folder / "log"
    write(folder / "lazily_two.py", log)
    module = lazy("lazily_two")
    with pytest.raises(AttributeError, match="'lazily_two' has no attribute 'QUESTION'"):
        module.QUESTION  # noqa: B018
    assert log.read_text() == "x"


def test_a_module_that_is_loaded_is_returned_as_it_is():
    assert lazy("sys") is sys
    assert lazy("penstock.core.lazy").lazy is lazy


def test_a_module_that_its_package_imports_is_not_made_a_second_time(folder: Path):
    package, log = folder / "lazily_package", folder / "log"
    package.mkdir()
    (package / "__init__.py").write_text("from lazily_package import part\n")
    write(package / "part.py", log)
    module = lazy("lazily_package.part")
    assert log.read_text() == "x"
    assert module is sys.modules["lazily_package"].part
    assert module.ANSWER == 42
    assert log.read_text() == "x"


def test_a_module_that_is_not_there_is_an_error_at_once_and_leaves_nothing_behind():
    with pytest.raises(ModuleNotFoundError, match=r"^no module named 'lazily_missing'$") as caught:
        lazy("lazily_missing")
    assert caught.value.name == "lazily_missing"
    assert "lazily_missing" not in sys.modules
    with pytest.raises(ModuleNotFoundError, match="lazily_missing"):
        lazy("lazily_missing.part")
