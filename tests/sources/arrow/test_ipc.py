"""Arrow and Feather: the same columns as Parquet, in record batches."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.conformance import assert_same, run
from tests.sources.arrow_columns import COLUMNS, COUNT
from tests.sources.fidelity import assert_reads
from tests.sources.formats import Columns, FormatSuite
from tests.sources.parquet.test_columns import DTYPES, table_of
from tests.sources.parquet.test_columns import TestText as ParquetText

import penstock as ps
from penstock.errors import DataError


def write_arrow(
    path: Path, table: pa.Table, batch_rows: int, compression: str | None = None
) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(path, table.schema, options=options) as file:
        file.write_table(table, max_chunksize=batch_rows)


class TestArrow(FormatSuite):
    suffix = ".arrow"

    def write(self, path: Path, columns: Columns) -> None:
        write_arrow(path, table_of(columns), 700)


class TestFeather(FormatSuite):
    suffix = ".feather"

    def write(self, path: Path, columns: Columns) -> None:
        feather.write_feather(table_of(columns), path, compression="zstd", chunksize=700)


class TestText(ParquetText):
    suffix = ".arrow"

    def write(self, path: Path, columns: Columns) -> None:
        write_arrow(path, table_of(columns), 700)


@given(st.data(), st.integers(1, 9), st.sampled_from([None, "lz4", "zstd"]))
def test_every_dtype_and_batch_comes_back(
    data: st.DataObject, batch_rows: int, compression: str | None
) -> None:
    import tempfile

    dtype = data.draw(DTYPES)
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    values = data.draw(hnp.arrays(dtype, shape))
    if dtype.kind in "mM":
        values = np.where(np.isnat(values), np.zeros((), dtype), values)
    with tempfile.TemporaryDirectory() as folder:
        write_arrow(Path(f"{folder}/a.arrow"), table_of({"x": values}), batch_rows, compression)
        ds = ps.from_files(f"{folder}/a.arrow", "x")
        assert_same(run(ds.batch(2)), run(ps.from_arrays(values).batch(2)))
        assert_same(run(ds.shuffle(seed=1)), run(ps.from_arrays(values).shuffle(seed=1)))


def test_a_null_is_named_by_column_batch_and_row(tmp_path: Path) -> None:
    write_arrow(tmp_path / "a.arrow", pa.table({"x": [1] * 17 + [None] + [2] * 5}), 10)
    with pytest.raises(DataError, match=r"row 17: column 'x' has a null in record batch 1"):
        run(ps.from_files(tmp_path / "a.arrow"))
    write_arrow(tmp_path / "b.arrow", pa.table({"x": [1.0] * 17 + [None] + [2.0] * 5}), 10)
    found = np.stack(run(ps.from_files(tmp_path / "b.arrow", "x")))
    assert np.flatnonzero(np.isnan(found)).tolist() == [17]


def test_texts_as_views_are_read(tmp_path: Path) -> None:
    texts = ["a", "", "some text that is longer than a view", "é" * 9]
    table = pa.table(
        {"s": pa.array(texts).cast(pa.string_view()), "b": pa.array([b"x"] * 4, pa.binary_view())}
    )
    write_arrow(tmp_path / "a.arrow", table, 3)
    assert run(ps.from_files(tmp_path / "a.arrow", ("s", "b"))) == [(text, b"x") for text in texts]


def test_a_stream_and_the_first_feather_are_refused_with_the_cure(tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2]})
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(DataError, match=r"stream of Arrow batches.*new_file"):
        ps.from_files(tmp_path / "a.arrow")
    (tmp_path / "b.feather").write_bytes(b"FEA1" + b"x" * 50)
    with pytest.raises(DataError, match="Feather version 1"):
        ps.from_files(tmp_path / "b.feather")


@pytest.mark.parametrize("packing", [None, "lz4", "zstd"])
@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_is_what_pyarrow_reads(tmp_path: Path, name: str, packing: str | None) -> None:
    column, rows = COLUMNS[name]
    table = pa.table({"before": COUNT, "x": column})
    options = pa.ipc.IpcWriteOptions(compression=packing, emit_dictionary_deltas=True)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema, options=options) as file:
        file.write_table(table, max_chunksize=37)
    theirs = pa.ipc.open_file(tmp_path / "a.arrow").read_all()["x"]
    assert theirs.to_pylist() == column.to_pylist()  # The rows of the table are pyarrow's.
    assert_reads(ps.from_files(tmp_path / "a.arrow", "x"), rows)


def test_two_columns_of_one_name_are_refused_if_they_are_chosen(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"])
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    for fields in (None, "a"):
        with pytest.raises(DataError, match=r"a\.arrow: 2 columns are called 'a'"):
            ps.from_files(tmp_path / "a.arrow", fields)
    assert run(ps.from_files(tmp_path / "a.arrow", "b")) == [3]
