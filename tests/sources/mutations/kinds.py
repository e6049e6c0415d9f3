"""Files of every kind: how they are written and opened, and which of their bytes a checksum covers."""

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image
from tests.sources.mutations import hdf5, tables, zarrs
from tests.sources.mutations.kind import NUMBERS, TEXTS, Cover, Kind, X
from tests.sources.tfrecord.files import FEATURES, framed, payloads

import penstock as ps
from penstock.sources.reading.saved_indexes import cache_folder


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


def streamed_npz(path: Path) -> None:
    """As it is written where nobody can go back: sizes and checksums come behind the data."""

    class Forward(io.FileIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise OSError

    with Forward(path, "w") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(X))
        archive.writestr("y.npy", npy_bytes(NUMBERS), zipfile.ZIP_STORED)


def npz_of_64_bits(path: Path) -> None:
    """With the records of large archives."""
    with (
        mock.patch.object(zipfile, "ZIP64_LIMIT", 10),
        mock.patch.object(zipfile, "ZIP_FILECOUNT_LIMIT", 0),
    ):
        np.savez(path, x=X, y=NUMBERS)


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


def images(suffix: str, path: Path) -> None:
    path.mkdir()
    for number in range(6):
        values = (np.arange(40 * 30 * 3).reshape(40, 30, 3) * 7 + number * 13) % 256
        Image.fromarray(values.astype("u1")).save(path / f"{number}{suffix}")


def palettes(path: Path) -> None:
    """Images that are turned into RGB: of few colours, of 16 bits, with transparency."""
    path.mkdir()
    values = (np.arange(40 * 30).reshape(40, 30) * 7) % 256
    image = Image.fromarray(values.astype("u1"))
    image.convert("P").save(path / "0.png")
    image.convert("1").save(path / "1.png")
    image.convert("LA").save(path / "2.png")
    image.convert("RGBA").save(path / "3.webp", lossless=True)
    image.convert("CMYK").save(path / "4.jpg")
    image.convert("P").save(path / "5.gif", save_all=True, append_images=[image] * 3)


def packed_tiffs(path: Path) -> None:
    path.mkdir()
    values = (np.arange(40 * 30 * 3).reshape(40, 30, 3) * 7) % 256
    for number, compression in enumerate(("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")):
        image = Image.fromarray(values.astype("u1"))
        image.save(path / f"{number}.tif", compression=compression)


def data_of_png(path: Path) -> Cover:
    """The packed pixels of each image, and their checksum."""
    found = {}
    for one in path.glob("*.png"):
        content = one.read_bytes()
        at = content.index(b"IDAT")
        nbytes = int.from_bytes(content[at - 4 : at], "big")
        found[one.name] = [(at + 4, at + 8 + nbytes)]
    return found


def written(path: Path, format: Any = "npy") -> None:
    texts = TEXTS if format == "npy" else [text.encode() for text in TEXTS]
    ps.from_arrays({"x": X, "y": NUMBERS, "s": texts}).write(path, format=format)


def arrays_of_a_folder(path: Path) -> Cover:
    return {one.name: [(128, one.stat().st_size)] for one in path.glob("*.npy")}


def checksums(path: Path) -> list[Path]:
    return sorted(path.glob("*.crc32c"))


def manifest(path: Path) -> list[Path]:
    return [path / "manifest.json"]


def whole_checksums(path: Path) -> Cover:
    return {one.name: [(0, one.stat().st_size)] for one in checksums(path)}


def rows_to_cache() -> ps.Dataset:
    return ps.from_arrays({"x": X, "y": NUMBERS, "s": TEXTS})


def cached(path: Path) -> None:
    with rows_to_cache().cache(path).stream() as stream:
        for _ in stream:
            pass


def whole_records(path: Path) -> Cover:
    return {one.name: [(0, one.stat().st_size)] for one in path.glob("*.tfrecord*")}


def indexes(path: Path) -> list[Path]:
    """The index of a TFRecord file, which is written when it is opened."""
    tfrecord(path, index=True)
    return sorted(cache_folder("tfrecord").glob("*"))


def whole_index(path: Path) -> Cover:
    return {str(one): [(0, one.stat().st_size)] for one in indexes(path)}


def whole(path: Path) -> Cover:
    return {"": [(0, path.stat().st_size)]}


def records() -> bytes:
    return bytes(framed(payloads(60)))


def tfrecord(path: Path, *, index: bool) -> ps.Dataset:
    return ps.from_tfrecord(path, FEATURES, index=index)


def put(data: Callable[[], bytes], path: Path) -> None:
    path.write_bytes(data())


read_records = partial(tfrecord, index=False)
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
    "npz, streamed": Kind("a.npz", streamed_npz, covered=members),
    "npz, 64 bits": Kind("a.npz", npz_of_64_bits, covered=members),
    "npz, sealed": Kind("a.npz", partial(put, partial(npy_bytes, X)), seal=as_npz),
    **hdf5.KINDS,
    **zarrs.KINDS,
    **tables.KINDS,
    "text": Kind("a.txt", lambda path: path.write_text("\n".join(TEXTS)) and None),
    **{
        f"images, {suffix[1:]}": Kind("images", partial(images, suffix))
        for suffix in (".png", ".jpg", ".bmp", ".gif", ".webp", ".tif")
    },
    "images, png, sums": Kind("images", partial(images, ".png"), covered=data_of_png),
    "images, palettes": Kind("images", palettes),
    "images, packed tif": Kind("images", packed_tiffs),
    "images, resized": Kind("images", partial(images, ".png"), partial(ps.from_files, size=(8, 8))),
    "written": Kind("out", written, covered=arrays_of_a_folder),
    "written, checksums": Kind("out", written, covered=whole_checksums, victims=checksums),
    "written, manifest": Kind("out", written, victims=manifest),
    "written, cached": Kind(
        "out", cached, lambda path: rows_to_cache().cache(path), arrays_of_a_folder
    ),
    "tfrecord, written": Kind(
        "out", partial(written, format="tfrecord"), ps.from_tfrecord, whole_records
    ),
    "tfrecord, damaged index": Kind(
        "a.tfrecord",
        partial(put, records),
        partial(tfrecord, index=True),
        whole_index,
        victims=indexes,
    ),
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
