"""The layouts in which people have rows: each stores the same pairs (x, number of the row), and opens them again.

Tables have a tuple of columns for x.
"""

import itertools
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import zarr

import penstock as ps

Pairs = tuple[np.ndarray, np.ndarray]
Layout = Callable[[Path, np.ndarray, np.ndarray], ps.Dataset]


def expected(num_rows: int, width: int, dtype: str) -> Pairs:
    """Return x and y, in order: y is the number of the row, and x follows from it."""
    y = np.arange(num_rows)
    values = y[:, None] * 7 + np.arange(width)
    if dtype == "bool":
        return values % 3 == 0, y
    if dtype in ("S6", "U6"):
        return (values % 100_000).astype(dtype), y
    if dtype == "bfloat16":
        import ml_dtypes

        return (values % 200).astype(ml_dtypes.bfloat16), y
    most = 100 if np.dtype(dtype).itemsize == 1 else 2000
    return (values % most).astype(dtype), y


def npy_pair(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    np.save(path / "x.npy", x)
    np.save(path / "y.npy", y)
    return ps.zip(ps.from_files(path / "x.npy"), ps.from_files(path / "y.npy"))


def many_files(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    """Files of x that end elsewhere than those of y."""
    for name, values, cuts in (("x", x, (5, 7)), ("y", y, (3, 4))):
        edges = [len(y) * part // 13 for part in (0, *np.cumsum(cuts), 13)]
        for number, (start, stop) in enumerate(itertools.pairwise(edges)):
            np.save(path / f"{name}-{number}.npy", values[start:stop])
    return ps.zip(ps.from_files(path / "x-*.npy"), ps.from_files(path / "y-*.npy"))


def memmaps(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    npy_pair(path, x, y)
    maps = [np.load(path / name, mmap_mode="r") for name in ("x.npy", "y.npy")]
    return ps.from_arrays(tuple(maps))


def memmap_and_array(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    npy_pair(path, x, y)
    return ps.from_arrays((np.load(path / "x.npy", mmap_mode="r"), y))


def fortran(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    return npy_pair(path, np.asfortranarray(x), y)


def one_structured_file(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    rows = np.zeros(len(y), [("x", x.dtype, x.shape[1:]), ("y", "i8")])
    rows["x"], rows["y"] = x, y
    np.save(path / "rows.npy", rows)
    return ps.from_files(path / "rows.npy").map(lambda row: (row["x"], row["y"]))


def npz(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    np.savez(path / "a.npz", x=x, y=y)
    return ps.from_files(path / "a.npz", ("x", "y"))


def npz_deflated(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    np.savez_compressed(path / "a.npz", x=x, y=y)
    return ps.from_files(path / "a.npz", ("x", "y"))


def hdf5(chunks_x: int | None, chunks_y: int | None, **options: Any) -> Layout:
    def layout(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
        with h5py.File(path / "a.h5", "w") as file:
            for name, values, chunk in (("x", x, chunks_x), ("y", y, chunks_y)):
                if chunk is None:
                    file.create_dataset(name, data=values)
                else:
                    chunks = (min(chunk, len(values)), *values.shape[1:])
                    file.create_dataset(name, data=values, chunks=chunks, **options)
        return ps.from_files(path / "a.h5", ("x", "y"))

    return layout


def hdf5_pair(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    """Two files, one array each, in chunks of different lengths."""
    for name, values, chunk in (("x", x, 60), ("y", y, 1700)):
        with h5py.File(path / f"{name}.h5", "w") as file:
            chunks = (min(chunk, len(values)), *values.shape[1:])
            file.create_dataset(name, data=values, chunks=chunks)
    return ps.zip(ps.from_files(path / "x.h5", "x"), ps.from_files(path / "y.h5", "y"))


def zarr_chunks(chunks_x: int, chunks_y: int, zarr_format: int) -> Layout:
    def layout(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
        group = zarr.open_group(path / "a.zarr", mode="w", zarr_format=zarr_format)
        for name, values, chunk in (("x", x, chunks_x), ("y", y, chunks_y)):
            chunks = (min(chunk, len(values)), *values.shape[1:])
            array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks)
            array[:] = values
        return ps.from_files(path / "a.zarr", ("x", "y"))

    return layout


def table(x: np.ndarray, y: np.ndarray) -> tuple[Any, Any, int]:
    """Return the table of all columns, the names of its fields, and how many rows to store together."""
    import pyarrow as pa

    columns = {f"x{number}": x[:, number] for number in range(x.shape[1])}
    return pa.table({**columns, "y": y}), (tuple(columns), "y"), max(64, len(y) // 220)


def parquet(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    import pyarrow.parquet as pq

    columns, names, together = table(x, y)
    pq.write_table(columns, path / "a.parquet", row_group_size=together)
    return ps.from_files(path / "a.parquet", names)


def arrow(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    import pyarrow as pa

    columns, names, together = table(x, y)
    with pa.ipc.new_file(path / "a.arrow", columns.schema) as file:
        file.write_table(columns, max_chunksize=together)
    return ps.from_files(path / "a.arrow", names)


def table_in_memory(_: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    """An Arrow table in chunks of other lengths than blocks."""
    import pyarrow as pa

    columns, _, together = table(x, y)
    chunked = pa.Table.from_batches(columns.to_batches(max_chunksize=7 * together))
    return ps.from_arrays((tuple(chunked.columns[:-1]), chunked["y"]))


def shards(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    ps.from_arrays((x, y)).write(path / "shards", shards=3, overwrite=True)
    return ps.from_files(path / "shards")


def tfrecord(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    ps.from_arrays({"x": x, "y": y}).write(
        path / "records", format="tfrecord", shards=3, overwrite=True
    )
    features = {
        "x": ps.FixedFeature(x.shape[1:], x.dtype),
        "y": ps.FixedFeature((), "i8"),
    }
    return ps.from_tfrecord(path / "records", features=features).map(
        lambda row: (row["x"], row["y"])
    )


def cached(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    return npz_deflated(path, x, y).cache(path / "cache")


def generator(_: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    spec = (ps.ArraySpec(x.shape[1:], x.dtype), ps.ArraySpec((), "i8"))
    return ps.from_generator(lambda: zip(x, y, strict=True), spec)


def arrays(_: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    return ps.from_arrays((x, y))


def mixed_npz(path: Path, x: np.ndarray, y: np.ndarray) -> ps.Dataset:
    """An archive with a stored and a deflated member."""
    npy_pair(path, x, y)
    with zipfile.ZipFile(path / "a.npz", "w") as archive:
        archive.write(path / "x.npy", "x.npy", zipfile.ZIP_STORED)
        archive.write(path / "y.npy", "y.npy", zipfile.ZIP_DEFLATED)
    return ps.from_files(path / "a.npz", ("x", "y"))


NUMBERS = ("f4", ">f4", "f8", "f2", "i8", ">i2", "u1", "u4", "bool", "c8")
PLAIN = (*NUMBERS, "S6", "U6")
ANY = (*PLAIN, "bfloat16")  # NumPy's own files lose the name of this dtype.
IN_HDF5 = (*NUMBERS, "S6")
IN_ZARR_3 = tuple(dtype for dtype in NUMBERS if dtype[0] != ">")  # It knows no byte order.
IN_TABLES = ("f4", "f8", "f2", "i8", "u1", "u4", "bool")
IN_RECORDS = ("f4", "i8")

LAYOUTS: dict[str, tuple[Layout, tuple[str, ...]]] = {
    "a pair of npy files": (npy_pair, PLAIN),
    "many npy files": (many_files, PLAIN),
    "memmaps": (memmaps, PLAIN),
    "a memmap and an array": (memmap_and_array, PLAIN),
    "npy in Fortran order": (fortran, NUMBERS),
    "one file of structured rows": (
        one_structured_file,
        PLAIN,
    ),
    "npz": (npz, PLAIN),
    "npz, deflated": (npz_deflated, PLAIN),
    "npz, stored and deflated": (mixed_npz, ("f4", "i8")),
    "HDF5, contiguous": (hdf5(None, None), IN_HDF5),
    "HDF5, chunks of other lengths": (hdf5(50, 700), IN_HDF5),
    "HDF5, one chunk of labels": (hdf5(50, 10**9), IN_HDF5),
    "HDF5, gzip and shuffle": (hdf5(64, 100, compression="gzip", shuffle=True), IN_HDF5),
    "HDF5, packed x and plain y": (hdf5(64, None, compression="gzip"), IN_HDF5),
    "HDF5, a pair of files": (hdf5_pair, IN_HDF5),
    "Zarr 2": (zarr_chunks(50, 700, 2), PLAIN),
    "Zarr 3": (zarr_chunks(64, 10**9, 3), IN_ZARR_3),
    "Parquet": (parquet, IN_TABLES),
    "Arrow": (arrow, IN_TABLES),
    "an Arrow table in memory": (table_in_memory, ("f4", "i8", "bool")),
    "shards": (shards, ANY),
    "TFRecord": (tfrecord, IN_RECORDS),
    "a cache on disk": (cached, PLAIN),
    "a generator": (generator, ANY),
    "arrays": (arrays, ANY),
}
FORWARD = {"npz, deflated", "npz, stored and deflated", "a generator"}
"""Layouts that can only be read forward: rows are mixed with those near them."""
