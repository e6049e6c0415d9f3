"""Parquet: columns of every type, row groups of any size, nulls, and footers that lie."""

import base64
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pyarrow.parquet import encryption
from tests.conformance import Case, assert_same, run
from tests.sources.arrow_columns import COLUMNS, COUNT
from tests.sources.fidelity import assert_reads
from tests.sources.formats import Columns, FormatSuite, rows_of, sample

import penstock as ps
from penstock.engine.plan import make_plan
from penstock.errors import DataError, FieldError
from penstock.sources.reading import column_sets
from penstock.sources.reading.file_rows import FileRows
from penstock.stages.batch import BatchedRows


def table_of(columns: Columns) -> pa.Table:
    """Return columns as an Arrow table: rows of arrays as fixed-size lists."""
    return pa.table({name: arrow_of(values) for name, values in columns.items()})


def arrow_of(values: Any) -> pa.Array:
    if isinstance(values, list) or values.dtype == object:
        return pa.array(list(values))
    array = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


class TestParquet(FormatSuite):
    suffix = ".parquet"

    def write(self, path: Path, columns: Columns) -> None:
        pq.write_table(table_of(columns), path, row_group_size=700)


class TestText(TestParquet):
    """Strings, binary and lists of any length."""

    def columns(self, num_rows: int, start: int = 0) -> Columns:
        columns = sample(num_rows, start)
        numbers = range(start, start + num_rows)
        columns["s"] = np.array([f"é{i}" * (i % 3) for i in numbers], object)
        columns["b"] = np.array([b"%d" % i for i in numbers], object)
        return columns

    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        columns = self.files(tmp_path, (13, 8))
        return Case(lambda: self.open(tmp_path), rows_of(columns))

    def test_chains_give_what_the_same_arrays_in_memory_give(self, tmp_path: Path) -> None:
        columns = self.files(tmp_path, (50, 37))
        theirs = ps.from_arrays(
            {n: v.tolist() if v.dtype == object else v for n, v in columns.items()}
        )
        mine = self.open(tmp_path)
        assert_same(run(mine.shuffle(seed=5).batch(16)), run(theirs.shuffle(seed=5).batch(16)))


DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="="),
    hnp.unsigned_integer_dtypes(endianness="="),
    hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64)),
    st.sampled_from(["M8[ms]", "M8[us]", "M8[ns]", "m8[ms]", "m8[us]"]).map(np.dtype),
)


@given(st.data(), st.integers(1, 9))
def test_every_dtype_and_row_group_comes_back(data: st.DataObject, group_rows: int) -> None:
    import tempfile

    dtype = data.draw(DTYPES)
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    values = data.draw(hnp.arrays(dtype, shape))
    if dtype.kind in "mM":  # Not-a-time is Arrow's null.
        values = np.where(np.isnat(values), np.zeros((), dtype), values)
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table_of({"x": values}), f"{folder}/a.parquet", row_group_size=group_rows)
        ds = ps.from_files(f"{folder}/a.parquet", "x")
        assert_same(run(ds.batch(2)), run(ps.from_arrays(values).batch(2)))
        assert_same(run(ds.shuffle(seed=1)), run(ps.from_arrays(values).shuffle(seed=1)))


@pytest.mark.parametrize("most", [0, 4_000, 1 << 21])
@pytest.mark.parametrize("group_rows", [23, 300, 5_000])
def test_columns_read_together_and_alone_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, most: int
) -> None:
    monkeypatch.setattr(column_sets, "MOST_NBYTES", most)
    rng = np.random.default_rng(0)
    columns: Columns = {
        "half": rng.random(3000).astype("f2"),
        "text": [f"{number}" for number in range(3000)],
        "wide": rng.random(3000),
        "few": rng.integers(0, 3, 3000).astype("i4"),
        "pair": rng.random((3000, 2)),
        "is": rng.random(3000) < 0.5,
        "at": np.arange(3000).astype("M8[ms]"),
        "big": rng.integers(0, 1 << 40, 3000),
    }
    for name, codec in (("a", "snappy"), ("b", "none"), ("c", "zstd")):
        pq.write_table(
            table_of(columns),
            tmp_path / f"{name}.parquet",
            row_group_size=group_rows,
            compression=codec,
        )
    names = [name for name in columns if name != "text"]
    whole = {name: np.concatenate([columns[name]] * 3) for name in names}
    for fields in (names, names[::-1], ["big", "wide", "few"]):
        nest = {name: name for name in fields}
        ds = ps.from_files(tmp_path / "*.parquet", fields=nest)
        same = ps.from_arrays({name: whole[name] for name in fields})
        for batch_size in (1000, 7):
            assert_same(run(ds.batch(batch_size)), run(same.batch(batch_size)))
        assert_same(run(ds.shard(3, 1).batch(32)), run(same.shard(3, 1).batch(32)))
        for threads in (0, 3):
            found = ds.shuffle(seed=1).batch(50).with_options(threads=threads)
            assert_same(run(found), run(same.shuffle(seed=1).batch(50)))


def test_a_column_that_is_damaged_is_named_among_those_read_together(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = table_of({name: np.random.default_rng(0).random(1000) for name in "abc"})
    pq.write_table(table, path, row_group_size=250, compression="none", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(2).column(1)
    data = bytearray(path.read_bytes())
    data[column.data_page_offset] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match="column 'b' of row group 2"):
        run(ps.from_files(path).batch(100))
    found = ps.from_files(path).with_options(on_error="skip").batch(250)
    good = [number for number in range(1000) if not 500 <= number < 750]
    assert_same(np.concatenate([batch["c"] for batch in found]), table["c"].to_numpy()[good])


def test_lists_dictionaries_dates_and_fixed_binary_have_their_places(tmp_path: Path) -> None:
    table = pa.table(
        {
            "list": pa.array([[1, 2], [], [3]], pa.list_(pa.int32())),
            "dictionary": pa.array(["a", "b", "a"]).dictionary_encode(),
            "date": pa.array([0, 1, 2], pa.date32()),
            "fixed": pa.array([b"abc", b"def", b"ghi"], pa.binary(3)),
            "large": pa.array(["x", "yy", ""], pa.large_string()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    rows = run(ps.from_files(tmp_path / "a.parquet"))
    assert [row["list"].tolist() for row in rows] == [[1, 2], [], [3]]
    assert [row["dictionary"] for row in rows] == ["a", "b", "a"]
    assert [str(row["date"]) for row in rows] == ["1970-01-01", "1970-01-02", "1970-01-03"]
    assert [row["fixed"].tobytes() for row in rows] == [b"abc", b"def", b"ghi"]
    assert [row["large"] for row in rows] == ["x", "yy", ""]


@pytest.mark.parametrize("has_statistics", [True, False])
def test_a_null_is_named_by_column_row_group_and_row_with_the_cure(
    tmp_path: Path, has_statistics: bool
) -> None:
    table = pa.table({"x": [1] * 17 + [None] + [2] * 5, "y": list(range(23))})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=10, write_statistics=has_statistics)
    with pytest.raises(
        DataError, match=r"a\.parquet, row 17: column 'x' has a null in row group 1.*fill_null\(0\)"
    ):
        run(ps.from_files(path))
    assert run(ps.from_files(path, "y")) == list(range(23))


@pytest.mark.parametrize("has_statistics", [True, False])
def test_under_skip_a_null_costs_its_row_group_whatever_the_statistics_tell(
    tmp_path: Path, has_statistics: bool
) -> None:
    good, bad = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(pa.table({"x": list(range(10))}), good)
    table = pa.table({"x": [*range(100), None, 101, 102]})
    pq.write_table(table, bad, row_group_size=20, write_statistics=has_statistics)
    for at_call in ("raise", "skip"):
        for paths, num_rows in (([good, bad], 110), (bad, 100)):
            ds = ps.from_files(paths, on_error=at_call)
            with ds.with_options(on_error="skip").stream() as stream:
                assert len(list(stream)) == num_rows
            assert stream.report().num_skipped == 3
            assert "row 100: column 'x' has a null in row group 5" in stream.report().skipped[0]
            with pytest.raises(DataError, match="row 100: column 'x' has a null in row group 5"):
                run(ds)


def test_a_null_that_the_footer_tells_of_is_raised_before_the_first_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2, None]}), tmp_path / "a.parquet", row_group_size=1)
    ds = ps.from_files(tmp_path / "a.parquet").batch(1)
    with pytest.raises(DataError, match="row 2: column 'x' has a null in row group 2"):
        ds.stream()


@pytest.mark.parametrize(
    ("values", "cure"),
    [
        (pa.array([True, None]), "fill_null(False), cast the column to floats"),
        (pa.array(["a", None]), 'fill_null("")'),
        (pa.array([b"a", None]), 'fill_null(b"")'),
        (pa.array([[1], None]), "fill it before it is written, or leave it out"),
    ],
)
def test_the_cure_of_a_null_is_one_for_the_type_of_the_column(
    tmp_path: Path, values: Any, cure: str
) -> None:
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=re.escape(cure)):
        run(ps.from_files(tmp_path / "a.parquet"))


@pytest.mark.parametrize("has_statistics", [True, False])
def test_missing_floats_are_nan_and_missing_times_are_not_a_time(
    tmp_path: Path, has_statistics: bool
) -> None:
    columns = {
        "x": pa.array([1.0, None, 3.0], pa.float32()),
        "t": pa.array([0, 1, None], pa.timestamp("us")),
        "d": pa.array([None, 1, 2], pa.date32()),
        "l": pa.array([[1.0, None], [], [2.0]]),
        "f": pa.array([[1.0, None]] * 3, pa.list_(pa.float64(), 2)),
    }
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2, write_statistics=has_statistics)
    rows = run(ps.from_files(path))
    assert np.isnan([row["x"] for row in rows]).tolist() == [False, True, False]
    assert np.isnat([row["t"] for row in rows]).tolist() == [False, False, True]
    assert np.isnat([row["d"] for row in rows]).tolist() == [True, False, False]
    assert [np.isnan(row["l"]).tolist() for row in rows] == [[False, True], [], [False]]
    assert all(np.isnan(row["f"]).tolist() == [False, True] for row in rows)


@pytest.mark.parametrize(
    ("values", "row"),
    [
        (pa.array([[1, 2], [3, None]], pa.list_(pa.int8(), 2)), 1),
        (pa.array([[1], [3, None]], pa.list_(pa.int8())), 1),
        (pa.array(["a", None]), 1),
        (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), 1),
        (pa.array([[1, 2]] * 5 + [None] * 2, pa.list_(pa.int8(), 2)), 5),
        (pa.array([None, [[1, 2]]], pa.list_(pa.list_(pa.int8(), 2), 1)), 0),
    ],
)
def test_nulls_within_lists_and_text_are_found_too(tmp_path: Path, values: Any, row: int) -> None:
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=rf"row {row}: column 'x' has a null in row group 0"):
        run(ps.from_files(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([{"a": 1}]),
        pa.array([[[1], [2, 3]]]),
        pa.array([1], pa.decimal128(5, 2)),
        pa.array([["a"]]),
        pa.array([[[1], [2]]], pa.list_(pa.list_(pa.int8()), 2)),
        pa.array([[[[1], [2]]]], pa.list_(pa.list_(pa.list_(pa.int8()), 2))),
    ],
)
def test_types_that_are_no_rows_are_refused_unless_left_out(tmp_path: Path, values: Any) -> None:
    pq.write_table(pa.table({"odd": values, "x": [5]}), tmp_path / "a.parquet")
    with pytest.raises(FieldError, match=r"a\.parquet: column 'odd' has type .* fields="):
        ps.from_files(tmp_path / "a.parquet", "odd")
    assert run(ps.from_files(tmp_path / "a.parquet", "x")) == [5]
    with pytest.warns(ps.PenstockWarning, match=r"a\.parquet: column 'odd' has type .*fields="):
        assert run(ps.from_files(tmp_path / "a.parquet")) == [{"x": 5}]


def test_columns_that_are_not_chosen_are_not_read(tmp_path: Path) -> None:
    """Their bytes may as well be gone."""
    table = pa.table({"a": np.arange(5000.0), "b": np.arange(5000.0)})
    pq.write_table(table, tmp_path / "a.parquet", compression="none", use_dictionary=False)
    place = pq.read_metadata(tmp_path / "a.parquet").row_group(0).column(1)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    start, size = place.data_page_offset, place.total_compressed_size
    data[start : start + size] = b"\xff" * size
    (tmp_path / "a.parquet").write_bytes(data)
    assert len(run(ps.from_files(tmp_path / "a.parquet", "a").batch(100))) == 50
    with pytest.raises(DataError, match=r"a\.parquet.*can't be decoded"):
        run(ps.from_files(tmp_path / "a.parquet", "b").batch(100))


class _Keys(encryption.KmsClient):
    """Wraps keys in nothing."""

    def __init__(self, _config: Any) -> None:
        super().__init__()

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize("fields", ["x", "y", None])
@pytest.mark.parametrize("has_plain_footer", [True, False])
def test_what_is_encrypted_is_refused(
    tmp_path: Path, *, has_plain_footer: bool, fields: str | None
) -> None:
    factory = encryption.CryptoFactory(_Keys)
    config = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["y"]}, plaintext_footer=has_plain_footer
    )
    connection = encryption.KmsConnectionConfig()
    keys = factory.file_encryption_properties(connection, config)
    table = pa.table({"x": range(1000), "y": np.arange(1000.0)})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, encryption_properties=keys) as file:
        file.write_table(table)
    with pytest.raises(DataError, match=r"a\.parquet: is encrypted, or has columns that are"):
        ps.from_files(tmp_path / "a.parquet", fields)
    pq.write_table(table, tmp_path / "b.parquet")
    assert len(run(ps.from_files(tmp_path, fields, on_error="skip"))) == 1000


def test_a_file_without_rows_has_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    assert run(ps.from_files(tmp_path / "a.parquet").shuffle().batch(3)) == []


WRITTEN: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False, "compression": "none"},
    "dictionary": {"use_dictionary": True},
    "pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "small pages": {"data_page_size": 64, "write_batch_size": 16},
}


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_what_pyarrow_reads(tmp_path: Path, name: str, way: str) -> None:
    column, rows = COLUMNS[name]
    table = pa.table({"before": COUNT, "x": column})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=37, **WRITTEN[way])
    theirs = pq.read_table(tmp_path / "a.parquet")["x"]
    assert theirs.to_pylist() == column.to_pylist()  # The rows of the table are pyarrow's.
    ds = ps.from_files(tmp_path / "a.parquet", "x")
    if name in ("timestamp[s]", "date64"):  # Parquet has no such unit, and stores another.
        rows = list(np.array(rows).astype(ds.spec.dtype))
    assert_reads(ds, rows)


def test_a_name_with_a_dot_is_not_taken_for_a_part_of_another(tmp_path: Path) -> None:
    table = pa.table({"a.b": [10, 20], "a": [1, 2], "s": [{"c": 5}, {"c": 6}], "s.c": [7, 8]})
    pq.write_table(table, tmp_path / "a.parquet")
    for name, rows in {"a": [1, 2], "a.b": [10, 20], "s.c": [7, 8]}.items():
        assert run(ps.from_files(tmp_path / "a.parquet", name)) == rows
    nulls = pa.table({"a.b": pa.array([None, 20]), "a": [1, 2]})
    pq.write_table(nulls, tmp_path / "b.parquet")
    assert run(ps.from_files(tmp_path / "b.parquet", "a")) == [1, 2]
    with pytest.raises(DataError, match=r"b\.parquet, row 0: column 'a\.b' has a null"):
        run(ps.from_files(tmp_path / "b.parquet", "a.b"))


def test_two_columns_of_one_name_are_refused_if_they_are_chosen(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"])
    pq.write_table(table, tmp_path / "a.parquet")
    for fields in (None, "a"):
        with pytest.raises(DataError, match=r"a\.parquet: 2 columns are called 'a'"):
            ps.from_files(tmp_path / "a.parquet", fields)
    assert run(ps.from_files(tmp_path / "a.parquet", "b")) == [3]


def test_reading_numbers_loads_no_pandas_which_takes_as_much_memory_as_all_else(
    tmp_path: Path,
) -> None:
    pytest.importorskip("pandas")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": np.arange(9.0), "y": np.arange(9) % 2 == 0}), path)
    code = (
        "import sys, penstock as ps\n"
        f"assert len(list(ps.from_files({str(path)!r}).shuffle())) == 9\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_files_whose_columns_are_joined_otherwise_retain_no_more_than_was_planned(
    tmp_path: Path,
) -> None:
    lengths = [int(one) for one in np.random.default_rng(1).integers(9_000, 16_000, 16)]
    for number, length in enumerate(lengths):
        columns = {f"c{place:02d}": np.arange(length) + place / 100 for place in range(40)}
        pq.write_table(pa.table(columns), tmp_path / f"{number:02d}.parquet")
    ds = ps.from_files(tmp_path / "*.parquet").batch(64)
    node = ds.node
    assert isinstance(node, BatchedRows)
    assert isinstance(node.input, FileRows)
    sets = {tuple(column_sets.column_sets(list(one.leaves.values()))) for one in node.input.parts}
    assert len(sets) > 3, "the files must differ"
    needed = make_plan(node, ds.with_options(memory="2GB").options).need
    with ds.with_options(memory=needed).stream() as stream:
        found = np.concatenate([batch["c07"].copy() for batch in stream])
        assert stream.report().peak_nbytes <= needed
    assert_same(found, np.concatenate([np.arange(length) + 7 / 100 for length in lengths]))
