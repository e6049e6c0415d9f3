"""A lazy module loads once, at its first attribute, whichever threads ask for it."""

import importlib
import importlib.util
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import penstock
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


def test_a_module_loads_once_at_its_first_attribute(folder: Path):
    log = folder / "log"
    write(folder / "lazily_one.py", log)
    module = lazy("lazily_one")
    assert log.read_text() == ""
    assert module.ANSWER == 42
    assert log.read_text() == "x"
    assert lazy("lazily_one") is importlib.import_module("lazily_one")
    assert module.ANSWER == 42
    assert log.read_text() == "x"


def test_an_attribute_that_is_not_there_is_an_attribute_error_of_a_loaded_module(folder: Path):
    log = folder / "log"
    write(folder / "lazily_two.py", log)
    module = lazy("lazily_two")
    with pytest.raises(AttributeError, match="'lazily_two' has no attribute 'QUESTION'"):
        module.QUESTION  # noqa: B018
    assert log.read_text() == "x"


def test_many_threads_find_all_of_it(folder: Path):
    log = folder / "log"
    write(folder / "lazily_slow.py", log)
    with (folder / "lazily_slow.py").open("a") as file:
        file.write("import time\ntime.sleep(0.2)\nLAST = 43\n")
    module = lazy("lazily_slow")
    begin = threading.Barrier(8)
    found: list[object] = []

    def look() -> None:
        begin.wait()
        try:
            found.append(module.LAST)
        except Exception as error:  # noqa: BLE001  # It is compared with the number.
            found.append(error)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [43] * 8
    assert log.read_text() == "x"


def test_a_module_that_can_not_be_loaded_says_so_each_time(folder: Path):
    (folder / "lazily_failing.py").write_text("A = 1\nimport lazily_missing\n")
    module = lazy("lazily_failing")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="lazily_missing"):
            module.A  # noqa: B018


def test_every_module_that_is_loaded_later_is_there():
    source = Path(penstock.__file__).parent
    names = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'= lazy\("([\w.]+)"\)', path.read_text())
    }
    assert len(names) > 10
    for name in names:
        assert importlib.util.find_spec(name) is not None, name


@pytest.mark.parametrize("format_name", ["arrays", "npy", "generator", "hdf5", "zarr", "write"])
def test_threads_of_a_fresh_process_may_all_begin_at_once(tmp_path: Path, format_name: str):
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, format_name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["ok"] * 4, done.stdout + done.stderr


AT_ONCE = """
import sys, threading
import numpy as np
import penstock as ps
kind, folder = sys.argv[1:]
x = np.arange(2000).reshape(1000, 2)
np.save(f"{folder}/x.npy", x)
if kind == "hdf5":
    import h5py
    with h5py.File(f"{folder}/x.h5", "w") as file:
        file["x"] = x
if kind == "zarr":
    import zarr
    zarr.save_array(f"{folder}/x.zarr", x)
make = {
    "arrays": lambda k: ps.from_arrays(x).map(lambda row: row + 1).shuffle(seed=0),
    "npy": lambda k: ps.from_files(f"{folder}/x.npy").shuffle(seed=0, exact=True),
    "generator": lambda k: ps.from_generator(lambda: iter(x), spec=ps.ArraySpec((2,), x.dtype)),
    "hdf5": lambda k: ps.from_files(f"{folder}/x.h5", fields="x"),
    "zarr": lambda k: ps.from_files(f"{folder}/x.zarr"),
    "write": lambda k: ps.from_arrays(x).cache(f"{folder}/cache-{k}"),
}[kind]
begin = threading.Barrier(4)
def read(k):
    begin.wait()
    try:
        assert sum(len(batch) for batch in make(k).batch(32)) == 1000
        sys.stdout.write("ok\\n")
    except BaseException as error:
        sys.stdout.write(repr(error).replace(" ", "_") + "\\n")
threads = [threading.Thread(target=read, args=(k,)) for k in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_a_module_that_is_loaded_is_returned_as_it_is():
    assert lazy("sys") is sys
    assert lazy("penstock.core.lazy").lazy is lazy
