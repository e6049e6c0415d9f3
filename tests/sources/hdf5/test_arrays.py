"""HDF5: datasets by path, packed or plain, of every dtype, and files that are not what they say."""

import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.conformance import Case, assert_same, run
from tests.sources.fidelity import assert_reads
from tests.sources.formats import Columns, FormatSuite, in_memory, rows_of, sample

import penstock as ps
from penstock.errors import DataError, FieldError, FileChangedError, LengthError
from penstock.sources.reading import file_rows

PACKED: list[dict[str, Any]] = [
    {"chunks": (7, 3)},
    {"chunks": (5, 2), "compression": "gzip", "shuffle": True},
    {"chunks": (100, 3), "compression": "lzf", "fletcher32": True},
    {"chunks": (1, 1), "compression": "gzip"},
    {},
]


class TestPacked(FormatSuite):
    suffix = ".h5"

    def write(self, path: Path, columns: Columns) -> None:
        with h5py.File(path, "w") as file:
            for name, values in columns.items():
                chunks = (min(64, len(values)), *values.shape[1:])
                file.create_dataset(name, data=values, chunks=chunks, compression="gzip")


class TestPlain(FormatSuite):
    suffix = ".hdf5"

    def write(self, path: Path, columns: Columns) -> None:
        with h5py.File(path, "w") as file:
            for name, values in columns.items():
                file[name] = values

    def test_it_is_read_in_place(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.hdf5", sample(10))
        assert "page cache" in str(self.open(tmp_path / "a.hdf5").explain())


class TestText(FormatSuite):
    """Strings and lists of any length."""

    suffix = ".h5"

    def columns(self, num_rows: int, start: int = 0) -> Columns:
        columns = sample(num_rows, start)
        columns["s"] = np.array([f"é{i}" * (i % 3) for i in range(start, start + num_rows)], object)
        return columns

    def write(self, path: Path, columns: Columns) -> None:
        with h5py.File(path, "w") as file:
            for name, values in columns.items():
                kind = h5py.string_dtype() if values.dtype == object else values.dtype
                file.create_dataset(name, data=values, dtype=kind, chunks=True)

    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        columns = self.files(tmp_path, (13, 8))
        return Case(lambda: self.open(tmp_path), rows_of(columns))

    def test_chains_give_what_the_same_arrays_in_memory_give(self, tmp_path: Path) -> None:
        columns = self.files(tmp_path, (50, 37))
        columns["s"] = columns["s"].tolist()
        mine, theirs = self.open(tmp_path), in_memory(columns)
        assert_same(run(mine.shuffle(seed=5).batch(16)), run(theirs.shuffle(seed=5).batch(16)))


@pytest.mark.parametrize("options", PACKED)
def test_however_it_is_packed_the_rows_are_the_same(tmp_path: Path, options: Any) -> None:
    values = np.arange(300.0).reshape(100, 3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, **options)
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert_same(run(ds), list(values))
    assert_same(
        run(ds.shuffle(seed=1).batch(9)), run(ps.from_arrays(values).shuffle(seed=1).batch(9))
    )


@given(st.data())
def test_every_dtype_comes_back(data: st.DataObject) -> None:
    import tempfile

    dtype = data.draw(
        st.one_of(
            hnp.boolean_dtypes(),
            hnp.integer_dtypes(endianness="?"),
            hnp.unsigned_integer_dtypes(endianness="?"),
            hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
            hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
            hnp.byte_string_dtypes(min_len=1, max_len=5),
            st.just(np.dtype([("a", "<i4"), ("b", ">f8", (2,))])),
        )
    )
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    fill = st.nothing() if dtype.names else None
    values = data.draw(hnp.arrays(dtype, shape, fill=fill))
    with tempfile.TemporaryDirectory() as folder:
        with h5py.File(f"{folder}/a.h5", "w") as file:
            file.create_dataset("plain", data=values)
            file.create_dataset("packed", data=values, chunks=True, compression="gzip")
        ds = ps.from_files(f"{folder}/a.h5", ("plain", "packed"))
        assert_same(run(ds), [(row, row) for row in values])


def test_lists_of_any_length_are_ragged_rows(tmp_path: Path) -> None:
    rows = [np.arange(i % 4, dtype="i4") for i in range(30)]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        made = file.create_dataset("x", 30, dtype=h5py.vlen_dtype("i4"), chunks=(7,))
        for number, row in enumerate(rows):
            made[number] = row
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert ds.spec == ps.ArraySpec((None,), "i4")
    assert_same(run(ds.shuffle(seed=1)), run(ps.from_arrays(rows).shuffle(seed=1)))


def test_datasets_go_by_their_paths_and_single_values_are_left_out(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["train/x"] = np.arange(4)
        file["train/deep/y"] = np.arange(4) * 2
        file["version"] = 3
    with pytest.warns(ps.PenstockWarning, match=r"a\.h5: field 'version' is a single value"):
        assert run(ps.from_files(tmp_path / "a.h5"))[1] == {"train/x": 1, "train/deep/y": 2}
    with pytest.raises(FieldError, match="'version' is a single value and has no rows"):
        ps.from_files(tmp_path / "a.h5", "version")
    with pytest.raises(DataError, match=r"no field 'train'"):
        ps.from_files(tmp_path / "a.h5", "train")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["z"] = np.arange(9)
    with pytest.raises(LengthError, match="9 in 'z'"):
        ps.from_files(tmp_path / "a.h5")


def test_values_in_other_files_are_refused_with_the_way_to_read_them(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["x"] = np.arange(5)
    layout = h5py.VirtualLayout((5,), "i8")
    layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "x", (5,))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_virtual_dataset("v", layout)
        file.create_dataset("e", (5,), "i8", external=[(str(tmp_path / "raw"), 0, 40)])
    for name in "ve":
        with pytest.raises(DataError, match=r"in other files.*from_arrays"):
            ps.from_files(tmp_path / "a.h5", name)
    with h5py.File(tmp_path / "a.h5") as file:
        assert_same(run(ps.from_arrays(file["v"])), list(np.arange(5)))


def test_a_damaged_chunk_is_named_with_its_rows(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 1000, (1000, 4))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(100, 4), compression="gzip", fletcher32=True)
        place = file["x"].id.get_chunk_info_by_coord((500, 0))
    data = bytearray((tmp_path / "a.h5").read_bytes())
    data[place.byte_offset + place.size // 2] ^= 0xFF
    (tmp_path / "a.h5").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.h5, row 500: rows 500 to 600 can't be decoded"):
        run(ps.from_files(tmp_path / "a.h5", "x").batch(50))


def test_a_chunk_that_claims_more_than_the_budget_is_refused_before_it_is_read(
    tmp_path: Path,
) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (1 << 30,), "f4", chunks=(1 << 29,), compression="gzip")
    ds = ps.from_files(tmp_path / "a.h5", "x").batch(10).with_options(memory="64MB")
    with pytest.raises(MemoryError, match="budget"):
        ds.stream()


def test_references_are_no_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (3,), h5py.ref_dtype)
    with pytest.raises(FieldError, match=r"a\.h5: dataset 'x'.*references.*fields="):
        ps.from_files(tmp_path / "a.h5")


def test_rows_of_arrays_have_the_shape_of_the_dataset_and_of_its_type(tmp_path: Path) -> None:
    values = np.arange(10 * 2 * 3 * 4, dtype="i4").reshape(10, 2, 3, 4)
    kind = np.dtype(("i4", (3, 4)))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, options in {"plain": {}, "packed": {"chunks": (3, 2), "compression": 1}}.items():
            file.create_dataset(name, (10, 2), kind, **options)
            file[name][:] = values
    for name in ("plain", "packed"):
        ds = ps.from_files(tmp_path / "a.h5", name)
        assert ds.spec == ps.ArraySpec((2, 3, 4), "i4")
        assert_reads(ds, list(values))
    with h5py.File(tmp_path / "a.h5") as file:
        assert_reads(ps.from_arrays(file["packed"]), list(values))


@pytest.mark.parametrize("options", [{}, {"chunks": (4,)}])
@pytest.mark.parametrize("kind", ["f4", [("a", "i4"), ("b", "f8")], ("f4", (2,))])
def test_what_was_never_written_is_the_fill_value(tmp_path: Path, options: Any, kind: Any) -> None:
    dtype = np.dtype(kind)
    fill = np.array((7, 8.5), dtype) if dtype.names else 7
    options = options if dtype.subdtype else {**options, "fillvalue": fill}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (10,), dtype, **options)
        want = file["x"][:]
    assert_reads(ps.from_files(tmp_path / "a.h5", "x"), list(want))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0), (0, 0)])
def test_a_dataset_without_values_has_rows_without_values(tmp_path: Path, shape: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros(shape)
    assert_reads(ps.from_files(tmp_path / "a.h5", "x"), list(np.zeros(shape)))


def test_a_filter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((5,))
        properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (0, 0, 0, 0))
        h5py.h5d.create(
            file.id, b"x", h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((10,)), properties
        )
        with pytest.raises(
            FieldError, match=r"a\.h5: dataset 'x' is packed with HDF5 filter 32001"
        ):
            ps.from_arrays({"x": file["x"]})
    with pytest.raises(FieldError, match=r"a\.h5: .*filter 32001.*pip install hdf5plugin"):
        ps.from_files(tmp_path / "a.h5", "x")


def test_a_dataset_that_has_another_type_by_now_is_an_error(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(8, dtype="i4"), chunks=(2,))
    before = (tmp_path / "a.h5").stat()
    ds = ps.from_files(tmp_path / "a.h5", "x")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=np.arange(8, dtype="f4"), chunks=(2,))
    os.truncate(tmp_path / "a.h5", before.st_size)
    os.utime(tmp_path / "a.h5", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(
        FileChangedError, match=r"a\.h5: dataset 'x' was .*int32.* and is .*float32"
    ):
        run(ds)


@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
@pytest.mark.parametrize("how", ["replaced", "another folder", "removed"])
def test_an_open_dataset_is_read_from_its_own_file_whatever_has_the_name_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: Any, how: str
) -> None:
    x = np.arange(4000).reshape(1000, 4)
    (tmp_path / "other").mkdir()
    for path, values in ((tmp_path / "x.h5", x), (tmp_path / "other" / "x.h5", x + 10**6)):
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=values, chunks=(100, 4), **options)
    monkeypatch.chdir(tmp_path)
    with h5py.File("x.h5") as file:
        if how == "replaced":
            (tmp_path / "other" / "x.h5").replace(tmp_path / "x.h5")
        elif how == "removed":
            (tmp_path / "x.h5").unlink()
        else:
            monkeypatch.chdir(tmp_path / "other")
        assert_same(np.concatenate(list(ps.from_arrays(file["x"]).batch(64))), x)


def test_indexes_of_all_files_are_counted_and_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        with h5py.File(tmp_path / f"{number}.h5", "w") as file:
            file.create_dataset("x", data=np.arange(2000.0) + number, chunks=(10,))
    many = ps.from_files(tmp_path / "*.h5")
    rows = [row["x"].tolist() for row in many.shuffle(seed=1).batch(100)]
    monkeypatch.setattr(file_rows, "_MOST_INDEX_NBYTES", 6 * 200 * 40)
    limited = ps.from_files(tmp_path / "*.h5")
    assert many.node.retained_nbytes(0) - limited.node.retained_nbytes(0) == 6 * 200 * 48
    assert [row["x"].tolist() for row in limited.shuffle(seed=1).batch(100)] == rows
