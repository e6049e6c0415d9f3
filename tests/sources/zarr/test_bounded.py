"""Chunks that unpack to far more than they may hold: refused by name, whoever opened the array."""

import bz2
import functools
import gzip
import json
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
from tests.sources.in_a_cgroup import read_in_a_cgroup
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    ZstdCodec,
)

import penstock as ps
from penstock.errors import DataError, FieldError

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


@functools.cache
def made(bomb: Callable[[], bytes]) -> bytes:
    """Return a bomb; it is made once for all tests."""
    return bomb()


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
        lambda: bytes(numcodecs.CRC32C(location="end").encode(made(V2["zlib"][1]))),
    ),
    "gzip in gzip": ([GzipCodec(), GzipCodec()], lambda: gzip.compress(made(V2["gzip"][1]))),
    "lzma": ([{"name": "numcodecs.lzma", "configuration": {"preset": 0}}], V2["lzma"][1]),
    "gzip behind a shuffle": (
        [{"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}, GzipCodec()],
        V2["gzip"][1],
    ),
    "gzip in zstd": (
        [GzipCodec(), ZstdCodec()],
        lambda: bytes(numcodecs.Zstd().encode(gzip.compress(bytes(1 << 26), 1))),
    ),
}
warns = pytest.mark.filterwarnings("ignore:Numcodecs codecs", "ignore:Combining a `sharding")


def of_files(path: Path) -> ps.Dataset:
    return ps.from_files(path)


def of_open_array(path: Path) -> ps.Dataset:
    return ps.from_arrays(zarr.open_array(path, mode="r"))


opened = pytest.mark.parametrize("read", [of_files, of_open_array])


def refused(path: Path, read: Callable[[Path], ps.Dataset]) -> None:
    """Check that reading is refused by name, and takes little memory; other chunks are good."""
    tracemalloc.start()
    try:
        what = (
            r"a\.zarr/(c/)?0[./]0.*(the chunk at \(0, 0\): it|bytes (or more )?to be read at once)"
        )
        with pytest.raises(DataError, match=what):
            list(read(path).with_options(threads=0))
        found = list(read(path).skip(8).with_options(threads=0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, VALUES[8:])
    assert peak < 32 << 20


@warns
@pytest.mark.parametrize("name", V2)
@opened
def test_a_bomb_of_version_2_is_not_unpacked(tmp_path: Path, name: str, read: Any) -> None:
    compressor, bomb = V2[name]
    options: Any = {"chunks": (8, WIDTH), "zarr_format": 2, "compressors": compressor}
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, **options)
    np.testing.assert_array_equal(list(read(tmp_path / "a.zarr")), VALUES)
    (tmp_path / "a.zarr" / "0.0").write_bytes(made(bomb))
    refused(tmp_path / "a.zarr", read)


@warns
@pytest.mark.parametrize("name", V3)
@opened
def test_a_bomb_of_version_3_is_not_unpacked(tmp_path: Path, name: str, read: Any) -> None:
    compressors, bomb = V3[name]
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(8, WIDTH), compressors=compressors)
    np.testing.assert_array_equal(list(read(tmp_path / "a.zarr")), VALUES)
    (tmp_path / "a.zarr" / "c" / "0" / "0").write_bytes(made(bomb))
    refused(tmp_path / "a.zarr", read)


@opened
def test_a_bomb_among_filters_is_not_unpacked(tmp_path: Path, read: Any) -> None:
    filters = [numcodecs.Delta("<f4"), numcodecs.Zlib()]
    options: Any = {"chunks": (8, WIDTH), "zarr_format": 2, "compressors": numcodecs.GZip()}
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, filters=filters, **options)
    np.testing.assert_array_equal(list(read(tmp_path / "a.zarr")), VALUES)
    (tmp_path / "a.zarr" / "0.0").write_bytes(gzip.compress(made(V2["zlib"][1])))
    refused(tmp_path / "a.zarr", read)


def shard_of(chunks: list[bytes], where: str) -> bytes:
    index_nbytes = 16 * len(chunks)
    starts = np.cumsum([0, *map(len, chunks)])[:-1] + (index_nbytes if where == "start" else 0)
    index = np.array([starts, list(map(len, chunks))], "<u8").T.tobytes()
    return index + b"".join(chunks) if where == "start" else b"".join(chunks) + index


def sharding(chunk_rows: int, codecs: Any, where: Any) -> Any:
    return ShardingCodec(
        chunk_shape=(chunk_rows, WIDTH),
        codecs=codecs,
        index_location=where,
        index_codecs=[BytesCodec()],
    )


@warns
@opened
@pytest.mark.parametrize(
    ("where", "is_nested", "is_packed_again", "name"),
    [
        ("start", False, False, "gzip"),
        ("end", False, False, "blosc"),
        ("end", False, True, "zstd"),
        ("start", True, False, "gzip"),
        ("end", True, True, "gzip"),
        ("end", True, False, "zstd"),
    ],
)
def test_a_bomb_in_a_shard_is_not_unpacked(
    tmp_path: Path, read: Any, where: str, name: str, *, is_nested: bool, is_packed_again: bool
) -> None:
    compressors, bomb = V3[name]
    path = tmp_path / "a.zarr"
    codec = sharding(2, [BytesCodec(), *compressors], where)
    shard = shard_of(4 * [made(bomb)], where)
    if is_nested:
        codec = sharding(4, [codec], where)
        shard = shard_of(2 * [shard_of(2 * [made(bomb)], where)], where)
    options: Any = {"serializer": codec, "compressors": [GzipCodec()] if is_packed_again else None}
    zarr.create_array(path, data=VALUES, chunks=(8, WIDTH), **options)
    np.testing.assert_array_equal(list(read(path)), VALUES)
    (path / "c" / "0" / "0").write_bytes(gzip.compress(shard, 1) if is_packed_again else shard)
    refused(path, read)


@opened
def test_no_more_of_a_shard_is_read_at_once_than_a_chunk_may_have(
    tmp_path: Path, read: Any
) -> None:
    path = tmp_path / "a.zarr"
    values = np.ones((1024, 1 << 16), np.uint8)
    codec = ShardingCodec(chunk_shape=(1, 1 << 16), index_codecs=[BytesCodec()])
    options: Any = {"serializer": codec, "compressors": None}
    zarr.create_array(path, data=values, chunks=values.shape, **options)
    with (path / "c" / "0" / "0").open("wb") as file:  # Chunks of 900 MB, in a file full of holes.
        file.truncate(1 << 30)
        file.seek(0, 2)
        file.write(np.array(1024 * [[0, 900 << 20]], "<u8").tobytes())
    with pytest.raises(
        DataError, match=r"c/0/0: .*943718400 bytes .*there can be at most 16842752"
    ):
        list(read(path).take(1))


@opened
def test_a_file_too_large_for_its_chunk_is_not_read(tmp_path: Path, read: Any) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=VALUES, chunks=(8, WIDTH), compressors=None)
    with (tmp_path / "a.zarr" / "c" / "0" / "0").open("r+b") as file:
        file.truncate(1 << 33)
    with pytest.raises(DataError, match=r"0/0: .*bytes .*to be read at once, where there can be"):
        list(read(tmp_path / "a.zarr"))


def change_metadata(path: Path, change: Callable[[Any], None]) -> None:
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


@opened
@pytest.mark.parametrize("shape", [[8, 1 << 27], [1 << 17, WIDTH]])
def test_chunks_that_go_far_past_the_edge_are_part_of_the_plan(
    tmp_path: Path, read: Any, shape: list[int]
) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=VALUES, chunks=(8, WIDTH), compressors=[GzipCodec()])
    change_metadata(
        path / "zarr.json",
        lambda found: found["chunk_grid"]["configuration"].update(chunk_shape=shape),
    )
    with pytest.raises(ps.BudgetError, match=r"needs at least \d+\.\d+ GB"):
        list(read(path).with_options(memory=100_000_000))


@opened
def test_a_filter_that_makes_wide_values_is_refused(tmp_path: Path, read: Any) -> None:
    path = tmp_path / "a.zarr"
    filters = [numcodecs.AsType(encode_dtype="<f4", decode_dtype="<f4")]
    zarr.create_array(path, data=VALUES, chunks=(8, WIDTH), zarr_format=2, filters=filters)
    change_metadata(
        path / ".zarray", lambda found: found["filters"][0].update(decode_dtype="<U50000")
    )
    with pytest.raises(FieldError, match="values of 4 bytes, of which codec 'astype' makes values"):
        read(path)


@pytest.mark.parametrize("kind", ["memory", "zip", "fsspec"])
def test_an_open_array_is_read_from_any_store(tmp_path: Path, kind: str) -> None:
    stores: dict[str, Callable[[], Any]] = {
        "memory": zarr.storage.MemoryStore,
        "zip": lambda: zarr.storage.ZipStore(tmp_path / "a.zip", mode="w"),
        "fsspec": lambda: zarr.storage.FsspecStore.from_url(
            (tmp_path / "b.zarr").as_uri(), storage_options={"auto_mkdir": True}
        ),
    }
    if kind == "fsspec":
        pytest.importorskip("fsspec.implementations.asyn_wrapper")  # Zarr needs it for local files.
    store = stores[kind]()
    group = zarr.create_group(store)
    whole = group.create_array("deep/whole", data=VALUES, chunks=(3, 1000))
    sharded = group.create_array("sharded", data=VALUES, chunks=(2, WIDTH), shards=(4, WIDTH))
    for row, (one, other) in enumerate(ps.from_arrays((whole, sharded)).shuffle(seed=1).take(16)):
        np.testing.assert_array_equal(one, other, err_msg=str(row))
    np.testing.assert_array_equal(list(ps.from_arrays(whole)), VALUES)
    if kind == "memory":
        key = "deep/whole/c/0/0"
        store._store_dict[key] = store._store_dict[key].from_bytes(bytes(1 << 20))
        with pytest.raises(DataError, match=r"deep/whole/c/0/0.*to be read at once"):
            list(ps.from_arrays(whole))
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gzip", "lzma", "zstd of no known size"])
def test_a_bomb_of_gigabytes_is_refused_in_a_container(tmp_path: Path, name: str) -> None:
    """The chunk may have 8 MB, and has 2 GB."""
    path = tmp_path / "a.zarr"
    compressor, bomb = V2[name]
    values = np.zeros((16, 1 << 20), "u1")
    options: Any = {"chunks": (8, 1 << 20), "zarr_format": 2, "compressors": compressor}
    zarr.create_array(path, data=values, config={"write_empty_chunks": True}, **options)
    packed = made(bomb) if name == "zstd of no known size" else 32 * made(bomb)
    if name == "zstd of no known size":
        body = packed[6:-4] * 32
        packed = packed[:6] + body + packed[-4:]
    (path / "0.0").write_bytes(packed)
    for expression in (
        f"ps.from_files({str(path)!r})",
        f"ps.from_arrays(zarr.open_array({str(path)!r}))",
    ):
        found = read_in_a_cgroup(expression, setup="import zarr")
        assert "0.0, row 0: rows 0 to 8 can't be decoded: the chunk at (0, 0): it" in found


@warns
@pytest.mark.parametrize("name", V3)
def test_what_zarr_wrote_passes(tmp_path: Path, name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (1000, 33), np.uint8)
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=noise, chunks=(999, 32), compressors=V3[name][0])
    np.testing.assert_array_equal(list(ps.from_files(path)), noise)
