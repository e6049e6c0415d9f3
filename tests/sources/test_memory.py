"""Files far larger than the memory cgroup they are shuffled in, which would kill what takes more."""

import gzip
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

NUM_ROWS = 600_000
ROW = 250  # float32 values: 600 MB in all
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
def test_a_file_of_twice_its_size_is_shuffled_in_a_small_container(
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


WORDS = [letter * 20_000 for letter in "abcde"]


def repeated(words: list[Any], num_rows: int) -> pa.Array:
    """Return a column of a few words: 20 GB as rows, and 4 MB as their numbers."""
    return pa.DictionaryArray.from_arrays(np.arange(num_rows, dtype="i4") % len(words), words)


def parquet_of(path: Path, column: pa.Array, **options: Any) -> None:
    pq.write_table(pa.table({"x": column}), path, store_schema=False, **options)


def arrow_of(path: Path, column: pa.Array, rows: int | None = None, packed: str = "zstd") -> None:
    table = pa.table({"x": column})
    options = pa.ipc.IpcWriteOptions(compression=packed)
    with pa.ipc.new_file(path, table.schema, options=options) as file:
        file.write_table(table, max_chunksize=rows)


def lists_of(num_rows: int, length: int) -> pa.Array:
    offsets = np.arange(0, num_rows * length + 1, length)
    return pa.LargeListArray.from_arrays(offsets, np.zeros(num_rows * length, "i1"))


def line_of(path: Path, nbytes: int, head: bytes = b"") -> None:
    with path.open("wb") as file:  # The line itself is a hole in the file.
        file.write(head + b"a,1\n")
        file.seek(nbytes, 1)
        file.write(b",2\nb,3\n")


def quote_of(path: Path) -> None:
    path.write_bytes(b'a,b\nc,1\n"' + b"1,2\n" * 5_000_000)


def packed_of(path: Path, nbytes: int, head: bytes) -> None:
    """A line of text that is a thousandth of itself when packed."""
    with gzip.open(path, "wb", 1) as file:
        file.write(head + b"a,1\n")
        for _ in range(nbytes // 1_000_000):
            file.write(b"x" * 1_000_000)
        file.write(b",2\nb,3\n")


def json_of(path: Path, start: bytes, piece: bytes, end: bytes) -> None:
    """A line that is long because of one value."""
    with path.open("wb") as file:
        file.write(start + piece + end + b"\n")
        file.write(start + piece * 10_000_000 + end + b"\n" + (start + piece + end + b"\n") * 300)


# What they would take is many times the budget; what they are on disk is not.
HUGE: dict[str, Any] = {
    "one_group.parquet": lambda path: parquet_of(path, repeated(WORDS, 1_000_000)),
    "groups.parquet": lambda path: parquet_of(
        path, repeated(WORDS, 1_000_000), row_group_size=20_000, data_page_version="2.0"
    ),
    "later.parquet": lambda path: parquet_of(
        path,
        pa.chunked_array([repeated(["x", *WORDS], n) for n in (1, 999_999)]),
        compression="gzip",
    ),
    "binary.parquet": lambda path: parquet_of(path, repeated([b"x" * 1_000_000], 100_000)),
    "lists.parquet": lambda path: parquet_of(path, lists_of(100_000, 1000)),
    "skewed.parquet": lambda path: parquet_of(
        path, pa.LargeListArray.from_arrays([0, *[40_000_000] * 99], np.zeros(40_000_000, "i1"))
    ),
    # So many that the buffers of a reader that doubles them have just grown.
    "doubled.parquet": lambda path: parquet_of(
        path, pa.LargeListArray.from_arrays([0, *[34_000_000] * 99], np.zeros(34_000_000, "f8"))
    ),
    "prefixes.parquet": lambda path: parquet_of(
        path,
        pa.array(["z" * 500_000 + str(row) for row in range(300)]),
        use_dictionary=False,
        column_encoding={"x": "DELTA_BYTE_ARRAY"},
    ),
    "page.parquet": lambda path: parquet_of(
        path, pa.array(["q" * 100] * 1_000_000), use_dictionary=False, data_page_size=1 << 28
    ),
    "words.arrow": lambda path: arrow_of(path, repeated(WORDS, 1_000_000)),
    "words_of_lists.arrow": lambda path: arrow_of(
        path, pa.DictionaryArray.from_arrays(np.zeros(1_000_000, "i4"), [list(range(10_000))])
    ),
    "batches.arrow": lambda path: arrow_of(path, repeated(WORDS, 1_000_000), 20_000, "lz4"),
    "zeros.arrow": lambda path: arrow_of(path, pa.array(np.zeros(100_000_000, "i4"))),
    "text.arrow": lambda path: arrow_of(path, pa.array(["x" * 1000] * 300_000)),
    "line.txt": lambda path: line_of(path, 30_000_000),
    "longer.txt": lambda path: line_of(path, 10_000_000_000),
    "line.csv": lambda path: line_of(path, 30_000_000, b"a,b\n"),
    "longer.csv": lambda path: line_of(path, 600_000_000, b"a,b\n"),
    "quote.csv": quote_of,
    "line.csv.gz": lambda path: packed_of(path, 30_000_000, b"a,b\n"),
    "longer.txt.gz": lambda path: packed_of(path, 300_000_000, b""),
    "text.jsonl": lambda path: json_of(path, b'{"a": "', b"xyz", b'"}'),
    "list.jsonl": lambda path: json_of(path, b'{"a": [0', b",1", b"]}"),
    "unknown.jsonl": lambda path: json_of(path, b'{"a": 5, "b": [', b"[],", b"[]]}"),
}
# That these can be read a few rows at a time, whatever all of them would take.
READ = ("one_group.parquet", "groups.parquet", "later.parquet", "binary.parquet", "batches.arrow")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_decodes_to_gigabytes_keeps_to_the_budget_or_is_refused(
    tmp_path: Path, cgroup: Path
) -> None:
    budget = 100_000_000
    (cgroup / "memory.limit_in_bytes").write_text(str(budget + CONSTANT))
    for name, write in HUGE.items():
        write(tmp_path / name)
    paths = [str(tmp_path / name) for name in HUGE]
    found = [one for path in paths for one in outcomes(cgroup, budget, path)]
    for one in found:
        assert one["peak"] <= budget + CONSTANT, one
        if "rows" not in one:
            assert one["error"] in ("BudgetError", "UnclosedError"), one
            is_named = Path(one["file"]).name in one["message"]
            assert is_named or "with_options(memory=" in one["message"], one
    read = {Path(one["file"]).name for one in found if one.get("rows") == 300}
    assert read.issuperset(READ), found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "name",
    [
        "line.txt",
        "list.jsonl",
        "skewed.parquet",
        "doubled.parquet",
        "prefixes.parquet",
        "text.arrow",
    ],
)
def test_the_budget_that_a_refusal_names_will_do(tmp_path: Path, cgroup: Path, name: str) -> None:
    HUGE[name](tmp_path / name)
    refused = outcomes(cgroup, 50_000_000, str(tmp_path / name))[0]
    budget = int(refused["message"].partition("memory=")[2].partition(")")[0])
    (cgroup / "memory.limit_in_bytes").write_text(str(budget + CONSTANT))
    read = outcomes(cgroup, budget, str(tmp_path / name))[0]
    assert read.get("rows"), read
    assert read["peak"] <= budget + CONSTANT


def outcomes(cgroup: Path, budget: int, *paths: str) -> list[dict[str, Any]]:
    """Return what came of reading files in a cgroup, in order and shuffled."""
    script = str(Path(__file__).with_name("bounded_in_a_cgroup.py"))
    enter = f'echo $$ > {cgroup}/cgroup.procs && exec "$@"'
    command = ["sh", "-c", enter, "sh", sys.executable, script, str(budget), *paths]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, (paths, found.returncode, found.stderr[-2000:])
    return [json.loads(line) for line in found.stdout.splitlines()]


def test_reading_tables_does_not_load_pandas(tmp_path: Path) -> None:
    """It takes 50 MB, and pyarrow loads it unasked, if there is one: in `to_numpy`, `array` and `asarray`."""
    (tmp_path / "a.csv").write_text("a,b,c,d\n1,2.5,x,true\n2,,y,false\n")
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write("a,b\n1,\n2,3\n")
    lines = ('{"i": 1, "l": [1, 2], "t": "x", "n": null}', '{"i": 2, "l": [], "t": "", "n": 0.5}')
    (tmp_path / "c.jsonl").write_text("\n".join(lines))
    table = pa.table({"a": [1.0, None], "l": [[1], [2, 3]], "s": ["x", "y"]})
    pq.write_table(table, tmp_path / "d.parquet")
    arrow_of(tmp_path / "e.arrow", pa.array([[1], [2, 3]]))
    program = (
        "import sys, penstock as ps\n"
        "for path in sys.argv[1:]:\n"
        "    ds = ps.from_files(path)\n"
        "    assert list(ds) and list(ds.shuffle()), path\n"
        "    assert 'pandas' not in sys.modules, path\n"
    )
    paths = sorted(map(str, tmp_path.iterdir()))
    command = [sys.executable, "-c", program, *paths]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]
