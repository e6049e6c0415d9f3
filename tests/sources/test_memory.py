"""Files far larger than the memory cgroup they are shuffled in, which would kill what takes more."""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

NUM_ROWS = 1_000_000
ROW = 250  # float32 values: 1 GB in all
STEP = 50_000
LIMIT = 300 << 20
BUDGET = 128_000_000
CONSTANT = 150_000_000  # What the interpreter and its libraries may take besides the budget.
GROUPS = Path("/sys/fs/cgroup/memory")


def steps() -> Any:
    generator = np.random.default_rng(0)
    for start in range(0, NUM_ROWS, STEP):
        noise = generator.integers(0, 1 << 16, (STEP, ROW), dtype=np.uint16)
        yield slice(start, start + STEP), noise.astype("f4"), np.arange(start, start + STEP)


def write_zarr(path: Path) -> None:
    group = zarr.open_group(path, mode="w")
    x = group.create_array("x", shape=(NUM_ROWS, ROW), chunks=(1000, ROW), dtype="f4")
    y = group.create_array("y", shape=(NUM_ROWS,), chunks=(1000,), dtype="i8")
    for rows, values, numbers in steps():
        x[rows], y[rows] = values, numbers


def write_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        packed: Any = {"compression": "lzf", "shuffle": True}
        x = file.create_dataset("x", (NUM_ROWS, ROW), "f4", chunks=(1000, ROW), **packed)
        y = file.create_dataset("y", (NUM_ROWS,), "i8", chunks=(1000,))
        for rows, values, numbers in steps():
            x[rows], y[rows] = values, numbers


def write_parquet(path: Path) -> None:
    schema = pa.schema([("x", pa.list_(pa.float32(), ROW)), ("y", pa.int64())])
    with pq.ParquetWriter(path, schema, use_dictionary=False) as file:
        for _, values, numbers in steps():
            x = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), ROW)
            file.write_table(pa.table([x, pa.array(numbers)], schema), row_group_size=2000)


def write_npy(path: Path, num_rows: int) -> None:
    """Rows of 1,000 bytes whose first number is that of the row."""
    header = {"descr": "<i4", "fortran_order": False, "shape": (num_rows, ROW)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, num_rows, STEP):
            values = np.empty((min(STEP, num_rows - start), ROW), np.int32)
            values[:] = np.arange(start, start + len(values), dtype=np.int32)[:, None]
            values.tofile(file)


def write_npz(path: Path, num_rows: int) -> None:
    """A deflated archive, whose members are as large as they say."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        write_npy(Path(folder) / "x.npy", num_rows)
        np.save(Path(folder) / "y.npy", np.arange(num_rows))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name in ("x.npy", "y.npy"):
                archive.write(Path(folder) / name, name)


@pytest.fixture
def cgroup():
    """A memory cgroup of our own, version 1."""
    group = GROUPS / f"penstock-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(
            f"no memory cgroup can be made here ({error}); "
            "the ledger's peak is checked by every conformance test instead"
        )
    try:
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
        yield group
    finally:
        group.rmdir()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "write"),
    [("a.zarr", write_zarr), ("a.h5", write_hdf5), ("a.parquet", write_parquet)],
)
def test_a_file_of_1_gb_is_shuffled_in_a_small_container(
    tmp_path: Path, cgroup: Path, name: str, write: Any
) -> None:
    write(tmp_path / name)
    report = streamed(tmp_path / name, cgroup, BUDGET)
    assert report["rows"] == NUM_ROWS
    assert report["sum"] == NUM_ROWS * (NUM_ROWS - 1) // 2


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "num_rows", "limit", "budget"),
    [
        ("a.npy", 8_000_000, 1 << 30, 512_000_000),
        ("a.npy", 8_000_000, 300 << 20, BUDGET),
        ("a.npz", 2_000_000, 512 << 20, 256_000_000),
    ],
    ids=["8 GB in 1 GB", "8 GB in 300 MB", "2 GB deflated in 512 MB"],
)
def test_gigabytes_are_shuffled_in_a_fraction_of_them(
    tmp_path: Path, cgroup: Path, name: str, num_rows: int, limit: int, budget: int
) -> None:
    (cgroup / "memory.limit_in_bytes").write_text(str(limit))
    path = tmp_path / name
    try:
        (write_npy if name.endswith("y") else write_npz)(path, num_rows)
        report = streamed(path, cgroup, budget)
    finally:
        path.unlink(missing_ok=True)
    assert report["rows"] == num_rows
    assert report["sum"] == num_rows * (num_rows - 1) // 2


def streamed(path: Path, cgroup: Path, budget: int) -> dict[str, Any]:
    """Stream a file in a cgroup; return what was found, after checking that it kept within its budget."""
    script = str(Path(__file__).with_name("streamed_in_a_cgroup.py"))
    enter = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
    command = ["sh", "-c", enter, "sh", sys.executable, script, str(path), str(budget)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, (found.returncode, found.stderr[-2000:])
    report: dict[str, Any] = json.loads(found.stdout)
    assert report["windowed"]
    assert report["ledger"] <= budget
    assert report["process"] <= budget + CONSTANT, report
    print(path.name, report)
    return report
