"""Files of every format, and ways to damage them: for the tests of on_error="skip"."""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from tests.sources.formats import sample
from tests.sources.tar.tars import npy, write_plain_tar

import penstock as ps

LENGTH, CHUNK = 300, 64
THREADS = (0, 1, 4)


def damage(path: Path, start: int, count: int = 8) -> None:
    """Turn bytes of a file around, and leave its size and time as they were."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(start)
        data = file.read(count)
        file.seek(start)
        file.write(bytes(byte ^ 0xA5 for byte in data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_npy(path: Path, start: int, dtype: str = "float32") -> None:
    np.save(path, sample(LENGTH, start)["x"].astype(dtype))


def write_raw(path: Path, start: int, dtype: str = "float32") -> None:
    sample(LENGTH, start)["x"].astype(dtype).tofile(path)


def write_npz(path: Path, start: int, dtype: str = "int64") -> None:
    columns = sample(LENGTH, start)
    np.savez(path, x=columns["x"], y=columns["y"].astype(dtype))


def write_packed_npz(path: Path, start: int, dtype: str = "int64") -> None:
    columns = sample(LENGTH, start)
    np.savez_compressed(path, x=columns["x"], y=columns["y"].astype(dtype))


def write_hdf5(path: Path, start: int, dtype: str = "int64") -> None:
    columns = sample(LENGTH, start)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=columns["x"], chunks=(CHUNK, 3), compression="gzip")
        file["y"] = columns["y"].astype(dtype)


def write_zarr(path: Path, start: int, dtype: str = "int64") -> None:
    columns = sample(LENGTH, start)
    group = zarr.open_group(path, mode="w")
    group.create_array("x", data=columns["x"], chunks=(CHUNK, 3))
    group.create_array("y", data=columns["y"].astype(dtype), chunks=(50,))


def table_of(start: int, dtype: str) -> pa.Table:
    columns = sample(LENGTH, start)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(columns["x"].reshape(-1)), 3)
    return pa.table({"x": lists, "y": columns["y"].astype(dtype)})


def write_parquet(path: Path, start: int, dtype: str = "int64") -> None:
    pq.write_table(table_of(start, dtype), path, row_group_size=CHUNK, use_dictionary=False)


def write_arrow(path: Path, start: int, dtype: str = "int64") -> None:
    table = table_of(start, dtype)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, table.schema, options=options) as file:
        file.write_table(table, max_chunksize=CHUNK)


def write_csv(path: Path, start: int, dtype: str = "int64") -> None:
    rows = (f"{number},{number / 2}" for number in range(start, start + LENGTH))
    head = "y,half" if dtype == "int64" else "y,other"
    path.write_text("\n".join([head, *rows]) + "\n")


def write_jsonl(path: Path, start: int, dtype: str = "int64") -> None:
    key = "y" if dtype == "int64" else "other"
    rows = (json.dumps({key: n, "half": n / 2}) for n in range(start, start + LENGTH))
    path.write_text("\n".join(rows) + "\n")


def write_tar(path: Path, start: int, dtype: str = "int64") -> None:
    columns = sample(LENGTH, start)
    x = columns["x"] if dtype == "int64" else columns["x"].astype("float64")
    members = []
    for number in range(LENGTH):
        key = f"{start + number:06d}"
        members += [(f"{key}.cls", str(start + number).encode()), (f"{key}.npy", npy(x[number]))]
    write_plain_tar(path, members)


def write_text(path: Path, start: int, dtype: str = "int64") -> None:
    path.write_text("".join(f"line {number}\n" for number in range(start, start + LENGTH)))


def damage_hdf5(path: Path) -> None:
    with h5py.File(path) as file:
        place = file["x"].id.get_chunk_info(2).byte_offset
    damage(path, place + 2)


def damage_zarr(path: Path) -> None:
    damage(path / "x" / "c" / "2" / "0", 4)


def damage_parquet(path: Path) -> None:
    column = pq.ParquetFile(path).metadata.row_group(2).column(0)
    damage(path, column.data_page_offset, 60)


def damage_arrow(path: Path) -> None:
    frames = [one.start() for one in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), path.read_bytes())]
    damage(path, frames[2 * len(frames) // 5], 16)  # Five batches have as many frames each.


@dataclass(frozen=True)
class Kind:
    """A format: how its files are written, and how a chunk of one is damaged."""

    suffix: str
    write: Callable[..., None]
    damage: Callable[[Path], None] | None = None
    options: dict[str, Any] | None = None
    knows_length: bool = True
    is_mismatch_seen: bool = True

    def open(self, paths: Any, **more: Any) -> ps.Dataset:
        return ps.from_files(paths, **(self.options or {}), **more)

    def files(self, folder: Path) -> list[Path]:
        paths = [folder / f"part-{number}{self.suffix}" for number in range(3)]
        for number, path in enumerate(paths):
            self.write(path, number * LENGTH)
        return paths


RAW = {"format": "raw", "spec": ps.ArraySpec((3,), "float32")}
KINDS = {
    "npy": Kind(".npy", write_npy),
    "raw": Kind(".bin", write_raw, options=RAW, is_mismatch_seen=False),
    "npz": Kind(".npz", write_npz),
    "packed npz": Kind(".npz", write_packed_npz),
    "hdf5": Kind(".h5", write_hdf5, damage_hdf5),
    "zarr": Kind(".zarr", write_zarr, damage_zarr),
    "parquet": Kind(".parquet", write_parquet, damage_parquet),
    "arrow": Kind(".arrow", write_arrow, damage_arrow),
    "csv": Kind(".csv", write_csv, knows_length=False),
    "jsonl": Kind(".jsonl", write_jsonl, knows_length=False, is_mismatch_seen=False),
    "text": Kind(".txt", write_text, knows_length=False, is_mismatch_seen=False),
    "tar": Kind(".tar", write_tar, options={"fields": {"x": "npy", "y": "cls"}}),
}


def number_of(row: Any) -> int:
    if isinstance(row, dict):
        return int(row["y"])
    return int(row.split()[1]) if isinstance(row, str) else int(row[0] // 10)


def skipping(ds: ps.Dataset, **options: Any) -> ps.Dataset:
    return ds.with_options(on_error="skip", **options)


def read(ds: ps.Dataset, **options: Any) -> tuple[list[int], Any]:
    """Return the numbers of all rows, and the report."""
    with ds.stream(**options) as stream:
        found = [number_of(row) for row in stream]
        return found, stream.report()


def check(ds: ps.Dataset, good: list[int], num_bad: int, *names: str) -> None:
    """Assert what comes, with any threads and budget, and from every state on; and what is told."""
    for threads in THREADS:
        found, report = read(ds.with_options(threads=threads))
        assert found == good
        assert report.num_skipped == num_bad
        told = "\n".join(report.skipped)
        assert all(name in told for name in names), told
    assert read(ds.with_options(memory="64MB"))[0] == good
    with ds.stream() as stream:
        states = [stream.state() for _ in stream]
    for done in sorted({*range(1, len(good), 13), len(good) - 1}):
        state = json.loads(json.dumps(states[done - 1]))
        assert read(ds.with_options(threads=done % 3), state=state)[0] == good[done:]


def without(lost: range) -> list[int]:
    return [number for number in range(3 * LENGTH) if number not in lost]


MIDDLE = range(LENGTH, 2 * LENGTH)
