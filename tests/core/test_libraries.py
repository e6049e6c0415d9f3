"""What Python and packages define counts by name and version; the user's own code does not."""

import json
import sys

import numpy as np
import pytest

import penstock as ps
from penstock.core.evidence import Unproven
from penstock.core.libraries import by_name, library_of

PYTHON = f"Python {sys.version_info[0]}.{sys.version_info[1]}"


def test_packages_have_a_version_and_the_users_modules_have_none():
    assert library_of("json.decoder") == library_of("builtins") == library_of("_io") == PYTHON
    assert library_of("numpy.linalg").startswith(f"numpy {np.__version__} ")
    assert library_of("penstock.core.rows") == f"penstock {ps.__version__}"
    assert library_of(__name__) is None
    assert library_of("no_such_module") is None


def test_a_users_module_with_the_name_of_one_of_pythons_is_the_users(tmp_path, monkeypatch):
    module = type(sys)("cmd")
    module.__file__ = str(tmp_path / "cmd.py")
    monkeypatch.setitem(sys.modules, "cmd", module)
    library_of.cache_clear()
    try:
        assert library_of("cmd") is None
    finally:
        library_of.cache_clear()


def test_a_package_without_a_version_counts_by_its_file(tmp_path, monkeypatch):
    file = tmp_path / "site-packages" / "unversioned.py"
    file.parent.mkdir()
    file.write_text("x = 1")
    module = type(sys)("unversioned")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "unversioned", module)
    assert library_of("unversioned") == f"unversioned of 5 bytes, {file.stat().st_mtime_ns}"


def test_only_what_is_found_under_its_name_counts_by_it():
    assert by_name(json.dumps) == ("json", "dumps", PYTHON)
    assert by_name(np.mean)[:2] == ("numpy", "mean")
    assert by_name(np.add)[:2] == ("numpy", "add")
    assert by_name(int) == ("builtins", "int", PYTHON)
    assert by_name(PYTHON) is None
    assert by_name(lambda: 0) is None

    def dumps():
        pass

    dumps.__module__, dumps.__qualname__ = "json", "dumps"
    assert by_name(dumps) is None
    with pytest.raises(Unproven, match="the ufunc"):
        by_name(np.frompyfunc(dumps, 0, 1))


def test_a_package_that_was_installed_again_with_other_code_is_another(tmp_path, monkeypatch):
    """Its version is the same: nobody changed that. Installers list the files with their checksums."""
    site = tmp_path / "site-packages"
    info = site / "mylib-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mylib\nVersion: 0.1.0\n")
    (site / "mylib.py").write_text("def g(x): return x * 2")
    monkeypatch.syspath_prepend(str(site))
    module = type(sys)("mylib")
    module.__file__ = str(site / "mylib.py")
    monkeypatch.setitem(sys.modules, "mylib", module)
    found = []
    for code, script in (("aaa", "here"), ("aaa", "there"), ("bbb", "here")):
        lines = [f"mylib.py,sha256={code},20", f"../../bin/run,sha256={script},9"]
        lines.append(f"mylib-0.1.0.dist-info/direct_url.json,sha256={script},3")
        (info / "RECORD").write_text("\n".join(lines))
        library_of.cache_clear()
        found.append(library_of("mylib"))
    library_of.cache_clear()
    assert found[0] == found[1]
    assert found[0].startswith("mylib 0.1.0 ")
    assert found[2] != found[0]
