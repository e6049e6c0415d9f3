"""Zarr stores of both versions: codecs, checksums, shards and metadata that is in one place."""

from functools import partial
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import zarr
from numcodecs.abc import Codec
from tests.sources.mutations.kind import CHUNK, LENGTH, NUMBERS, TEXTS, Cover, Kind, X
from zarr.codecs import numcodecs as more


def zarr_of(version: int, path: Path, *, consolidated: bool = False, **options: Any) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    group.create_array("x", data=X, chunks=(CHUNK, 12), **options)
    group.create_array("y", data=NUMBERS, chunks=(50,))
    if consolidated:
        zarr.consolidate_metadata(group.store)


def zarr_texts(version: int, path: Path) -> None:
    group = zarr.open_group(path, mode="w", zarr_format=version)
    array = group.create_array("s", shape=(LENGTH,), chunks=(CHUNK,), dtype="U8")
    array[:] = np.array(TEXTS, "U8")


def zarr_records(path: Path) -> None:
    """One array that is no group's, of records in the order of Fortran."""
    records = np.zeros((LENGTH, 3), [("a", "<i2"), ("b", ">f8"), ("c", "S5")])
    records["a"] = NUMBERS[:, None]
    array = zarr.create_array(
        path,
        shape=records.shape,
        dtype=records.dtype,
        chunks=(CHUNK, 2),
        order="F",
        zarr_format=2,
        compressors=numcodecs.Blosc("zlib"),
    )
    array[:] = records


def chunks_of_zarr(path: Path) -> Cover:
    names = ("zarr.json", ".zarray", ".zattrs")
    files = [one for one in (path / "x").rglob("*") if one.is_file() and one.name not in names]
    return {str(one.relative_to(path)): [(0, one.stat().st_size)] for one in files}


def zarr_2(codec: Codec, **options: Any) -> Kind:
    return Kind("a.zarr", partial(zarr_of, 2, compressors=codec, **options))


def zarr_2_with_sum(codec: Codec) -> Kind:
    return Kind("a.zarr", partial(zarr_of, 2, compressors=codec), covered=chunks_of_zarr)


def zarr_3(codec: Any, **options: Any) -> Kind:
    return Kind("a.zarr", partial(zarr_of, 3, compressors=codec, **options))


def zarr_3_with_sum(codec: Any, **options: Any) -> Kind:
    write = partial(zarr_of, 3, compressors=codec, **options)
    return Kind("a.zarr", write, covered=chunks_of_zarr)


crc = zarr.codecs.Crc32cCodec()
KINDS = {
    "zarr 3": Kind("a.zarr", partial(zarr_of, 3)),
    "zarr 3, gzip": zarr_3(zarr.codecs.GzipCodec()),
    "zarr 3, crc32c": zarr_3_with_sum(crc),
    "zarr 3, shards": Kind("a.zarr", partial(zarr_of, 3, shards=(96, 12))),
    "zarr 3, texts": Kind("a.zarr", partial(zarr_texts, 3)),
    "zarr 3, consolidated": Kind("a.zarr", partial(zarr_of, 3, consolidated=True)),
    "zarr 3, blosc": zarr_3(zarr.codecs.BloscCodec(cname="zstd")),
    "zarr 3, blosc, crc32c": zarr_3_with_sum((zarr.codecs.BloscCodec(cname="lz4"), crc)),
    "zarr 3, shards, crc32c": zarr_3_with_sum((zarr.codecs.GzipCodec(), crc), shards=(96, 12)),
    "zarr 3, zstd, checksum": zarr_3_with_sum(zarr.codecs.ZstdCodec(checksum=True)),
    # These codecs are made when they are needed: Zarr warns of each.
    "zarr 3, lz4": Kind("a.zarr", lambda path: zarr_of(3, path, compressors=more.LZ4())),
    "zarr 3, bz2": Kind(
        "a.zarr", lambda path: zarr_of(3, path, compressors=more.BZ2()), covered=chunks_of_zarr
    ),
    "zarr 3, delta, fletcher32": Kind(
        "a.zarr",
        lambda path: zarr_of(
            3, path, compressors=more.Fletcher32(), filters=more.Delta(dtype="<f4")
        ),
        covered=chunks_of_zarr,
    ),
    "zarr 2": Kind("a.zarr", partial(zarr_of, 2)),
    "zarr 2, zlib": zarr_2(numcodecs.Zlib()),
    "zarr 2, texts": Kind("a.zarr", partial(zarr_texts, 2)),
    "zarr 2, consolidated": Kind("a.zarr", partial(zarr_of, 2, consolidated=True)),
    "zarr 2, adler32": zarr_2_with_sum(numcodecs.Zlib()),
    "zarr 2, gzip": zarr_2_with_sum(numcodecs.GZip()),
    "zarr 2, bz2": zarr_2_with_sum(numcodecs.BZ2()),
    "zarr 2, lzma": zarr_2_with_sum(numcodecs.LZMA()),
    "zarr 2, lz4": zarr_2(numcodecs.LZ4()),
    "zarr 2, zstd": zarr_2(numcodecs.Zstd()),
    "zarr 2, blosc": zarr_2(numcodecs.Blosc("blosclz")),
    "zarr 2, blosc, delta": zarr_2(
        numcodecs.Blosc("lz4hc", shuffle=numcodecs.Blosc.BITSHUFFLE),
        filters=numcodecs.FixedScaleOffset(0, 1, "<f4", "<i2"),
    ),
    "zarr 2, crc32": zarr_2_with_sum(numcodecs.CRC32()),
    "zarr 2, records": Kind("a.zarr", zarr_records),
}
