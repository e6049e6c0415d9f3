"""Zarr: versions 2 and 3, chunks of any shape, shards, folders and URLs."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.registry
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.conformance import assert_same, run
from tests.sources.fidelity import assert_reads
from tests.sources.formats import Columns, FormatSuite, as_nobody, assert_names, rows_of, sample
from zarr.abc.codec import BytesBytesCodec

import penstock as ps
from penstock.errors import AccessError, DataError, FieldError


class Pickled(BytesBytesCodec):
    """Chunks that are pickled, as some versions of Zarr let them be."""

    is_fixed_size = False

    @classmethod
    def from_dict(cls, data: Any) -> Any:  # Zarr's signature
        return cls()

    def to_dict(self) -> Any:
        return {"name": "numcodecs.pickle", "configuration": {}}

    def compute_encoded_size(self, input_byte_length: int, _spec: Any) -> int:
        return input_byte_length

    async def _decode_single(self, chunk_bytes: Any, _spec: Any) -> Any:
        raise AssertionError("it was about to be unpickled")

    async def _encode_single(self, chunk_bytes: Any, _spec: Any) -> Any:
        return chunk_bytes


@pytest.mark.parametrize("shards", [None, (8,)])
def test_what_is_pickled_is_refused_and_never_decoded(tmp_path: Path, shards: Any) -> None:
    zarr.registry.register_codec("numcodecs.pickle", Pickled)
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("good", data=np.arange(8))
    opened = group.create_array(
        "bad", shape=(8,), chunks=(4,), shards=shards, dtype="i4", compressors=Pickled()
    )
    opened[:] = np.arange(8)
    with pytest.raises(FieldError, match=r"a\.zarr.*array 'bad' is pickled"):
        ps.from_files(tmp_path / "a.zarr", "bad")
    with pytest.raises(FieldError, match="pickled"):
        ps.from_arrays(opened)
    with pytest.warns(ps.PenstockWarning, match="'bad' is pickled"):
        rows = run(ps.from_files(tmp_path / "a.zarr"))
    assert [row["good"] for row in rows] == list(range(8))


@pytest.mark.parametrize("where", ["compressor", "filters"])
def test_what_version_2_pickles_is_refused(tmp_path: Path, where: str) -> None:
    codec = {"id": "pickle", "protocol": 4}
    metadata = {
        "zarr_format": 2,
        "shape": [10],
        "chunks": [5],
        "dtype": "<i8",
        "fill_value": 0,
        "order": "C",
        "compressor": codec if where == "compressor" else None,
        "filters": [codec] if where == "filters" else None,
    }
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / ".zarray").write_text(json.dumps(metadata))
    (tmp_path / "a.zarr" / "0").write_bytes(pickle.dumps(Explosive()))
    with pytest.raises(DataError, match=r"a\.zarr.*pickle"):
        run(ps.from_files(tmp_path / "a.zarr"))


class Explosive:
    """Fails the test that unpickles it."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("it was unpickled",)


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
            except (ps.PenstockError, ps.PenstockWarning) as error:
                # A warning: what is damaged may look like metadata of a later version of Zarr.
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


COUNT = np.arange(50)
GRID = np.arange(300, dtype="i4").reshape(50, 3, 2)
COLUMNS = np.array([(n, n / 2) for n in COUNT], [("a", "<i4"), ("b", ">f8")])
WORDS = np.array([str(n) * (n % 3) for n in COUNT])
VALUES = {
    **{name: COUNT.astype(name) for name in ("<i2", ">i4", "u1", "<f2", ">f8", "M8[ns]", "m8[s]")},
    **{name: (COUNT * 1j).astype(name) for name in ("<c8", ">c16")},
    **{name: WORDS.astype(name) for name in ("S9", "<U9", ">U9")},
    "truth": COUNT % 3 == 0,
    "bytes": np.array([bytes([n, 1, 2]) for n in COUNT], "V3"),
    "columns": COLUMNS,
}
STORED: dict[str, dict[str, Any]] = {
    "packed": {},
    "plain": {"compressors": None},
    "version 2": {"zarr_format": 2},
    "version 2, plain": {"zarr_format": 2, "compressors": None},
}
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Fortran order": (GRID, {"zarr_format": 2, "order": "F"}),
    "folders": (
        GRID,
        {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    ),
    "dots": (GRID, {"chunk_key_encoding": {"name": "default", "separator": "."}}),
    "keys of version 2": (GRID, {"chunk_key_encoding": {"name": "v2", "separator": "/"}}),
    "transposed": (GRID, {"filters": [zarr.codecs.TransposeCodec(order=(2, 0, 1))]}),
    "big-endian": (GRID, {"serializer": zarr.codecs.BytesCodec(endian="big")}),
    "shards": (GRID, {"shards": (14, 4, 2)}),
    "shards with checksums": (
        GRID,
        {"shards": (14, 4, 2), "compressors": [zarr.codecs.GzipCodec(), zarr.codecs.Crc32cCodec()]},
    ),
}
FILTERS: dict[str, tuple[Any, Any]] = {
    "delta": (GRID, numcodecs.Delta("<i4")),
    "wide delta": (np.arange(200_000, dtype="i4"), numcodecs.Delta("<i4", astype="<i8")),
    "scale": (
        (COUNT / 10).astype("f4"),
        numcodecs.FixedScaleOffset(offset=0, scale=10, dtype="<f4", astype="<i2"),
    ),
    "wide type": (
        np.arange(100_000, dtype="f4"),
        numcodecs.AsType(encode_dtype="<f8", decode_dtype="<f4"),
    ),
    "bits": (COUNT % 3 == 0, numcodecs.PackBits()),
    "rounded": ((COUNT / 7).astype("f4"), numcodecs.Quantize(2, "<f4")),
    "categories": (np.array(["a", "b"] * 25), numcodecs.Categorize(["a", "b"], "<U1")),
    "shuffle": (GRID, numcodecs.Shuffle(4)),
}


def check_against_zarr(path: Path) -> None:
    theirs = zarr.open_array(path, mode="r")
    ds = ps.from_files(path)
    assert_reads(ds, list(theirs[:].astype(ds.spec.dtype)))
    np.testing.assert_array_equal(np.stack(run(ds)), theirs[:])


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("way", STORED)
@pytest.mark.parametrize("name", VALUES)
def test_every_dtype_is_what_zarr_reads(tmp_path: Path, name: str, way: str) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=VALUES[name], chunks=(7,), **STORED[way])
    check_against_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize("way", WAYS)
def test_however_chunks_are_stored_they_are_what_zarr_reads(tmp_path: Path, way: str) -> None:
    values, options = WAYS[way]
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=(7, 2, 1), **options)
    check_against_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize("packer", [numcodecs.Blosc(), numcodecs.Zlib(), None], ids=repr)
@pytest.mark.parametrize("name", FILTERS)
def test_filters_are_undone_as_zarr_undoes_them(tmp_path: Path, name: str, packer: Any) -> None:
    values, one = FILTERS[name]
    chunks = (max(7, len(values) // 2), *values.shape[1:])
    options = {"zarr_format": 2, "filters": [one], "compressors": packer}
    zarr.create_array(tmp_path / "a.zarr", data=values, chunks=chunks, **options)
    found = np.concatenate(run(ps.from_files(tmp_path / "a.zarr").batch(1000)))
    np.testing.assert_array_equal(found, zarr.open_array(tmp_path / "a.zarr", mode="r")[:])


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("fill", [5, np.nan, None])
def test_chunks_that_are_missing_are_what_zarr_makes_of_them(
    tmp_path: Path, version: int, fill: Any
) -> None:
    array = zarr.create_array(
        tmp_path / "a.zarr",
        shape=(20, 2),
        chunks=(7, 1),
        dtype="f4",
        fill_value=fill,
        zarr_format=version,
    )
    array[7:14, 1] = 3
    check_against_zarr(tmp_path / "a.zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("key", "value"),
    [("dtype", "bfloat16"), ("codec", "of no one"), ("dtype", "float8_e4m3fn")],
)
def test_an_array_that_zarr_does_not_understand_does_not_hide_the_others(
    tmp_path: Path, version: int, key: str, value: str
) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    group.create_array("x", data=np.arange(4))
    group.create_array("deep/down/y", data=np.arange(4) * 2)
    place = tmp_path / "a.zarr" / "x" / ("zarr.json" if version == 3 else ".zarray")
    metadata = json.loads(place.read_text())
    if key == "dtype":
        metadata["data_type" if version == 3 else "dtype"] = value
    elif version == 3:
        metadata["codecs"] = [*metadata["codecs"][:1], {"name": value, "configuration": {}}]
    else:
        metadata["compressor"] = {"id": value}
    place.write_text(json.dumps(metadata))
    with pytest.warns(ps.PenstockWarning, match=rf"a\.zarr: array 'x' can't be .*{value}"):
        assert run(ps.from_files(tmp_path / "a.zarr"))[1] == {"deep/down/y": 2}
    with pytest.raises(FieldError, match=rf"a\.zarr: array 'x' can't be .*{value}.*fields="):
        ps.from_files(tmp_path / "a.zarr", "x")
    assert run(ps.from_files(tmp_path / "a.zarr", "deep/down/y"))[1] == 2


@pytest.mark.parametrize("text", ["{", "[" * 50_000], ids=["cut off", "deep"])
@pytest.mark.parametrize("version", [2, 3])
def test_metadata_that_is_damaged_is_an_error_that_names_the_array(
    tmp_path: Path, version: int, text: str
) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=version)
    group.create_array("x", data=np.arange(4))
    group.create_array("y", data=np.arange(4) * 2)
    (tmp_path / "a.zarr" / "x" / ("zarr.json" if version == 3 else ".zarray")).write_text(text)
    for fields in (None, "x"):
        with pytest.raises(DataError, match=r"a\.zarr: array 'x': can't be read as Zarr: \w+Error"):
            ps.from_files(tmp_path / "a.zarr", fields)
    assert run(ps.from_files(tmp_path / "a.zarr", "y"))[1] == 2


def test_a_group_or_a_name_that_is_not_there_is_an_error_with_those_that_are(
    tmp_path: Path,
) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("deep/down/y", data=np.arange(4))
    with pytest.raises(DataError, match="'deep': it is a group, of 'deep/down/y'"):
        ps.from_files(tmp_path / "a.zarr", "deep")
    with pytest.raises(DataError, match="no field 'z', only 'deep/down/y'"):
        ps.from_files(tmp_path / "a.zarr", "z")
