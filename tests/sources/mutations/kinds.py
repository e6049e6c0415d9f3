"""Files of every kind: how they are written and opened, and which of their bytes a checksum covers."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from PIL import Image
from tests.sources.tfrecord.files import FEATURES, framed, payloads

import penstock as ps

LENGTH, CHUNK = 200, 32
NUMBERS = np.arange(LENGTH)
X = (NUMBERS[:, None] * 10 + np.arange(12)).astype("f4")
TEXTS = [f"é{number}" * (number % 5) for number in NUMBERS]
Cover = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    write: Callable[[Path], None]
    open: Callable[[Path], ps.Dataset] = ps.from_files
    covered: Callable[[Path], Cover] | None = None
    """Where a checksum stands: ranges of bytes, by the file's path in the folder ("" for the file itself)."""
    seal: Callable[[bytes], bytes] | None = None
    """What is done to the bytes after they were damaged: they are put behind checksums that are right."""


def npy_bytes(array: Any) -> bytes:
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()


def as_npz(data: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", data)
        archive.writestr("y.npy", npy_bytes(NUMBERS))
    return target.getvalue()


def members(path: Path) -> Cover:
    """The data of each member of a zip, without the header before it."""
    ranges = []
    with zipfile.ZipFile(path) as archive:
        content = path.read_bytes()
        for one in archive.infolist():
            at = one.header_offset
            start = (
                at
                + 30
                + sum(int.from_bytes(content[at + k : at + k + 2], "little") for k in (26, 28))
            )
            ranges.append((start, start + one.compress_size))
    return {"": ranges}


def hdf5(path: Path, *, libver: str = "earliest", **options: Any) -> None:
    with h5py.File(path, "w", libver=libver) as file:
        if options:
            file.create_dataset("x", data=X, chunks=(CHUNK, 12), **options)
        else:
            file["x"] = X
        file["y"] = NUMBERS


def hdf5_of_any_length(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("s", data=TEXTS, dtype=h5py.string_dtype(), chunks=(CHUNK,))
        lists = file.create_dataset("v", (LENGTH,), h5py.vlen_dtype("i4"))
        for number in range(LENGTH):
            lists[number] = np.arange(number % 4)


def hdf5_of_records(path: Path) -> None:
    with h5py.File(path, "w") as file:
        pairs = np.zeros(LENGTH, [("a", "i2"), ("b", "f8", (3,)), ("c", "S5")])
        pairs["a"] = NUMBERS
        file.create_dataset("r", data=pairs, chunks=(CHUNK,), compression="lzf", shuffle=True)
        file["deep/er/flags"] = NUMBERS % 2 == 0
        file.create_dataset("half", data=X.astype("f2"), chunks=(7, 5), compression="gzip")


def chunks_of_hdf5(path: Path) -> Cover:
    with h5py.File(path) as file:
        chunks = [file["x"].id.get_chunk_info(k) for k in range(file["x"].id.get_num_chunks())]
    return {"": [(one.byte_offset, one.byte_offset + one.size) for one in chunks]}


def zarr_of(version: int, path: Path, **options: Any) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.create_array("x", data=X, chunks=(CHUNK, 12), **options)
    group.create_array("y", data=NUMBERS, chunks=(50,))


def zarr_texts(version: int, path: Path) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    array = group.create_array("s", shape=(LENGTH,), chunks=(CHUNK,), dtype="U8")
    array[:] = np.array(TEXTS, "U8")


def chunks_of_zarr(path: Path) -> Cover:
    files = [one for one in (path / "x").rglob("*") if one.is_file() and one.name != "zarr.json"]
    return {str(one.relative_to(path)): [(0, one.stat().st_size)] for one in files}


def table() -> pa.Table:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 12)
    columns = {"x": lists, "y": NUMBERS, "s": TEXTS, "flag": NUMBERS % 3 == 0}
    columns["kind"] = pa.array([f"kind {number % 4}" for number in NUMBERS]).dictionary_encode()
    columns["lists"] = pa.array(
        [list(range(number % 4)) for number in NUMBERS], pa.list_(pa.int32())
    )
    return pa.table(columns)


def parquet(path: Path, **options: Any) -> None:
    pq.write_table(table(), path, row_group_size=CHUNK * 2, **options)


def pages(path: Path) -> Cover:
    """The second half of each column of a group, which is data of its one page."""
    found = pq.read_metadata(path)
    ranges = []
    for group in range(found.num_row_groups):
        column = found.row_group(group).column(0)
        stop = column.data_page_offset + column.total_compressed_size
        ranges.append((stop - column.total_compressed_size // 2, stop))
    return {"": ranges}


def arrow(path: Path, compression: str | None = None) -> None:
    content = table()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(str(path), content.schema, options=options) as file:
        file.write_table(content, max_chunksize=CHUNK)


def csv(path: Path) -> None:
    rows = (f'{number},{number / 2},"t, {TEXTS[number]}"' for number in NUMBERS)
    path.write_text("\n".join(["y,half,text", *rows]) + "\n")


def images(suffix: str, path: Path) -> None:
    path.mkdir()
    for number in range(6):
        values = (np.arange(40 * 30 * 3).reshape(40, 30, 3) * 7 + number * 13) % 256
        Image.fromarray(values.astype("u1")).save(path / f"{number}{suffix}")


def written(path: Path, format: Any = "npy") -> None:
    texts = TEXTS if format == "npy" else [text.encode() for text in TEXTS]
    ps.from_arrays({"x": X, "y": NUMBERS, "s": texts}).write(path, format=format)


def arrays_of_a_folder(path: Path) -> Cover:
    return {one.name: [(128, one.stat().st_size)] for one in path.glob("*.npy")}


def whole(path: Path) -> Cover:
    return {"": [(0, path.stat().st_size)]}


def records() -> bytes:
    return bytes(framed(payloads(60)))


def tfrecord(path: Path, *, index: bool) -> ps.Dataset:
    return ps.from_tfrecord(path, FEATURES, index=index)


def put(data: Callable[[], bytes], path: Path) -> None:
    path.write_bytes(data())


read_records = partial(tfrecord, index=False)
fletcher = {"fletcher32": True, "compression": "gzip"}
crc = zarr.codecs.Crc32cCodec()
KINDS = {
    "npy": Kind("a.npy", lambda path: np.save(path, X)),
    "npy, Fortran": Kind("a.npy", lambda path: np.save(path, np.asfortranarray(X))),
    "npy, records": Kind("a.npy", lambda path: np.save(path, np.zeros(9, "i4,(2,3)f8,U5,M8[s]"))),
    "raw": Kind(
        "a.bin",
        lambda path: X.tofile(path),
        partial(ps.from_files, format="raw", spec=ps.ArraySpec((12,), "float32")),
    ),
    "npz": Kind("a.npz", lambda path: np.savez(path, x=X, y=NUMBERS), covered=members),
    "npz, deflated": Kind(
        "a.npz", lambda path: np.savez_compressed(path, x=X, y=NUMBERS), covered=members
    ),
    "npz, sealed": Kind("a.npz", partial(put, partial(npy_bytes, X)), seal=as_npz),
    "hdf5": Kind("a.h5", hdf5),
    "hdf5, gzip": Kind("a.h5", partial(hdf5, compression="gzip", shuffle=True)),
    "hdf5, fletcher32": Kind("a.h5", partial(hdf5, **fletcher), covered=chunks_of_hdf5),
    "hdf5, latest": Kind("a.h5", partial(hdf5, libver="latest", compression="lzf")),
    "hdf5, any length": Kind("a.h5", hdf5_of_any_length),
    "hdf5, records": Kind("a.h5", hdf5_of_records),
    "zarr 3": Kind("a.zarr", partial(zarr_of, 3)),
    "zarr 3, gzip": Kind("a.zarr", partial(zarr_of, 3, compressors=zarr.codecs.GzipCodec())),
    "zarr 3, crc32c": Kind("a.zarr", partial(zarr_of, 3, compressors=crc), covered=chunks_of_zarr),
    "zarr 3, shards": Kind("a.zarr", partial(zarr_of, 3, shards=(96, 12))),
    "zarr 3, texts": Kind("a.zarr", partial(zarr_texts, 3)),
    "zarr 2": Kind("a.zarr", partial(zarr_of, 2)),
    "zarr 2, zlib": Kind("a.zarr", partial(zarr_of, 2, compressors=numcodecs.Zlib())),
    "zarr 2, texts": Kind("a.zarr", partial(zarr_texts, 2)),
    "parquet": Kind("a.parquet", parquet),
    "parquet, plain": Kind(
        "a.parquet",
        partial(parquet, use_dictionary=False, compression="none", write_page_checksum=True),
        covered=pages,
    ),
    "parquet, pages 2": Kind(
        "a.parquet", partial(parquet, data_page_version="2.0", compression="zstd")
    ),
    "parquet, deltas": Kind(
        "a.parquet",
        partial(
            parquet,
            use_dictionary=False,
            column_encoding={"y": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY"},
            compression="gzip",
            write_page_index=True,
        ),
    ),
    "arrow": Kind("a.arrow", arrow),
    "arrow, zstd": Kind("a.arrow", partial(arrow, compression="zstd")),
    "arrow, lz4": Kind("a.arrow", partial(arrow, compression="lz4")),
    "csv": Kind("a.csv", csv),
    "text": Kind("a.txt", lambda path: path.write_text("\n".join(TEXTS)) and None),
    **{
        f"images, {suffix[1:]}": Kind("images", partial(images, suffix))
        for suffix in (".png", ".jpg", ".bmp", ".gif", ".webp", ".tif")
    },
    "images, resized": Kind("images", partial(images, ".png"), partial(ps.from_files, size=(8, 8))),
    "written": Kind("out", written, covered=arrays_of_a_folder),
    "tfrecord": Kind("a.tfrecord", partial(put, records), read_records, whole),
    "tfrecord, index": Kind(
        "a.tfrecord", partial(put, records), partial(tfrecord, index=True), whole
    ),
    "tfrecord, gzip": Kind(
        "a.tfrecord", partial(put, lambda: gzip.compress(records())), read_records, whole
    ),
    "tfrecord, gzip, sealed": Kind(
        "a.tfrecord", partial(put, records), read_records, whole, seal=gzip.compress
    ),
    "tfrecord, zlib, sealed": Kind(
        "a.tfrecord", partial(put, records), read_records, whole, seal=zlib.compress
    ),
    "tfrecord, sealed": Kind(
        "a.tfrecord",
        partial(put, lambda: bytes(payloads(3)[2])),
        read_records,
        seal=lambda data: bytes(framed([*payloads(3), data, *payloads(2)])),
    ),
}
