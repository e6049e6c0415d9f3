"""Zarr: versions 2 and 3, chunks of any shape, shards, folders and URLs."""

import shutil
from pathlib import Path

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.conformance import assert_same, run
from tests.sources.formats import Columns, FormatSuite, as_nobody, assert_names, rows_of, sample

import penstock as ps
from penstock.errors import AccessError, DataError


class TestVersion3(FormatSuite):
    suffix = ".zarr"
    is_folder = True
    version = 3

    def write(self, path: Path, columns: Columns) -> None:
        group = zarr.open_group(path, mode="w", zarr_format=self.version)
        for name, values in columns.items():
            chunks = (
                max(1, min(4096 if len(values) > 5000 else 10, len(values))),
                *values.shape[1:],
            )
            group.create_array(name, data=values, chunks=chunks)

    def test_a_file_that_is_cut_short_is_an_error(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.zarr", self.columns(40))
        for file in sorted((tmp_path / "a.zarr").rglob("*")):
            if file.is_file() and file.name != ".zattrs":
                data = file.read_bytes()
                file.write_bytes(data[: len(data) // 2])
                with pytest.raises(DataError, match=r"a\.zarr"):
                    run(self.open(tmp_path / "a.zarr").batch(16))
                file.write_bytes(data)

    def test_a_file_that_shrinks_while_it_is_read_is_an_error(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.zarr", self.columns(60_000))
        with self.open(tmp_path / "a.zarr").batch(100).with_options(threads=0).stream() as stream:
            next(stream)
            for file in (tmp_path / "a.zarr").rglob("*"):
                if file.is_file() and "json" not in file.name and not file.name.startswith(".z"):
                    file.write_bytes(file.read_bytes()[:20])
            with pytest.raises(DataError, match=r"a\.zarr"):
                list(stream)

    def test_damaged_bytes_give_rows_or_a_clear_error(self, tmp_path: Path) -> None:
        generator = np.random.default_rng(7)
        self.write(tmp_path / "a.zarr", self.columns(40))
        files = sorted(one for one in (tmp_path / "a.zarr").rglob("*") if one.is_file())
        for file in files * 3:
            data = bytearray(file.read_bytes())
            damaged = data.copy()
            if data:
                damaged[int(generator.integers(0, len(data)))] ^= 1 << int(generator.integers(0, 8))
            file.write_bytes(damaged)
            try:
                run(self.open(tmp_path / "a.zarr").batch(16).with_options(memory="64MB", threads=0))
            except (DataError, ps.PenstockError) as error:
                assert_names(error, "a.zarr")
            file.write_bytes(data)

    def test_a_file_that_may_not_be_read_is_an_error(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.zarr", self.columns(40))
        for one in [tmp_path / "a.zarr", *(tmp_path / "a.zarr").rglob("*")]:
            one.chmod(0o755)
        chunk = next(
            one
            for one in (tmp_path / "a.zarr" / "x").rglob("*")
            if one.is_file() and "0" in one.name
        )
        chunk.chmod(0)
        with as_nobody(tmp_path), pytest.raises(AccessError, match="chmod"):
            run(self.open(tmp_path / "a.zarr").batch(16))


class TestVersion2(TestVersion3):
    version = 2


@given(st.data(), st.sampled_from([2, 3]))
def test_every_dtype_and_chunk_shape_comes_back(data: st.DataObject, version: int) -> None:
    import tempfile

    dtype = data.draw(
        st.one_of(
            hnp.boolean_dtypes(),
            hnp.integer_dtypes(endianness="="),
            hnp.unsigned_integer_dtypes(endianness="="),
            hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
            hnp.complex_number_dtypes(endianness="=", sizes=(64, 128)),
        )
    )
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=7))
    chunks = tuple(data.draw(st.integers(1, size)) for size in shape)
    values = data.draw(hnp.arrays(dtype, shape))
    with tempfile.TemporaryDirectory() as folder:
        # Else a chunk of -0.0 is not written, and comes back as 0.0.
        options = {"zarr_format": version, "config": {"write_empty_chunks": True}}
        zarr.create_array(f"{folder}/a.zarr", data=values, chunks=chunks, **options)
        ds = ps.from_files(f"{folder}/a.zarr")
        assert_same(run(ds), list(values))
        assert_same(
            run(ds.shuffle(seed=1).batch(3)), run(ps.from_arrays(values).shuffle(seed=1).batch(3))
        )


@pytest.mark.parametrize("version", [2, 3])
def test_the_other_byte_order_keeps_its_numbers(tmp_path: Path, version: int) -> None:
    values = np.arange(10, dtype=">i4")
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(3,), zarr_format=version)
    assert np.concatenate(run(ps.from_files(tmp_path / "a.zarr").batch(4))).tolist() == list(
        range(10)
    )


def test_a_chunk_that_claims_to_unpack_to_more_is_refused(tmp_path: Path) -> None:
    zarr.create_array(
        tmp_path / "a.zarr",
        data=np.arange(1000),
        chunks=(1000,),
        zarr_format=2,
        compressors=numcodecs.Blosc(),
    )
    chunk = tmp_path / "a.zarr" / "0"
    data = bytearray(chunk.read_bytes())
    data[4:8] = (1 << 31).to_bytes(4, "little")
    chunk.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zarr/0.*unpack to 2147483648"):
        run(ps.from_files(tmp_path / "a.zarr"))


def test_shards_and_column_order_are_read(tmp_path: Path) -> None:
    values = np.arange(400.0).reshape(100, 4)
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(5, 2), shards=(20, 4))
    assert_same(
        run(ps.from_files(tmp_path / "a.zarr").batch(33)), run(ps.from_arrays(values).batch(33))
    )
    zarr.create_array(tmp_path / "f.zarr", data=values, chunks=(5, 2), zarr_format=2, order="F")
    assert_same(run(ps.from_files(tmp_path / "f.zarr")), list(values))


def test_groups_in_groups_go_by_path(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("train/x", data=np.arange(4))
    group.create_array("y", data=np.arange(4) * 2)
    assert run(ps.from_files(tmp_path / "a.zarr"))[1] == {"train/x": 1, "y": 2}
    assert run(ps.from_files(tmp_path / "a.zarr", ("train/x",)))[3] == (3,)
    with pytest.raises(DataError, match="no field 'z'"):
        ps.from_files(tmp_path / "a.zarr", "z")


def test_chunks_never_written_are_the_fill_value(tmp_path: Path) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr", shape=(10,), chunks=(2,), dtype="i4", fill_value=7
    )
    array[4:6] = 1
    assert run(ps.from_files(tmp_path / "a.zarr")) == [7, 7, 7, 7, 1, 1, 7, 7, 7, 7]


def test_a_folder_that_is_no_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(FileNotFoundError, match="no Zarr array or group here"):
        ps.from_files(tmp_path / "a.zarr")


def test_text_of_any_length_is_refused(tmp_path: Path) -> None:
    array = zarr.create_array(tmp_path / "a.zarr", shape=(3,), dtype=str, chunks=(3,))
    array[:] = np.array(["a", "bb", "c"])
    with pytest.raises(DataError, match=r"a\.zarr.*no fixed size.*fields="):
        ps.from_files(tmp_path / "a.zarr")


def test_a_store_behind_a_url_is_read_by_our_own_layer(tmp_path: Path) -> None:
    import fsspec

    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name, values in sample(50).items():
        group.create_array(name, data=values, chunks=(7, *values.shape[1:]))
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path / "a.zarr"), "/penstock-zarr/a.zarr", recursive=True)
    try:
        ds = ps.from_files("memory://penstock-zarr/a.zarr")
        assert_same(run(ds), rows_of(sample(50)))
        assert_same(
            run(ds.shuffle(seed=2).batch(8)),
            run(ps.from_arrays(sample(50)).shuffle(seed=2).batch(8)),
        )
    finally:
        fs.rm("/penstock-zarr", recursive=True)


def test_an_array_that_vanishes_does_not_turn_into_zeros(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(50_000), chunks=(1000,))
    ds = ps.from_files(tmp_path / "a.zarr").batch(10).with_options(threads=0)
    with ds.stream() as stream:
        next(stream)
        shutil.rmtree(tmp_path / "a.zarr")
        with pytest.raises(DataError, match="vanished"):
            list(stream)
