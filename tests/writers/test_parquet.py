"""write(format="parquet"): files that pyarrow and pandas read, and that give back the rows that went in."""

from typing import ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance import assert_same, run
from tests.shards.nests import words
from tests.writers.other_formats import OtherFormat
from tests.writers.test_npy import DTYPES

import penstock as ps
from penstock.errors import RangeError
from penstock.writers.parquet import GROUP_NBYTES


class TestParquet(OtherFormat):
    format = "parquet"
    refused_dtypes: ClassVar = {
        "f16": "map it to float32 or float64",
        "c8": "split it into .real and .imag",
        "c16": "split it into .real and .imag",
        "U3": "map(str)",
        "bfloat16": "map it to float32",
        "float8_e4m3fn": "map it to float32",
        **{str(one): "make a dict of its columns" for one in DTYPES if isinstance(one, np.dtype)},
    }
    refused_nests: ClassVar = {
        "ragged inside": r"inner sizes differ from row to row.*format=\"npy\"",
        "ragged all over": r"field '0'.*format=\"npy\"",
        "ragged and empty": "no lists of size 0",
        "surrogates": r"field 'value' has, in row 0, text that is no UTF-8.*write bytes",
    }


def test_pyarrow_and_pandas_read_it_as_one_table(tmp_path):
    nest = {
        "x": np.random.default_rng(0).random((200, 3)),
        "label": np.arange(200).astype(">i2"),
        "meta": {"text": words(), "data": [w.encode() for w in words()]},
        "ragged": [np.arange(n % 4, dtype="u1") for n in range(200)],
        "day": np.arange(200).astype("M8[D]"),
    }
    ps.from_arrays(nest).write(tmp_path / "out", format="parquet", shards=3)
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [f"part-{n:05d}-of-00003.parquet" for n in range(3)]
    table = pq.read_table(tmp_path / "out")
    assert table.schema.field("meta.text").type == pa.large_string()
    assert table.schema.field("day").type == pa.date32()
    assert table["x"].to_pylist() == nest["x"].tolist()
    assert table["ragged"].to_pylist() == [row.tolist() for row in nest["ragged"]]
    frame = pd.read_parquet(tmp_path / "out")
    assert frame["label"].tolist() == list(range(200))
    assert frame["meta.text"].tolist() == words()
    assert frame["meta.data"].tolist() == nest["meta"]["data"]


def test_row_groups_are_small_whatever_the_rows_are(tmp_path):
    ds = ps.from_arrays({"x": np.zeros((9000, 50)), "t": ["y" * (n % 999) for n in range(9000)]})
    ds.write(tmp_path / "out", format="parquet")
    found = pq.ParquetFile(tmp_path / "out" / "part-00000.parquet").metadata
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    assert len(groups) > 10
    assert max(group.num_rows * 400 for group in groups) <= 2 * GROUP_NBYTES


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "D"])
def test_times_come_back_exactly_or_are_refused_by_row(unit, tmp_path):
    times = np.array([0, 10**6, -(10**6)] * 20).astype(f"M8[{unit}]")
    times[7] = "NaT"
    ds = ps.from_arrays(times.reshape(20, 3))
    ds.write(tmp_path / "out", format="parquet")
    assert_same(run(ps.from_files(tmp_path / "out")), list(times.reshape(20, 3)))
    if unit in "sD":
        times[8] = np.datetime64(2**61, unit)
        with pytest.raises(RangeError, match=r"field 'value' has, in row 2, the date .*M8\[us\]"):
            ps.from_arrays(times.reshape(20, 3)).write(tmp_path / "no", format="parquet")
        ragged = [times[:5], times[5:8], times[8:]]
        with pytest.raises(RangeError, match="has, in row 2, the date"):
            ps.from_arrays(ragged).write(tmp_path / "no", format="parquet")


TIMES = [f"M8[{unit}]" for unit in ("s", "ms", "us", "ns", "D")] + [
    f"m8[{unit}]" for unit in ("s", "ms", "us", "ns")
]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", TIMES)
def test_not_a_time_is_a_null_for_others_and_comes_back(kind, order, tmp_path):
    times = np.arange(240).astype(f"{order}{kind}")
    times[::7] = "NaT"
    nest = {
        "one": times,
        "many": np.tile(times[:, None, None], (1, 2, 3)),
        "varying": [times[: n % 5] for n in range(240)],
        "pairs": [np.tile(times[: n % 5, None], (1, 2)) for n in range(240)],
        "all": np.full(240, "NaT", times.dtype),
        "none": np.arange(240).astype(times.dtype),
    }
    ds = ps.from_arrays(nest)
    ds.write(tmp_path / "out", format="parquet", shards=2)
    assert_same(run(ps.from_files(tmp_path / "out")), run(ds))
    assert_same(run(ps.from_files(tmp_path / "out").shuffle(seed=1)), run(ds.shuffle(seed=1)))
    table = pq.read_table(tmp_path / "out")
    missing = np.isnat(times)
    assert table["one"].is_null().to_pylist() == missing.tolist()
    assert table["all"].null_count == 240
    assert not table["none"].null_count
    assert [row[1][2] is None for row in table["many"].to_pylist()] == missing.tolist()
    items = [item is None for row in table["varying"].to_pylist() for item in row]
    assert items == [bool(np.isnat(item)) for row in nest["varying"] for item in row]
    assert pd.read_parquet(tmp_path / "out")["one"].isna().tolist() == missing.tolist()
    assert pq.ParquetFile(next((tmp_path / "out").iterdir())).schema.column(0).max_definition_level


def test_what_others_changed_is_read_as_they_left_it(tmp_path):
    ps.from_arrays({"a": {"b": np.arange(9).astype(">i4")}, "c": words()[:9]}).write(
        tmp_path / "out", format="parquet"
    )
    table = pq.read_table(tmp_path / "out")
    pq.write_table(table.drop_columns("c"), tmp_path / "less.parquet")
    assert ps.from_files(tmp_path / "less.parquet").spec == {"a.b": ps.ArraySpec((), ">i4")}
    odd = table.replace_schema_metadata({"penstock": '{"version": 1, "row": [], "fields": 7}'})
    pq.write_table(odd, tmp_path / "odd.parquet")
    assert set(ps.from_files(tmp_path / "odd.parquet").spec) == {"a.b", "c"}


def test_columns_of_one_name_are_told_apart(tmp_path):
    nest = {"a": {"b": np.arange(5)}, "a.b": np.arange(5) * 2, "": np.arange(5) * 3}
    ps.from_arrays(nest).write(tmp_path / "out", format="parquet")
    assert pq.read_table(tmp_path / "out").column_names == ["value", "a.b", "a.b_3"]
    assert_same(run(ps.from_files(tmp_path / "out")), run(ps.from_arrays(nest)))
