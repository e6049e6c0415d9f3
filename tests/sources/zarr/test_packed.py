"""Chunks that unpack to far more than they may hold: refused by name, before Zarr unpacks them."""

import bz2
import gzip
import lzma
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec

import penstock as ps
from penstock.errors import DataError
from penstock.sources.zarr.packed import packing_of

BOMB_NBYTES = 1 << 26
WIDTH = 4096
VALUES = np.arange(16 * WIDTH, dtype="f4").reshape(16, WIDTH)


def zeros(compress: Callable[[bytes], Any], *, of: int = BOMB_NBYTES) -> bytes:
    return bytes(compress(bytes(of)))


def unsized_zstd() -> bytes:
    """A frame of Zstandard that does not say how long it is: blocks that repeat one byte."""
    block = 1 << 17
    body = b"".join(struct.pack("<I", (block << 3) | 2)[:3] + b"\0" for _ in range(511))
    last = struct.pack("<I", (block << 3) | 3)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x58" + body + last


V2 = {
    "gzip": (numcodecs.GZip(), lambda: zeros(lambda data: gzip.compress(data, 1))),
    "gzip in two": (
        numcodecs.GZip(),
        lambda: 2 * zeros(lambda data: gzip.compress(data, 1), of=BOMB_NBYTES // 2),
    ),
    "zlib": (numcodecs.Zlib(), lambda: zeros(lambda data: zlib.compress(data, 1))),
    "bz2": (numcodecs.BZ2(), lambda: zeros(lambda data: bz2.compress(data, 1))),
    "lzma": (numcodecs.LZMA(preset=0), lambda: zeros(lambda data: lzma.compress(data, preset=0))),
    "zstd": (numcodecs.Zstd(), lambda: zeros(numcodecs.Zstd().encode)),
    "zstd of no known size": (numcodecs.Zstd(), unsized_zstd),
    "lz4": (numcodecs.LZ4(), lambda: zeros(numcodecs.LZ4().encode)),
    "blosc": (numcodecs.Blosc(), lambda: zeros(numcodecs.Blosc().encode)),
}
V3: dict[str, tuple[Any, Callable[[], bytes]]] = {
    "gzip": ([GzipCodec()], V2["gzip"][1]),
    "zstd": ([ZstdCodec()], V2["zstd"][1]),
    "blosc": ([BloscCodec()], V2["blosc"][1]),
    "bz2": ([{"name": "numcodecs.bz2", "configuration": {"level": 1}}], V2["bz2"][1]),
    "zlib behind a checksum": (
        [{"name": "numcodecs.zlib", "configuration": {"level": 1}}, Crc32cCodec()],
        lambda: V2["zlib"][1]() + bytes(4),
    ),
    "gzip in gzip": ([GzipCodec(), GzipCodec()], lambda: gzip.compress(V2["gzip"][1]())),
    "gzip in zstd": (
        [GzipCodec(), ZstdCodec()],
        lambda: bytes(numcodecs.Zstd().encode(gzip.compress(bytes(1 << 26), 1))),
    ),
}
warns = pytest.mark.filterwarnings("ignore:Numcodecs codecs")


def refused(path: Path) -> None:
    """Check that reading is refused by name, and takes little memory; other chunks are good."""
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.zarr.*the chunk can't be unpacked"):
            list(ps.from_files(path).with_options(threads=0))
        ds = ps.from_files(path).with_options(threads=0, on_error="skip")
        found = np.stack(list(ds))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, VALUES[8:])
    assert peak < 32 << 20


@warns
@pytest.mark.parametrize("name", V2)
def test_a_bomb_of_version_2_is_not_unpacked(tmp_path: Path, name: str) -> None:
    compressor, bomb = V2[name]
    options: Any = {"chunks": (8, WIDTH), "zarr_format": 2, "compressors": compressor}
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, **options)
    np.testing.assert_array_equal(list(ps.from_files(tmp_path / "a.zarr")), VALUES)
    (tmp_path / "a.zarr" / "0.0").write_bytes(bomb())
    refused(tmp_path / "a.zarr")


@warns
@pytest.mark.parametrize("name", V3)
def test_a_bomb_of_version_3_is_not_unpacked(tmp_path: Path, name: str) -> None:
    compressors, bomb = V3[name]
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(8, WIDTH), compressors=compressors)
    np.testing.assert_array_equal(list(ps.from_files(tmp_path / "a.zarr")), VALUES)
    (tmp_path / "a.zarr" / "c" / "0" / "0").write_bytes(bomb())
    refused(tmp_path / "a.zarr")


@warns
@pytest.mark.parametrize("where", ["start", "end"])
@pytest.mark.parametrize("name", ["gzip", "zstd", "blosc"])
def test_a_bomb_in_a_shard_is_not_unpacked(tmp_path: Path, name: str, where: Any) -> None:
    compressors, bomb = V3[name]
    path = tmp_path / "a.zarr"
    codec = zarr.codecs.ShardingCodec(
        chunk_shape=(2, WIDTH),
        codecs=[zarr.codecs.BytesCodec(), *compressors],
        index_location=where,
        index_codecs=[zarr.codecs.BytesCodec()],
    )
    options: Any = {"serializer": codec, "compressors": None}
    zarr.create_array(path, data=VALUES, chunks=(8, WIDTH), **options)
    np.testing.assert_array_equal(list(ps.from_files(path)), VALUES)
    file = path / "c" / "0" / "0"
    data = bytearray(file.read_bytes())
    packed = bomb()
    at = 0 if where == "start" else len(data) - 64
    index = np.frombuffer(data[at : at + 64], "<u8").copy()
    index[0:8:2], index[1:8:2] = (64 if where == "start" else 0), len(packed)
    file.write_bytes(index.tobytes() + packed if where == "start" else packed + index.tobytes())
    refused(path)


def test_a_file_too_large_for_its_chunk_is_not_read(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(8, WIDTH), compressors=None)
    with (tmp_path / "a.zarr" / "c" / "0" / "0").open("r+b") as file:
        file.truncate(1 << 33)
    with pytest.raises(DataError, match=r"0/0: has 8589934592 bytes to be read at once, where"):
        list(ps.from_files(tmp_path / "a.zarr"))


@warns
@pytest.mark.parametrize("name", V3)
def test_what_zarr_wrote_passes(tmp_path: Path, name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1000, 33), np.uint8)
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=noise, chunks=(999, 32), compressors=V3[name][0])
    np.testing.assert_array_equal(list(ps.from_files(path)), noise)


def test_the_packing_of_an_array_is_read_from_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    array = zarr.create_array(path, data=VALUES, chunks=(2, WIDTH), shards=(8, WIDTH))
    found = packing_of(array)
    assert [one["id"] for one in found.codecs] == ["bytes", "zstd"]
    assert (found.nbytes, found.shards.num_chunks, found.shards.index_nbytes) == (8 * WIDTH, 4, 68)
