"""Rows of any length: what they take is known before they are read, wherever the long ones are."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import penstock as ps
from penstock.errors import BudgetError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.sources.hdf5 import varying

MB = 1_000_000
GROUPS = Path("/sys/fs/cgroup/memory")
LAYOUTS: dict[str, Any] = {
    "contiguous": {},
    "large chunks": {"chunks": (1000,)},
    "small chunks": {"chunks": (64,), "compression": "gzip"},
}


def write_growing(path: Path, dtype: Any, small: Any, large: Any, **options: Any) -> None:
    """1,000 small rows, then 1,000 large ones, then one that is ten times as large."""
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (2001,), dtype, **options)
        rows = np.empty(2000, object)
        for row in range(2000):
            rows[row] = small if row < 1000 else large
        if isinstance(large, np.ndarray):  # Else h5py takes rows of one length for a matrix.
            for row in range(2000):
                x[row] = rows[row]
        else:
            x[:2000] = rows
        x[2000] = np.concatenate([large] * 10) if isinstance(large, np.ndarray) else 10 * large


def sizes(path: Path) -> varying.Sizes:
    (location,) = [Location(str(path), path.stat().st_size)]
    with h5py.File(path) as file, open_reader(location) as reader:
        spec = ps.from_files(path).spec["x"]
        return varying.sizes_of(file["x"], spec, reader, str(path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sizes_are_those_of_all_rows(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "a.h5"
    write_growing(path, h5py.string_dtype(), "ab", "c" * 5000, **LAYOUTS[layout])
    found = sizes(path)
    assert found.field.nbytes == (1000 * 10 + 1000 * 5008 + 50_008) // 2001
    assert found.field.tops[:2] == (50_008, 55_016)
    assert found.chunk_nbytes < 2 * MB
    assert found.chunk_nbytes >= 50_008


def test_a_dataset_too_long_is_sampled_all_over_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(varying, "_MOST_SIZED", 2000)
    path = tmp_path / "a.h5"
    write_growing(path, h5py.string_dtype(), "ab", "c" * 5000)
    found = sizes(path)
    assert not found.field.tops
    assert 2000 < found.field.nbytes < 3000


def test_files_after_the_first_count_as_well(tmp_path: Path) -> None:
    for name, size in (("a", 10), ("b", 100_000)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["x"] = [name * size] * 300
    ds = ps.from_files(tmp_path / "*.h5").batch(300)
    with pytest.raises(BudgetError, match="needs at least"):
        next(iter(ds.with_options(memory="20MB")))
    assert ds.explain().need_nbytes > 30 * MB
    assert len(list(ds.with_options(memory=ds.explain().need_nbytes))) == 2


CHAINS = {
    "plain": "ds.batch(16)",
    "shuffled": "ds.shuffle(seed=1).batch(16)",
    "in part": "ds.skip(900).take(300).batch(4)",
    "skipping": "ds.with_options(on_error='skip').batch(16)",
    "cached": "ds.cache().take(100)",
}
SCRIPT = """
import json, re, sys
from pathlib import Path
import h5py
import penstock as ps
path, way, chain, memory = sys.argv[1:]
if way == "arrays":
    ds = ps.from_arrays({"x": h5py.File(path)["x"]})
else:
    ds = ps.from_files(path)
ds = eval(chain).with_options(memory=memory)
try:
    found = sum(1 for _ in ds)
except ps.errors.BudgetError as error:
    found = str(error)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
print(json.dumps([found, peak]))
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: Any) -> Path:
    folder = tmp_path_factory.mktemp("growing")
    for layout, options in LAYOUTS.items():
        path = folder / f"text {layout}.h5"
        write_growing(path, h5py.string_dtype(), "ab", "c" * 100_000, **options)
    values = np.zeros(25_000, "f4")
    write_growing(folder / "lists.h5", h5py.vlen_dtype("f4"), values[:4], values, chunks=(1000,))
    with h5py.File(folder / "one.h5", "w") as file:
        x = file.create_dataset("x", (2000,), h5py.string_dtype(), chunks=(500,))
        x[1500] = "y" * 300 * MB
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way", "chain"),
    [
        ("text contiguous", "arrays", "shuffled"),
        ("text large chunks", "files", "skipping"),
        ("text small chunks", "files", "shuffled"),
        ("one", "files", "plain"),
        ("lists", "files", "cached"),
    ],
)
def test_rows_that_grow_stay_within_the_budget(
    large: Path, name: str, way: str, chain: str
) -> None:
    group = GROUPS / f"penstock-varying-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here ({error}); other tests check the sizes")
    try:
        (group / "memory.limit_in_bytes").write_text(str(250 * MB))
        shell = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        command = ["bash", "-c", shell, "-", sys.executable, "-c", SCRIPT]
        command += [str(large / f"{name}.h5"), way, CHAINS[chain], "100MB"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    finally:
        group.rmdir()
    assert done.returncode == 0, done.stderr
    found, peak = json.loads(done.stdout)
    assert peak < 250 * MB
    if isinstance(found, str):
        assert re.search(r"memory=\d+", found), found
    else:
        assert found >= 75
