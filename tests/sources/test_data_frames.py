"""Tables as rows: pandas, polars, pyarrow and others, with every type of column, and what can't be read."""

import datetime as dt
import subprocess
import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance

import penstock as ps

N = 17
NUMBERS = list(range(N))
WORDS = [f"word {number}" * (number % 3) for number in NUMBERS]
DAY = dt.datetime(2024, 1, 1)  # noqa: DTZ001  # Tables have times without a zone.
TIMES = [DAY + dt.timedelta(hours=number) for number in NUMBERS]
FLOATS = [None if number % 5 == 0 else number / 2 for number in NUMBERS]


def expected() -> list[Any]:
    return [
        {
            "category": "even" if number % 2 == 0 else "odd",
            "float": np.float64("nan" if number % 5 == 0 else number / 2),
            "list": np.arange(number % 4),
            "number": np.int64(number),
            "time": np.datetime64("2024-01-01", "us") + np.timedelta64(number, "h"),
            "truth": np.bool_(number % 3 == 0),
            "word": WORDS[number],
        }
        for number in NUMBERS
    ]


def columns() -> dict[str, Any]:
    return {
        "number": NUMBERS,
        "float": FLOATS,
        "word": WORDS,
        "category": ["even" if number % 2 == 0 else "odd" for number in NUMBERS],
        "truth": [number % 3 == 0 for number in NUMBERS],
        "time": TIMES,
        "list": [list(range(number % 4)) for number in NUMBERS],
    }


def of_pandas() -> Any:
    frame = pd.DataFrame(columns())
    frame["category"] = frame["category"].astype("category")
    frame["time"] = frame["time"].astype("datetime64[us]")
    return frame


def of_nullable_pandas() -> Any:
    frame = of_pandas()
    return frame.astype(
        {"number": "Int64", "float": "Float64", "truth": "boolean", "word": "string"}
    )


def of_arrow_pandas() -> Any:
    return of_arrow().to_pandas(types_mapper=pd.ArrowDtype)


def of_polars() -> Any:
    frame = pl.DataFrame(columns()).with_columns(pl.col("category").cast(pl.Categorical))
    return pl.concat([frame[:5], frame[5:]], rechunk=False)


def of_arrow() -> Any:
    table = pa.table(columns())
    table = table.set_column(3, "category", table["category"].dictionary_encode())
    return pa.concat_tables([table[:7], table[7:8], table[8:]])


class Stream:
    """Whatever has the Arrow C stream interface, and nothing else."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Batch:
    """Whatever has the Arrow C array interface, and nothing else."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.batch.__arrow_c_array__(requested_schema)


TABLES = {
    "pandas": of_pandas,
    "pandas, nullable": of_nullable_pandas,
    "pandas over Arrow": of_arrow_pandas,
    "polars": of_polars,
    "Arrow table": of_arrow,
}
OTHERS = {
    "Arrow batch": lambda: of_arrow().combine_chunks().to_batches()[0],
    "Arrow reader": lambda: of_arrow().unify_dictionaries().to_reader(),
    "C stream": lambda: Stream(of_arrow().unify_dictionaries()),
    "C array": lambda: Batch(of_arrow().combine_chunks().to_batches()[0]),
}


class TestTables(SourceConformance):
    @pytest.fixture(params=TABLES)
    def case(self, request: pytest.FixtureRequest) -> Case:
        table = TABLES[request.param]()
        return Case(lambda: ps.from_arrays(table), expected())


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_has_the_arrow_interface_is_a_table(name: str) -> None:
    assert_same(run(ps.from_arrays(OTHERS[name]())), expected())


@pytest.mark.parametrize("name", TABLES)
def test_tables_stand_in_nests_and_all_chains_give_what_arrays_give(name: str) -> None:
    ds = ps.from_arrays((TABLES[name](), np.arange(N)))
    plain = ps.from_arrays(np.arange(N))
    rows = expected()
    for chain in (
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.shuffle(seed=1).shard(3, 1).repeat(2),
        lambda ds: ds.skip(3).take(9),
        lambda ds: ds.cache().shuffle(seed=2),
    ):
        numbers = [int(row) for row in run(chain(plain))]
        assert_same(run(chain(ds)), [(rows[row], np.int64(row)) for row in numbers])
    batches = run(
        ds.map(lambda table, y: (table["word"], table["float"], y)).shuffle(seed=3).batch(4)
    )
    assert sorted(int(y) for batch in batches for y in batch[2]) == NUMBERS


def test_series_and_an_index_are_columns() -> None:
    frame = of_pandas()
    for name in frame:
        assert_same(run(ps.from_arrays(frame[name])), [row[name] for row in expected()])
    for name in of_polars().columns:
        assert_same(run(ps.from_arrays(of_polars()[name])), [row[name] for row in expected()])
    assert_same(run(ps.from_arrays(frame.index)), list(np.arange(N)))
    assert run(ps.from_arrays(pd.Index(["a", "b"]))) == ["a", "b"]
    assert_same(run(ps.from_arrays(pd.array([1, 2], dtype="Int8"))), [np.int8(1), np.int8(2)])
    zone = pd.date_range("2024-01-01", periods=2, tz="Europe/Berlin").as_unit("s")
    midnight = np.datetime64("2023-12-31T23:00:00")
    assert_same(run(ps.from_arrays(zone)), [midnight, midnight + np.timedelta64(1, "D")])


def test_columns_of_numpy_are_not_copied() -> None:
    values = np.arange(12.0).reshape(6, 2)
    frame = pd.DataFrame(values, copy=False)
    node = ps.from_arrays(frame).node
    assert np.shares_memory(node.leaves[0].array, frame[0].to_numpy())  # type: ignore[attr-defined]
    assert_same(run(ps.from_arrays(frame)), [{"0": a, "1": b} for a, b in values])
    series = pl.Series("x", np.arange(1000.0))
    leaf = ps.from_arrays(pl.DataFrame([series])).node.leaves[0]  # type: ignore[attr-defined]
    assert np.shares_memory(leaf.array, series.to_numpy())


def test_objects_are_text_lists_or_arrays() -> None:
    arrays = [np.zeros((2, number), "f4") for number in range(3)]
    frame = pd.DataFrame(
        {
            "t": np.array(["a", "é", ""], object),
            "b": np.array([b"x", b"", b"yy"], object),
            "a": arrays,
            "d": [dt.date(2024, 1, 2)] * 3,
        }
    )
    rows = run(ps.from_arrays(frame))
    assert [(row["t"], row["b"]) for row in rows] == [("a", b"x"), ("é", b""), ("", b"yy")]
    assert_same([row["a"] for row in rows], arrays)
    assert rows[0]["d"] == np.datetime64("2024-01-02")


def test_resume_goes_on_with_the_next_batch_and_other_tables_are_refused() -> None:
    ds = ps.from_arrays(of_polars()).shuffle(seed=1).padded_batch(3)
    with ds.stream() as stream:
        batches = [next(stream), next(stream)]
        state = stream.state()
        batches += list(stream)
    again = (
        ps.from_arrays(of_arrow()).shuffle(seed=1).padded_batch(3)
    )  # The same rows in another table.
    assert_same(run(again, state=state), batches[2:])
    other = ps.from_arrays(of_polars().drop("word")).shuffle(seed=1).padded_batch(3)
    with pytest.raises(ps.StateError):
        run(other, state=state)


def test_a_cache_on_disk_knows_its_table(tmp_path: Any) -> None:
    frame = of_polars()
    assert_same(run(ps.from_arrays(frame).cache(tmp_path / "c")), expected())
    assert_same(run(ps.from_arrays(frame.clone()).cache(tmp_path / "c")), expected())
    changed = frame.with_columns(pl.lit("other").alias("word"))
    with pytest.raises(ps.PenstockError, match="word"):
        run(ps.from_arrays(changed).cache(tmp_path / "c"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
            r"field 'a': row 1 is missing.*fillna\(0\)",
        ),
        (pd.DataFrame({"a": ["x", None]}), r"field 'a': row 1 is missing.*fillna\(\"\"\)"),
        (pl.DataFrame({"a": [True, None]}), r"field 'a': row 1 is missing.*fill_null"),
        (pl.DataFrame({"a": [{"b": 1}]}), r"field 'a' has Arrow type struct.*unnest"),
        (pl.DataFrame({"a": [None]}), "all of it is missing: leave it out"),
        (pa.table({"a": pa.array([1], pa.decimal128(5, 2))}), "cast it to float64"),
        (pl.DataFrame({"a": [1]}).lazy(), r"LazyFrame; give its rows: frame\.collect\(\)"),
        (
            pd.DataFrame({"a": [1, "b"]}),
            "field 'a' of pandas has dtype object, whose values are not of one kind",
        ),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "is sparse; make it dense"),
        (
            pd.DataFrame({"a": pd.period_range("2024", periods=2, freq="Y")}),
            "make it times or numbers",
        ),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are called 'a'"),
        (pd.DataFrame([[1, 2]], columns=[1, "1"]), "two columns are called '1'"),
        (pd.DataFrame(), "is a table without columns"),
        (pd.DataFrame({"a": [1]}).groupby("a"), "got a DataFrameGroupBy of pandas"),
        (pd.MultiIndex.from_tuples([(1, 2)]), "got a MultiIndex of pandas"),
        (
            ({"x": pd.DataFrame({"a": [1, 2]})}, np.arange(3)),
            r"2 in field '0\.x\.a' and 3 in field '1'",
        ),
    ],
)
def test_tables_that_can_not_be_read_are_named_with_the_cure(table: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        ps.from_arrays(table)


BIG = pd.Series([2**70, 1], dtype=object)
OBJECTS = pl.Series("c", [object(), object()], dtype=pl.Object)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            pl.DataFrame({"x": [1, 2], "c": OBJECTS}),
            "column 'c' holds Python objects; make numbers",
        ),
        ({"c": OBJECTS}, "column 'c' holds Python objects; make numbers or text"),
        (
            pl.DataFrame({"c": [1]}, {"c": pl.Int128}),
            r"column 'c' has .* 128 bits; cast .*pl\.Int64",
        ),
        (pl.DataFrame({"c": [[1]]}, {"c": pl.List(pl.Int128)}), "column 'c' has .* 128 bits"),
        (pl.DataFrame({"c": [{"a": 1}]}, {"c": pl.Struct({"a": pl.Int128})}), "'c' has .*128 bits"),
        (pd.DataFrame({"c": BIG}), r"field 'c' of pandas has whole .*astype\(str\).*\"float64\""),
        (
            pd.DataFrame({"c": pd.Series(["\ud800"], dtype=object)}),
            r"field 'c' of pandas has text that is no Unicode.*\"replace\"",
        ),
        (
            pd.DataFrame({"c": pd.Series([dt.time(1, 2)], dtype=object)}),
            r"field 'c' .*midnight.*pd\.to_timedelta\(column\.astype\(str\)\)",
        ),
        (pl.DataFrame({"c": [dt.time(1)]}), r"nanoseconds since .*polars: cast\(pl\.Int64\)"),
    ],
)
def test_columns_that_arrow_does_not_have_are_named_with_the_cure(table: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        ps.from_arrays(table)


def test_the_casts_that_messages_name_are_read() -> None:
    assert run(ps.from_arrays(BIG.astype(str))) == [str(2**70), "1"]
    assert run(ps.from_arrays(BIG.astype("float64"))) == [float(2**70), 1.0]
    clock = pd.Series([dt.time(1, 2)], dtype=object)
    minutes = run(ps.from_arrays(pd.to_timedelta(clock.astype(str))))
    assert minutes == [np.timedelta64(62, "m")]
    nanoseconds = pl.Series([dt.time(0, 0, 1)]).cast(pl.Int64)
    assert run(ps.from_arrays(nanoseconds)) == [10**9]


@pytest.mark.parametrize(
    ("column", "cure", "filled"),
    [
        (pd.Series(pd.Categorical(["a", None])), 'astype("object").fillna("")', ["a", ""]),
        (pd.Series(pd.Categorical([1, None])), 'astype("object").fillna(0)', [1, 0]),
        (pd.Series(pd.Categorical([True, None])), 'astype("object").fillna(False)', [True, False]),
        (
            pd.Series([True, None], dtype=object),
            'astype("boolean").fillna(False)',
            [True, False],
        ),
        (pd.Series([True, None], dtype="boolean"), "fillna(False)", [True, False]),
        (pd.Series([1, None], dtype=object), "fillna(0)", [1, 0]),
        (pd.Series([b"x", None], dtype=object), 'fillna(b"")', [b"x", b""]),
        (pl.Series([True, None]), "fill_null(False)", [True, False]),
        (pl.Series(["a", None]), 'fill_null("")', ["a", ""]),
    ],
)
def test_what_is_missing_can_be_filled_as_the_message_says(
    column: Any, cure: str, filled: list[Any]
) -> None:
    with pytest.raises(ValueError, match="row 1 is missing") as caught:
        ps.from_arrays(column)
    assert f"{cure})" in str(caught.value)
    found = eval(f"column.{cure}", {"column": column})  # It is ours, as users would copy it.
    assert run(ps.from_arrays(found)) == filled


def test_a_word_of_an_enum_that_is_missing_is_filled_in_text() -> None:
    column = pl.Series(["a", None], dtype=pl.Enum(["a"]))
    with pytest.raises(ValueError, match=r"cast it to string\w*, then fill_null\(\"\"\)"):
        ps.from_arrays(column)
    assert run(ps.from_arrays(column.cast(pl.String).fill_null(""))) == ["a", ""]


def test_a_stream_that_pyarrow_does_not_read_is_named() -> None:
    wide = pl.DataFrame({"c": [1]}, {"c": pl.Int128})
    with pytest.raises(TypeError, match=r"is a Stream of .* that pyarrow can't read: .*cast what"):
        ps.from_arrays({"t": Stream(wide)})


CODE = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
import numpy as np, penstock as ps
{code}
"""


def run_without(missing: list[str], code: str) -> str:
    text = CODE.format(missing=missing, code=code)
    found = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_pandas_is_read_without_pyarrow_by_its_numpy_columns() -> None:
    code = """
import pandas as pd
frame = pd.DataFrame({"n": [1, 2], "f": [0.5, None], "s": ["a", "b"], "c": pd.Categorical(["x", "y"]),
    "i": pd.array([3, 4], dtype="Int64"), "g": pd.array([0.5, None], dtype="Float64")})
for row in ps.from_arrays(frame).shuffle(seed=0).take(2):
    print(*[str(row[name]) for name in "nfscig"])
for bad in (pd.DataFrame({"i": pd.array([3, None], dtype="Int64")}), pd.Series(pd.Categorical([1, None])),
    pd.DataFrame({"l": [[1], [2, 3]]})):
    try:
        ps.from_arrays(bad)
    except (ValueError, ImportError) as error:
        print(error)
"""
    lines = run_without(["pyarrow", "polars"], code).splitlines()
    assert sorted(lines[:2]) == ["1 0.5 a x 3 0.5", "2 nan b y 4 nan"]
    assert "row 1 is missing" in lines[2]
    assert 'astype("object").fillna(0)' in lines[3]
    assert lines[4] == "reading field 'l' of object needs pyarrow: pip install 'penstock[tables]'"


def test_polars_needs_no_pandas_and_says_that_it_needs_pyarrow() -> None:
    code = """
import polars as pl
frame = pl.DataFrame({"n": [1, 2], "s": ["a", "b"], "t": [True, False]})
try:
    print([(int(row["n"]), row["s"], bool(row["t"])) for row in ps.from_arrays(frame)])
except ImportError as error:
    print(error)
"""
    assert run_without(["pandas"], code) == "[(1, 'a', True), (2, 'b', False)]"
    needs = "reading a DataFrame of polars needs pyarrow: pip install 'penstock[tables]'"
    assert run_without(["pandas", "pyarrow"], code) == needs
