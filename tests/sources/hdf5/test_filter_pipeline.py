"""The filters of HDF5, undone here as h5py does it; and chunks that would unpack to far more than they may hold."""

import itertools
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.sources.hdf5.types import integer

import penstock as ps
from penstock.errors import DataError
from penstock.sources.hdf5.filter_pipeline import Filters, PackedError, filters_of

KNOWN = [
    {"compression": compression, "shuffle": shuffle, "fletcher32": fletcher32}
    for compression in (None, "gzip", "lzf")
    for shuffle in (False, True)
    for fletcher32 in (False, True)
    if compression or shuffle or fletcher32
]


def in_memory() -> Any:
    return h5py.File("in-memory.h5", "w", driver="core", backing_store=False)


@settings(deadline=None)
@given(
    st.sampled_from(KNOWN),
    st.sampled_from(["u1", "<i2", ">f4", "f8", "S3", "c16", [("a", "u1"), ("b", "<f4")]]),
    st.tuples(st.integers(1, 40), st.integers(1, 9)),
    st.tuples(st.integers(1, 40), st.integers(1, 9)),
    st.data(),
)
def test_chunks_are_unpacked_as_h5py_does(options, dtype, shape, chunks, data):
    chunks = tuple(map(min, chunks, shape))
    values = data.draw(arrays.arrays(np.dtype(dtype), shape, fill=st.nothing()))
    with in_memory() as file:
        dataset = file.create_dataset("x", data=values, chunks=chunks, **options)
        filters = filters_of(dataset)
        file.flush()
        for corner in itertools.product(*map(range, (0, 0), shape, chunks)):
            mask, packed = dataset.id.read_direct_chunk(corner)
            found = filters.unpacked(packed, mask).view(dtype).reshape(chunks)
            place = tuple(map(slice, corner, map(sum, zip(corner, chunks, strict=True))))
            wanted = dataset[place]
            found = found[: wanted.shape[0], : wanted.shape[1]]
            assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("options", KNOWN, ids=str)
@pytest.mark.parametrize("dtype", ["f4", ">i2", "u1", [("a", "u1"), ("b", "<f8")]], ids=str)
def test_rows_are_those_of_h5py_whatever_was_written(tmp_path: Path, options: Any, dtype: Any):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        x = file.create_dataset("x", (100, 7), dtype, chunks=(30, 3), **options)
        x[10:70] = np.random.default_rng(0).integers(0, 9, (60, 7)).astype(dtype)  # Others: never.
        # Left out of one chunk: bit 0 is the first filter.
        x.id.write_direct_chunk((90, 0), bytes(90 * x.dtype.itemsize), filter_mask=0b111)
    with h5py.File(tmp_path / "a.h5") as file:
        wanted = file["x"][:]
        opened = ps.from_arrays({"x": file["x"]})
        for ds in (ps.from_files(tmp_path / "a.h5"), opened):
            np.testing.assert_array_equal([row["x"] for row in ds], wanted)
            np.testing.assert_array_equal([row["x"] for row in ds.skip(25).take(50)], wanted[25:75])


def lzf_bomb(nbytes: int) -> bytes:
    """A zero, repeated."""
    return b"\x00\x00" + bytes([7 << 5, 255, 0]) * (nbytes // 264)


def write_bomb(path: Path, bomb: bytes, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (100, 4096), chunks=(10, 4096), **{"dtype": "f4", **options})
        x[:] = 1
        x.id.write_direct_chunk((50, 0), bomb)


def deflated(count: int) -> bytes:
    return zlib.compress(bytes(count), 1)


BOMBS: dict[str, tuple[Any, bytes]] = {
    "gzip": ({"compression": "gzip"}, deflated(1 << 27)),
    "gzip in gzip": ({"compression": "gzip"}, zlib.compress(deflated(1 << 27))),
    "shuffled gzip": ({"compression": "gzip", "shuffle": True}, deflated(1 << 27)),
    "checked gzip": ({"compression": "gzip", "fletcher32": True}, deflated(1 << 27) + bytes(4)),
    "lzf": ({"compression": "lzf"}, lzf_bomb(1 << 24)),
    "gzip of numbers that HDF5 converts": ({"compression": "gzip"}, deflated(1 << 27)),
    "scale and offset": (
        {"scaleoffset": 2, "dtype": "f4", "compression": "gzip"},
        deflated(1 << 27),
    ),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("way", ["files", "arrays"])
def test_a_bomb_is_not_unpacked(tmp_path: Path, name: str, way: str) -> None:
    options, bomb = BOMBS[name]
    path = tmp_path / "a.h5"
    if "converts" in name:
        options = {**options, "dtype": h5py.Datatype(integer(2, 12))}
    write_bomb(path, bomb, **options)
    ds = ps.from_files(path, fields="x") if way == "files" else ps.from_arrays(h5py.File(path)["x"])
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"a\.h5, row 50: rows 50 to 60 can't be decoded.*'x'"):
            list(ds.with_options(threads=0).batch(10))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20
    if way == "files":
        assert len(list(ds.with_options(on_error="skip", threads=0))) == 90


@pytest.mark.parametrize("code", [4, 5, 6, 32001, 32004, 32026])
def test_what_a_filter_of_others_claims_is_compared(code: int) -> None:
    claim = {32004: (1 << 33).to_bytes(8, "big")}.get(code, b"\xff" * 16)
    filters = Filters(((code, (0, 0, 1 << 20, 0, 1 << 10)),), 4096)
    with pytest.raises(PackedError, match="claims to unpack to"):
        filters.check(claim + bytes(16), 0)
    filters.check(claim + bytes(16), 1)  # It was left out.
    Filters(((code, (0, 0, 1024, 0, 4)),), 4096).check(bytes(64), 0)


@pytest.mark.parametrize(
    ("steps", "packed", "problem"),
    [
        (((1, (4,)),), zlib.compress(bytes(100))[:-6], "cut off"),
        (((1, (4,)),), b"no zlib at all", "damaged"),
        (((1, (4,)),), zlib.compress(bytes(99)), "unpacks to 99 bytes, and must have 100"),
        (((2, ()),), bytes(100), "shuffled by values of 0 bytes"),
        (((3, ()),), bytes(3), "too short for its checksum"),
        (((3, ()),), bytes(100) + b"\1\0\0\0", "checksum"),
        (((32000, ()),), b"\x20", "LZF bytes are damaged or cut off"),
    ],
)
def test_damage_is_told(steps: Any, packed: bytes, problem: str) -> None:
    with pytest.raises(PackedError, match=problem):
        Filters(steps, 100).unpacked(packed, 0)
