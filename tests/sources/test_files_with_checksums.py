"""Every format that has checksums: one byte that changed is an error that names the file."""

import gzip
import inspect
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numcodecs
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from tests.conformance import run

import penstock as ps
from penstock.errors import DataError

NUM_ROWS = 2000
X = np.random.default_rng(0).integers(0, 256, (NUM_ROWS, 64), np.uint8)
Y = np.arange(NUM_ROWS)


def parquet(path: Path, **options: Any) -> None:
    table = pa.table({"y": Y, "z": Y * 0.5, "text": [f"text {number}" for number in Y]})
    more = {"use_dictionary": False, "compression": "none"} | options
    pq.write_table(table, path, write_page_checksum=True, row_group_size=500, **more)


def hdf5(path: Path, **options: Any) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=X, chunks=(100, 64), fletcher32=True, **options)


def zarr_of(version: int, codec: Any, **options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        array = zarr.create_array(
            str(path),
            shape=X.shape,
            dtype=X.dtype,
            chunks=(100, 64),
            zarr_format=version,
            compressors=codec,
            **options,
        )
        array[:] = X

    return write


def records() -> bytes:
    from penstock._native import tfrecord_frame

    offsets = np.arange(NUM_ROWS + 1) * 64
    return bytes(tfrecord_frame(X.tobytes(), offsets))


def written(path: Path) -> None:
    ps.from_arrays({"x": X, "y": Y}).write(path)


class Kind(NamedTuple):
    name: str
    write: Callable[[Path], None]
    inside: str = ""
    """The file in it that is damaged, where it is a folder."""
    can_read_on: bool = True
    """Whether verify=False reads damaged bytes; the libraries of some formats always check."""


KINDS = {
    "written": Kind("out", written, inside="x-00000.npy"),
    "stored npz": Kind("a.npz", lambda path: np.savez(path, x=X, y=Y)),
    "stored npz, Fortran": Kind("a.npz", lambda path: np.savez(path, x=np.asfortranarray(X))),
    "deflated npz": Kind("a.npz", lambda path: np.savez_compressed(path, x=X, y=Y)),
    "Parquet": Kind("a.parquet", parquet),
    "Parquet, packed": Kind(
        "a.parquet",
        lambda path: parquet(path, compression="snappy", use_dictionary=True),
        can_read_on=False,  # What is damaged may not unpack.
    ),
    "HDF5": Kind("a.h5", hdf5, can_read_on=False),
    "HDF5, packed": Kind("a.h5", lambda path: hdf5(path, compression="lzf"), can_read_on=False),
    "Zarr 3": Kind("a.zarr", zarr_of(3, zarr.codecs.Crc32cCodec()), "c/7/0", can_read_on=False),
    "Zarr 3, shards": Kind(
        "a.zarr",
        zarr_of(3, zarr.codecs.Crc32cCodec(), shards=(1000, 64)),
        "c/1/0",
        can_read_on=False,
    ),
    "Zarr 2": Kind("a.zarr", zarr_of(2, numcodecs.CRC32()), "7.0", can_read_on=False),
    "TFRecord": Kind("a.tfrecord", lambda path: path.write_bytes(records()) and None),
    "TFRecord, GZIP": Kind(
        "a.tfrecord",
        lambda path: path.write_bytes(gzip.compress(records(), 0)) and None,
        can_read_on=False,
    ),
    "TFRecord, ZLIB": Kind(
        "a.tfrecord",
        lambda path: path.write_bytes(zlib.compress(records(), 0)) and None,
        can_read_on=False,
    ),
}
WAYS = {"forward": lambda ds: ds, "shuffled": lambda ds: ds.shuffle(seed=1, window=60_000)}


def opened(path: Path, **options: Any) -> ps.Dataset:
    if path.suffix == ".tfrecord":
        return ps.from_tfrecord(path, raw=True, index=False, **options)
    return ps.from_files(path, **options)


def places(kind: Kind, path: Path) -> list[int]:
    """Return bytes of data, at the beginning, in the middle and at the end."""
    if kind.name == "a.h5":  # Some of its file is unused.
        with h5py.File(path) as file:
            chunks = [file["x"].id.get_chunk_info(number) for number in (0, 10, 19)]
        return [int(one.byte_offset) + one.size // 2 for one in chunks]
    size = path.stat().st_size
    if kind.name == "a.parquet":  # Between its pages there are headers, and at its end an index.
        columns = [pq.read_metadata(path).row_group(group).column(0) for group in (0, 2, 3)]
        return [one.data_page_offset + one.total_compressed_size // 2 for one in columns]
    return [440, size // 2 + 40, size * 9 // 10 + 40]  # In the middle of records.


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", KINDS)
def test_a_changed_byte_is_an_error_that_names_the_file(tmp_path, name, way):
    kind = KINDS[name]
    path = tmp_path / kind.name
    kind.write(path)
    assert len(run(WAYS[way](opened(path)))) == NUM_ROWS
    file = path / kind.inside if kind.inside else path
    content = file.read_bytes()
    for at in places(kind, file):
        changed = bytearray(content)
        changed[at] ^= 2
        file.write_bytes(changed)
        with pytest.raises(DataError) as caught:
            run(WAYS[way](opened(path)))
        assert kind.name in caught.value.file
        if kind.can_read_on:
            assert len(run(WAYS[way](opened(path, verify=False)))) == NUM_ROWS


@pytest.mark.parametrize("name", [name for name in KINDS if "GZIP" in name or "ZLIB" in name])
def test_packed_records_that_are_cut_off_are_an_error(tmp_path, name):
    path = tmp_path / KINDS[name].name
    KINDS[name].write(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"a\.tfrecord.*cut off"):
        run(opened(path))


def test_verify_makes_no_difference_to_order_and_states(tmp_path):
    written(tmp_path / "out")
    datasets = [
        ps.from_files(tmp_path / "out", verify=verify).shuffle(seed=3).batch(8)
        for verify in (True, False)
    ]
    with datasets[0].stream() as stream:
        next(stream)
        state = stream.state()
        expected = next(stream)["y"]
    with datasets[1].stream(state=state) as stream:
        assert (next(stream)["y"] == expected).all()


def test_verify_is_the_same_argument_everywhere():
    for function in (ps.from_files, ps.from_tfrecord):
        parameter = inspect.signature(function).parameters["verify"]
        assert parameter.default is True
        assert parameter.kind is parameter.KEYWORD_ONLY
