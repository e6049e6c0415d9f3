"""Reads from a disk that misbehaves: a library between Python and the system gives fewer bytes, or errors."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from penstock.core.system import is_portable

SCRIPT = """
import sys
import numpy as np
from penstock.errors import ReadError
from penstock.io.local.reader import LocalReader
from penstock.io.location import Location
from penstock.io.reader import Range

path, expected = sys.argv[1:]
content = np.fromfile(path, np.uint8)
rng = np.random.default_rng(0)
with LocalReader(Location(path, len(content)), direct=True) as reader:
    for count in (1, 3, 40):
        for most in (10, 5_000, 70_000, 400_000):
            sizes = rng.integers(0, most, count)
            offsets = rng.integers(0, len(content) - sizes)
            ranges = [Range(int(o), np.zeros(n, np.uint8)) for o, n in zip(offsets, sizes)]
            try:
                reader.read_ranges(ranges)
            except ReadError as error:
                assert expected == "error", error
                assert "Input/output error" in str(error) and "byte" in str(error), error
                continue
            assert expected != "error"
            for one in ranges:
                np.testing.assert_array_equal(one.buffer, content[one.offset :][: len(one.buffer)])
    assert expected == "error" or reader.is_direct == (expected == "direct")
"""


@pytest.fixture(scope="module")
def faulty_disk(tmp_path_factory):
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler} to build the faulty disk with")
    library = tmp_path_factory.mktemp("faulty") / "disk.so"
    source = Path(__file__).parent / "faulty_disk.cpp"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("", "direct"),
        ("short:1000", "direct"),
        ("short:4096", "direct"),
        ("short:50000", "direct"),
        ("short-queue:1", "direct"),
        ("short-queue:20000", "direct"),
        ("full-queue", "direct"),
        ("no-queue", "direct"),
        ("no-direct", "buffered"),
        ("broken", "error"),
    ],
)
def test_what_is_read_is_right_or_an_error(tmp_path, faulty_disk, fault, expected):
    path = tmp_path / "x.bin"
    np.random.default_rng(1).integers(0, 256, 3_000_001, np.uint8).tofile(path)
    try:
        os.close(os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0)))
    except OSError:
        pytest.skip("no direct reads on this file system")
    if is_portable and expected == "direct":
        expected = "buffered"
    environment = os.environ | {"LD_PRELOAD": str(faulty_disk), "FAULT": fault}
    subprocess.run([sys.executable, "-c", SCRIPT, str(path), expected], check=True, env=environment)
