"""Packers undone within bounds: what comes out is what numcodecs makes of it, or an error."""

import bz2
import gzip
import lzma
import random
import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest

from penstock.sources.zarr.packed import PACKERS, PackedError, unpack

PACKED: dict[str, tuple[Any, Any]] = {
    "gzip": (numcodecs.GZip(), gzip.compress),
    "zlib": (numcodecs.Zlib(), zlib.compress),
    "bz2": (numcodecs.BZ2(), bz2.compress),
    "lzma": (numcodecs.LZMA(), lzma.compress),
    "blosc": (numcodecs.Blosc(), numcodecs.Blosc().encode),
    "lz4": (numcodecs.LZ4(), numcodecs.LZ4().encode),
    "zstd": (numcodecs.Zstd(), numcodecs.Zstd().encode),
}
DATA = np.arange(5000, dtype="<u4").tobytes()


def undone(name: str, packed: bytes, most: int = 1 << 20, **config: Any) -> bytes:
    return bytes(unpack({"id": name, **config}, np.frombuffer(packed, np.uint8), most))


def test_every_packer_is_in_the_table() -> None:
    assert PACKED.keys() == PACKERS.keys()


@pytest.mark.parametrize("name", PACKED)
def test_a_chunk_may_be_just_as_large_as_it_may_be(name: str) -> None:
    packed = bytes(PACKED[name][1](DATA))
    assert undone(name, packed, len(DATA)) == DATA
    with pytest.raises(PackedError, match=f"it (unpacks|claims to unpack) to .* {len(DATA) - 1}"):
        undone(name, packed, len(DATA) - 1)


@pytest.mark.parametrize("name", PACKED)
def test_what_is_damaged_is_refused_or_is_what_numcodecs_makes_of_it(name: str) -> None:
    codec, compress = PACKED[name]
    whole = bytes(compress(DATA))
    rng = random.Random(name)
    cases = [whole[: rng.randrange(len(whole))] for _ in range(20)]
    for _ in range(60):
        changed = bytearray(whole)
        changed[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
        cases.append(bytes(changed))
    cases += [whole + b"tail", whole + bytes(100)]
    for case in cases:
        try:
            found = undone(name, case)
        except PackedError:
            continue
        # A tail that is no stream is left alone, whatever numcodecs says of it.
        assert found == DATA or found == bytes(codec.decode(case))


@pytest.mark.parametrize("name", ["gzip", "bz2", "lzma"])
def test_streams_that_follow_each_other_are_one(name: str) -> None:
    compress = PACKED[name][1]
    packed = compress(DATA) + 2000 * compress(b"") + compress(DATA)
    assert undone(name, packed) == DATA + DATA
    with pytest.raises(PackedError, match="unpacks to more than 20001 bytes"):
        undone(name, packed, len(DATA) + 1)


def test_lzma_without_a_header_is_unpacked_by_its_filters() -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
    packed = lzma.compress(DATA, lzma.FORMAT_RAW, filters=filters)
    assert undone("lzma", packed, format=lzma.FORMAT_RAW, filters=filters) == DATA
