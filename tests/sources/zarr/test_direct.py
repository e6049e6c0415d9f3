"""Chunks that are read and unpacked here are what Zarr reads; all others are left to Zarr."""

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import run
from zarr.codecs import (
    BloscCodec,
    BytesCodec,
    Crc32cCodec,
    GzipCodec,
    ShardingCodec,
    TransposeCodec,
    ZstdCodec,
)

import penstock as ps
from penstock.errors import DataError
from penstock.sources.zarr import bounded
from penstock.sources.zarr.direct import recipe_of

NUMBERS = np.arange(600, dtype="f4").reshape(50, 4, 3)
PACKERS: dict[str, Any] = {
    "as they are": None,
    "zstd": [ZstdCodec()],
    "zstd with its checksum": [ZstdCodec(checksum=True)],
    "gzip": [GzipCodec()],
    "blosc": [BloscCodec(cname="lz4", shuffle="shuffle")],
    "crc32c": [Crc32cCodec()],
    "zstd, crc32c": [ZstdCodec(), Crc32cCodec()],
    "crc32c, gzip": [Crc32cCodec(), GzipCodec()],
}
V2_PACKERS = (
    None,
    numcodecs.Zstd(),
    numcodecs.Blosc(),
    numcodecs.GZip(),
    numcodecs.Zlib(),
    numcodecs.LZ4(),
    numcodecs.BZ2(),
)
CHUNKS = ((7, 4, 3), (7, 3, 2), (1, 4, 3), (50, 1, 1), (60, 5, 4))


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zarr reads no chunks."""

    def fails(*_: Any) -> None:
        raise AssertionError("Zarr was asked")

    monkeypatch.setattr(bounded.ByZarr, "read", fails)


def check(path: Path) -> None:
    """Compare with what Zarr reads: in order, from the middle on, shuffled, and of an open array."""
    array = zarr.open_array(path, mode="r")
    wanted = array[:]
    ds = ps.from_files(path)
    np.testing.assert_array_equal(np.stack(run(ds)), wanted)
    np.testing.assert_array_equal(np.concatenate(run(ds.skip(3).batch(16))), wanted[3:])
    for numbers, found in ds.enumerate().shuffle(seed=1, window="1KB").batch(7):
        np.testing.assert_array_equal(found, wanted[numbers])
    np.testing.assert_array_equal(np.stack(run(ps.from_arrays(array))), wanted)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("name", PACKERS)
def test_version_3_is_what_zarr_reads(tmp_path: Path, name: str, chunks: Any) -> None:
    for endian, dtype in (("little", "f4"), ("big", "f4"), ("little", "u1"), ("big", "c16")):
        options = {"chunks": chunks, "compressors": PACKERS[name], "overwrite": True}
        serializer = BytesCodec(endian=endian)
        data = NUMBERS.astype(dtype)
        zarr.create_array(tmp_path / "a.zarr", data=data, serializer=serializer, **options)
        check(tmp_path / "a.zarr")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("packer", V2_PACKERS, ids=repr)
def test_version_2_is_what_zarr_reads(tmp_path: Path, packer: Any, chunks: Any) -> None:
    for order, dtype in (("C", "<f4"), ("F", ">f4"), ("F", "u1"), ("C", "?")):
        options = {"chunks": chunks, "compressors": packer, "order": order, "overwrite": True}
        data = NUMBERS.astype(dtype)
        zarr.create_array(tmp_path / "a.zarr", data=data, zarr_format=2, **options)
        check(tmp_path / "a.zarr")


@pytest.mark.usefixtures("alone")
@given(st.data())
def test_axes_in_any_order_are_put_right(tmp_path_factory: Any, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("orders") / "a.zarr"
    orders = data.draw(st.lists(st.permutations(range(3)), min_size=1, max_size=2))
    filters = [TransposeCodec(order=order) for order in orders]
    options = {"filters": filters, "chunks": data.draw(st.sampled_from(CHUNKS))}
    zarr.create_array(path, data=NUMBERS, **options)
    np.testing.assert_array_equal(np.stack(run(ps.from_files(path))), NUMBERS)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("place", ["start", "end"])
@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize("chunks", [(7, 4, 3), (5, 2, 3), (1, 4, 1)])
def test_shards_are_what_zarr_reads(
    tmp_path: Path, chunks: Any, place: Any, is_checked: bool
) -> None:
    index = [BytesCodec(), Crc32cCodec()] if is_checked else [BytesCodec()]
    codec = ShardingCodec(
        chunk_shape=chunks,
        codecs=[BytesCodec(), ZstdCodec(), Crc32cCodec()],
        index_codecs=index,
        index_location=place,
    )
    shards = (3 * chunks[0], 4, 3)
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=NUMBERS.shape,
        dtype="f4",
        chunks=shards,
        serializer=codec,
        compressors=None,
        fill_value=5,
    )
    array[: 2 * chunks[0]] = NUMBERS[: 2 * chunks[0]]  # The rest was never written.
    array[45:] = NUMBERS[45:]
    check(tmp_path / "a.zarr")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fill", [5, np.nan, None])
def test_chunks_that_are_missing_have_the_fill_value(
    tmp_path: Path, version: Any, fill: Any
) -> None:
    options = {"shape": (20, 2), "chunks": (7, 1), "dtype": "f4", "zarr_format": version}
    array = zarr.create_array(tmp_path / "a.zarr", fill_value=fill, **options)
    array[7:14, 1] = 3
    check(tmp_path / "a.zarr")


@pytest.mark.filterwarnings("ignore:Numcodecs codecs")
@pytest.mark.parametrize(
    "options",
    [
        {"zarr_format": 2, "filters": [numcodecs.Delta("f4")]},
        {"compressors": [{"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}]},
    ],
)
def test_what_only_zarr_can_undo_is_left_to_it(tmp_path: Path, options: Any) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=NUMBERS, chunks=(7, 4, 3), **options)
    assert recipe_of(zarr.open_array(tmp_path / "a.zarr", mode="r")) is None
    check(tmp_path / "a.zarr")


@pytest.mark.parametrize(
    "read", [ps.from_files, lambda path: ps.from_arrays(zarr.open_array(path))]
)
def test_a_checksum_that_is_wrong_is_told_with_the_chunk_and_its_rows(
    tmp_path: Path, read: Any
) -> None:
    path = tmp_path / "a.zarr"
    zarr.create_array(path, data=NUMBERS, chunks=(7, 4, 3), compressors=[Crc32cCodec()])
    chunk = path / "c" / "2" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[20] ^= 1
    chunk.write_bytes(content)
    what = r"a\.zarr/c/2/0/0, row 14: rows 14 to 21 can't be decoded: the chunk at \(14, 0, 0\): its checksum"
    with pytest.raises(DataError, match=what):
        run(read(path))
    good = run(ps.from_files(path).with_options(on_error="skip"))
    np.testing.assert_array_equal(np.stack(good), np.delete(NUMBERS, range(14, 21), axis=0))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]), "checksum"),
        (lambda whole: whole[:20], "its index has 20 bytes, and must have 52"),
        (lambda whole: whole[80:], "past the end"),
    ],
)
def test_a_shard_that_is_damaged_is_told(tmp_path: Path, content: Any, problem: str) -> None:
    options = {"chunks": (5, 4, 3), "shards": (15, 4, 3), "compressors": None}
    zarr.create_array(tmp_path / "a.zarr", data=NUMBERS, **options)
    shard = tmp_path / "a.zarr" / "c" / "1" / "0" / "0"
    shard.write_bytes(content(shard.read_bytes()))
    with pytest.raises(DataError, match=rf"c/1/0/0, row \d+: rows \d+ to \d+ can't.*{problem}"):
        run(ps.from_files(tmp_path / "a.zarr"))
