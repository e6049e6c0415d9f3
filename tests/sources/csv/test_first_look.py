"""CSV as it is in the wild: separators, gaps, decimal commas, quotes, marks, packing; with and without an index."""

import gzip
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run

import penstock as ps
from penstock.core.rows import Flow, Rows
from penstock.errors import DataError, PenstockWarning
from penstock.sources.csv import parsing

NAN = np.float64("nan")


def both(folder: Path, text: str | bytes, name: str = "a.csv", **options: Any) -> list[ps.Dataset]:
    """Return a file with random access, and the same one packed, after checking that they are alike."""
    data = text.encode() if isinstance(text, str) else text
    (folder / name).write_bytes(data)
    (folder / f"{name}.gz").write_bytes(gzip.compress(data))
    found = [ps.from_files(folder / one, **options) for one in (name, f"{name}.gz")]
    assert isinstance(found[0].node, Rows)
    assert isinstance(found[1].node, Flow)
    assert found[0].spec == found[1].spec
    return found


def rows_of(folder: Path, text: str | bytes, name: str = "a.csv", **options: Any) -> list[Any]:
    """Return the rows of a file: the same with an index and without, by pyarrow and by Python, and skipping."""
    found = []
    for has_arrow in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not has_arrow:
                patch.setattr(parsing, "arrow", lambda: None)
            for ds in both(folder, text, name, **options):
                found += [run(ds), run(ds.with_options(on_error="skip"))]
    for other in found[1:]:
        assert_same(other, found[0])
    return found[0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_is_found_in_the_first_rows_or_said(tmp_path: Path, separator: str) -> None:
    lines = ["id|name|x", "1|a b|0.5", '2|"q; , \t "|1.5']
    text = "\n".join(line.replace("|", separator) for line in lines)
    expected = [
        {"id": np.int64(1), "name": "a b", "x": np.float64(0.5)},
        {"id": np.int64(2), "name": "q; , \t ", "x": np.float64(1.5)},
    ]
    assert_same(rows_of(tmp_path, text), expected)
    assert_same(rows_of(tmp_path, text, separator=separator), expected)
    ds = ps.from_files(tmp_path / "a.csv")
    assert f"separator {separator!r}" in str(ds.explain())


def test_a_separator_that_can_not_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    for wrong in (";;", "é", "", 5):
        with pytest.raises(ValueError, match="separator must be one ASCII character"):
            ps.from_files(tmp_path / "a.csv", separator=wrong)  # type: ignore[arg-type]
    for wrong in ('"', "\n", "1", "x", "."):
        with pytest.raises(ValueError, match="separator must not be part of"):
            ps.from_files(tmp_path / "a.csv", separator=wrong)
    with pytest.raises(ValueError, match=r"decimal must be '\.' or ',', got ';'"):
        ps.from_files(tmp_path / "a.csv", decimal=";")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="separator and decimal must differ"):
        ps.from_files(tmp_path / "a.csv", separator=",", decimal=",")
    np.save(tmp_path / "a.npy", np.arange(3))
    with pytest.raises(ValueError, match="separator is for CSV files, got separator=';' for npy"):
        ps.from_files(tmp_path / "a.npy", separator=";")


def test_files_with_another_separator_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a;b\n1;2\n")
    with pytest.raises(
        ValueError, match=r"same columns, .*b\.csv, whose separator seems to be ';'"
    ):
        ps.from_files(tmp_path)
    assert_same(
        run(ps.from_files(tmp_path, on_error="skip")), [{"a": np.int64(1), "b": np.int64(2)}]
    )


def test_a_bad_row_does_not_hide_the_separator(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a;b\n1;2\n3\n5;6\n")
    with pytest.raises(DataError, match=r"line 3 has 1 columns.*separator, which is ';'"):
        ps.from_files(tmp_path / "a.csv")
    ds = ps.from_files(tmp_path / "a.csv", on_error="skip").with_options(on_error="skip")
    assert [int(row["b"]) for row in run(ds)] == [2, 6]


def test_missing_numbers_are_nan_and_missing_text_is_empty(tmp_path: Path) -> None:
    text = 'age,name,x\n1,,0.5\n,b,\nNA,NA, \n"",null,N/A\n-4,None,nan\n'
    expected = [(1.0, "", 0.5), (NAN, "b", NAN), (NAN, "NA", NAN), (NAN, "null", NAN)]
    expected.append((-4.0, "None", NAN))
    found = rows_of(tmp_path, text, fields=("age", "name", "x"))
    assert_same(found, [(np.float64(a), b, np.float64(c)) for a, b, c in expected])
    ds = both(tmp_path, text, fields="age", spec={"age": "float32"})[0]
    assert ds.spec.dtype == np.float32
    assert np.isnan(np.stack(run(ds))).tolist() == [False, True, True, True, False]


def test_gaps_after_the_first_look_are_nan_where_numbers_are_floats(tmp_path: Path) -> None:
    lines = [f"{n}.5,{n}" for n in range(40_000)]
    lines[39_000] = ",7"
    text = "x,y\n" + "\n".join(lines)
    for ds in both(tmp_path, text, fields=("x", "y")):
        x, y = (np.concatenate(one) for one in zip(*run(ds.batch(500)), strict=True))
        assert np.flatnonzero(np.isnan(x)).tolist() == [39_000]
        assert y.dtype == np.int64


@pytest.mark.parametrize("late", ["2.5", "", "NA", "1e3"])
def test_whole_numbers_that_turn_out_otherwise_are_an_error_with_the_cure(
    tmp_path: Path, late: str
) -> None:
    text = "id,age\n" + "1,30\n" * 60_000 + f"2,{late}\n"
    match = rf"a\.csv.*line 60002: column 'age' is int64, got '{late}'.*spec={{'age': \"float32\"}}"
    for ds in both(tmp_path, text):
        with pytest.raises(DataError, match=match):
            run(ds.batch(1000))
        with ds.with_options(on_error="skip").batch(30_000).stream() as stream:
            assert sum(len(batch["age"]) for batch in stream) == 60_000
            assert "line 60002" in stream.report().skipped[0]
    for ds in both(tmp_path, text, spec={"age": "float32"}):
        assert len(run(ds.batch(1))) == 60_001


def test_large_whole_numbers_with_gaps_are_not_rounded_in_silence(tmp_path: Path) -> None:
    text = f"id\n{2**60 + 1}\nNA\n"
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=r"line 3: column 'id' has whole numbers beyond 2\*\*53"):
        ps.from_files(tmp_path / "a.csv")
    assert rows_of(tmp_path, text, fields="id", spec={"id": str})[0] == str(2**60 + 1)
    ds = ps.from_files(tmp_path / "a.csv", "id", on_error="skip").with_options(on_error="skip")
    assert_same(run(ds), [np.int64(2**60 + 1)])


@pytest.mark.parametrize("has_arrow", [True, False])
@pytest.mark.parametrize("late", [str(2**53 + 1), f" -{2**53 + 1}", str(2**70)])
def test_large_whole_numbers_after_the_first_look_are_not_rounded_among_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_arrow: bool, late: str
) -> None:
    if not has_arrow:
        monkeypatch.setattr(parsing, "arrow", lambda: None)
    text = "a,b\n,1\n" + "1,2\n" * 70_000
    match = (
        rf"line 70003: column 'a' is float64, .*up to 2\*\*53, got '{late.strip()}'.*{{'a': str}}"
    )
    for ds in both(tmp_path, f"{text}{late},3\n"):
        with pytest.raises(DataError, match=match):
            run(ds.batch(1000))
    for ds in both(tmp_path, f"{text}{late},3\n", fields="a", spec={"a": "float64"}):
        assert run(ds.batch(1000))[-1][-1] == float(late)
    # These are held, or no whole numbers.
    for fine in (str(2**53), "1e300", "9007199254740993.0"):
        for ds in both(tmp_path, f"{text}{fine},3\n", fields="a"):
            assert run(ds.batch(1000))[-1][-1] == float(fine)


def test_a_row_of_text_and_numbers_that_is_taken_for_the_header_is_warned_of(
    tmp_path: Path,
) -> None:
    for name in ("a.csv", "a.csv.gz"):
        data = b"5.1,3.5,setosa\n4.9,3.0,setosa\n,3.1,virginica\n"
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        with pytest.warns(PenstockWarning, match=r"first line .* number '5.1'.*the names above"):
            ds = ps.from_files(tmp_path / name)
        assert list(ds.spec) == ["5.1", "3.5", "setosa"]


@pytest.mark.parametrize(
    "text",
    [
        "city,2018,2020,2022\nOslo,1,2,3\n",
        "name,0,1\na,5,6\n",
        "name,3rd\na,5\n",
        "name,7\na,b\n",
        "name,nan\na,5\n",
        "name,5\n",
        f"name,{'1' * 5000},{'2' * 5000}\n",
    ],
)
def test_names_with_numbers_are_not_warned_of(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    assert list(ps.from_files(tmp_path / "a.csv").spec) == text.splitlines()[0].split(",")


def test_a_row_with_a_number_twice_that_is_taken_for_the_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("5.1,5.1,setosa\n4.9,3.0,setosa\n")
    with pytest.raises(DataError, match=r"two columns called '5.1'.*line with the names above it"):
        ps.from_files(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("other", "cure"),
    [
        ("b,a\n", r"another order: .*ps.concatenate\(a, b\)"),
        ("a,c\n", r"second lacks b and adds c: .*ps.concatenate\(a, b\)"),
        ("a\n", "second lacks b: give both"),
    ],
)
def test_files_with_other_columns_say_what_differs_and_the_cure(
    tmp_path: Path, other: str, cure: str
) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text(other)
    with pytest.raises(ps.SpecMismatchError, match=rf"same columns.*a\.csv.*b\.csv.*{cure}"):
        ps.from_files(tmp_path / "*.csv")


def test_leading_zeros_are_kept_in_text_alone(tmp_path: Path) -> None:
    text = "zip,n\n00501,1\n"
    assert_same(rows_of(tmp_path, text, fields="zip"), [np.int64(501)])
    assert rows_of(tmp_path, text, fields="zip", spec={"zip": str}) == ["00501"]


def test_whole_numbers_beyond_int64_are_uint64_where_that_holds_them(tmp_path: Path) -> None:
    found = rows_of(tmp_path, f"id\n{2**64 - 2}\n {2**64 - 1}\n+7\n", fields="id")
    assert_same(found, [np.uint64(2**64 - 2), np.uint64(2**64 - 1), np.uint64(7)])
    # One decimal makes a column of floats, as ever.
    assert rows_of(tmp_path, f"x\n{2**64}\n0.5\n", fields="x")[0].dtype == np.float64


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["1", str(2**64)], f"line 3: column 'id' has .* beyond int64 or uint64, got '{2**64}'"),
        (["-1", str(2**63)], f"line 3: .* beyond int64, and others that are neg.*got '{2**63}'"),
        (["1", str(-(2**63) - 1)], "line 3: .* beyond int64 or uint64, got '-9223372036854775809'"),
        (["1", "9" * 5000], "line 3: .* beyond int64 or uint64, got '9{40}'"),
        ([str(2**64), ""], r"line 3: column 'id' has whole numbers beyond 2\*\*53.*cell is empty"),
    ],
)
def test_whole_numbers_that_no_integer_holds_are_not_rounded_in_silence(
    tmp_path: Path, cells: list[str], message: str
) -> None:
    text = "id,x\n" + "".join(f"{cell},1\n" for cell in cells)
    (tmp_path / "a.csv").write_text(text)
    cure = r".*spec={'id': str}.*spec={'id': \"float64\"}"
    with pytest.raises(DataError, match=message + cure):
        ps.from_files(tmp_path / "a.csv")
    assert rows_of(tmp_path, text, fields="id", spec={"id": str}) == cells
    assert rows_of(tmp_path, text, fields="id", spec={"id": "float64"})[0] == float(cells[0])


def test_rows_whose_numbers_no_integer_holds_are_skipped_unless_all_are_such(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text(f"id,x\n{2**64 - 1},1\n{2**64},2\n5,3\n")
    ds = ps.from_files(tmp_path / "a.csv", "id", on_error="skip").with_options(on_error="skip")
    assert_same(run(ds), [np.uint64(2**64 - 1), np.uint64(5)])
    (tmp_path / "b.csv").write_text(f"id,x\n{2**64},1\n{2**65},2\n")
    with pytest.raises(DataError, match="beyond int64 or uint64"):
        ps.from_files(tmp_path / "b.csv", on_error="skip")


@pytest.mark.parametrize(
    ("usual", "late", "cure"),
    [
        ("1", str(2**64 - 1), r"spec={'id': \"uint64\"} holds it.*\"float64\".*str"),
        ("1", str(2**64), r"spec={'id': \"float64\"} reads rounded numbers.*str"),
        (str(2**64 - 1), "-1", r"spec={'id': \"float64\"} reads rounded numbers.*str"),
        (str(2**64 - 1), str(2**64), r"spec={'id': \"float64\"} reads rounded numbers.*str"),
        ("1", "1_000", "str"),
        ("1", "\uff11\uff12", "str"),
        ("1.5", "1_0.5", "str"),
        ("1.5", "\uff11.5", "str"),
        ("1.5", "2\0", "str"),
    ],
)
@pytest.mark.parametrize("has_arrow", [True, False])
def test_numbers_after_the_first_look_are_never_other_ones(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    usual: str,
    late: str,
    cure: str,
    has_arrow: bool,
) -> None:
    if not has_arrow:
        monkeypatch.setattr(parsing, "arrow", lambda: None)
    num_rows = 300_000 // (len(usual) + 3)  # More than the first look sees.
    text = "id,x\n" + f"{usual},1\n" * num_rows + f"{late},1\n"
    match = rf"a\.csv.*line {num_rows + 2}: column 'id' is .*64, got {late!r}.*{cure}"
    for ds in both(tmp_path, text):
        with pytest.raises(DataError, match=match.replace("\\x00", r"\\x00")):
            run(ds.batch(1000))


def test_underscores_and_digits_of_other_scripts_are_text(tmp_path: Path) -> None:
    cells = ["2020_01", "1_000", "\uff11\uff12", "1_0.5", "\uff11.\uff15", "٣", "1\0"]
    for cell in cells:
        assert rows_of(tmp_path, f"a,b\n{cell},1\n2,2\n", fields="a") == [cell, "2"]
    # Also as names: a header of such is no row of numbers.
    assert list(both(tmp_path, "2020_01,2020_02\n1,2\n")[0].spec) == ["2020_01", "2020_02"]
    floats = rows_of(tmp_path, "x\nnan\n-inf\nInfinity\n\xa01.5\u3000\n", fields="x")
    assert_same(np.array(floats), np.array([np.nan, -np.inf, np.inf, 1.5]))


def test_a_file_that_begins_with_a_blank_line_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\na,b\n1,2\n")
    with pytest.raises(DataError, match=r"line 1 is blank.*Remove the blank lines"):
        ps.from_files(tmp_path / "a.csv")


@pytest.mark.parametrize("line", ["sep=;", "sep=,", '"sep=;"', "SEP=\t", "\ufeffsep=|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_first_line_that_tells_spreadsheets_the_separator_is_named_so(
    tmp_path: Path, line: str, end: str
) -> None:
    text = f"{line}{end}a;b{end}1;2{end}"
    (tmp_path / "a.csv").write_bytes(text.encode())
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("a.csv", "b.csv.gz"):
        with pytest.raises(DataError, match=r"line 1 tells the separator.*Remove this line"):
            ps.from_files(tmp_path / name)
    (tmp_path / "c.csv").write_text("sep=a,b\n1,2\n")
    assert list(run(ps.from_files(tmp_path / "c.csv"))[0]) == ["sep=a", "b"]


@pytest.mark.parametrize(
    ("name", "separator", "own", "text"),
    [
        ("a.csv", ";", ",", "a,b,c\n1,2,3\n"),
        ("a.tsv", None, ",", "a,b,c\n1,2,3\n"),
        ("a.tsv", None, ";", "a;b;c\n1;2;3\n"),
        ("a.csv", ",", "\t", "a\tb\tc\n1\t2\t3\n"),
    ],
)
def test_one_column_that_is_several_by_another_separator_is_warned_of(
    tmp_path: Path, name: str, separator: str | None, own: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    words = rf"there is one column, .*; separator={re.escape(repr(own))} would find 3"
    with pytest.warns(PenstockWarning, match=words) as told:
        ps.from_files(tmp_path / name, separator=separator)
    assert len(told) == 1
    assert len(ps.from_files(tmp_path / name, separator=own).spec) == 3


def test_one_column_with_a_separator_in_its_name_alone_is_not_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('"age, in years"\n1\n2\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(ps.from_files(tmp_path / "a.csv").spec) == ["age, in years"]
        assert list(ps.from_files(tmp_path / "a.csv", separator=";").spec) == ["age, in years"]


def test_text_in_another_encoding_is_named_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a,b\n1,2\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"a\.csv.*line 1 is not UTF-8.*iconv -f utf-16"):
        ps.from_files(tmp_path / "a.csv")


def test_truths_are_bool_and_dates_are_text_unless_the_spec_says_so(tmp_path: Path) -> None:
    text = "ok,sure,day\ntrue,TRUE,2024-01-31\nFalse,,2024-02-01\n"
    expected = [
        {"day": "2024-01-31", "ok": np.True_, "sure": "TRUE"},
        {"day": "2024-02-01", "ok": np.False_, "sure": ""},
    ]
    assert_same(rows_of(tmp_path, text), expected)
    days = rows_of(tmp_path, text, fields="day", spec={"day": "datetime64[D]"})
    assert_same(days, [np.datetime64("2024-01-31"), np.datetime64("2024-02-01")])
    with pytest.raises(DataError, match=r"line 3: column 'sure' is bool, got ''.*can't be missing"):
        run(both(tmp_path, text, spec={"sure": bool})[0])


@pytest.mark.parametrize(
    ("dtype", "cell", "cure"),
    [
        ("datetime64[ns]", "1500-01-02", r"spec={'d': \"datetime64\[us\]\"} holds it"),
        ("datetime64[ns]", "2500-01-01T12:00Z", r"spec={'d': \"datetime64\[us\]\"} holds it"),
        ("datetime64[ps]", "2024-01-31", r"spec={'d': \"datetime64\[ns\]\"} holds it"),
        ("datetime64[D]", "20240131", "written as 2024-01-31.*spec={'d': str}"),
        ("datetime64[D]", "today", "written as 2024-01-31"),
        ("datetime64[s]", "1970-01-01T00:00x", "written as 2024-01-31"),
        ("timedelta64[s]", "99999999999999999999", "whole numbers of their unit"),
    ],
)
@pytest.mark.parametrize("has_arrow", [True, False])
def test_a_time_that_the_unit_does_not_hold_is_an_error_with_the_cure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    cell: str,
    cure: str,
    has_arrow: bool,
) -> None:
    if not has_arrow:
        monkeypatch.setattr(parsing, "arrow", lambda: None)
    good = "7" if dtype.startswith("timedelta") else "1970-01-01"
    for ds in both(tmp_path, f"d,n\n{good},0\n{cell},1\n,2\n", spec={"d": dtype}):
        with pytest.raises(DataError, match=rf"a\.csv.*line 3: column 'd' is .*{cell}'.*{cure}"):
            run(ds)
        assert [row["n"] for row in run(ds.with_options(on_error="skip"))] == [0, 2]


def test_times_with_an_offset_are_utc_and_finer_digits_than_the_unit_are_left_out(
    tmp_path: Path,
) -> None:
    cells = ["2024-01-01T00:30:00.75+01:00", "2024-01-01T12:00Z", "", "2024-01-01 12:00:00.5"]
    text = "d,n\n" + "".join(f"{cell},0\n" for cell in cells)
    wanted = ["2023-12-31T23:30:00", "2024-01-01T12:00:00", "NaT", "2024-01-01T12:00:00"]
    found = rows_of(tmp_path, text, fields="d", spec={"d": "datetime64[s]"})
    assert [str(value) for value in found] == wanted
    found = rows_of(tmp_path, text, fields="d", spec={"d": "datetime64[D]"})
    assert [str(value) for value in found] == [one[:10] for one in wanted]


def test_times_without_a_unit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("d,n\n2024-01-01,1\n")
    with pytest.raises(ValueError, match=r'must have a unit, got datetime64.*"datetime64\[s\]"'):
        ps.from_files(tmp_path / "a.csv", spec={"d": "datetime64"})


def test_quoted_numbers_spaces_and_quoted_line_breaks(tmp_path: Path) -> None:
    text = 'a,b,c\r\n"1", 2 ,"x\r\ny"\r\n"-3","4","say ""z"""'
    expected = [
        {"a": np.int64(1), "b": np.int64(2), "c": "x\r\ny"},
        {"a": np.int64(-3), "b": np.int64(4), "c": 'say "z"'},
    ]
    assert_same(rows_of(tmp_path, text), expected)
    assert_same(rows_of(tmp_path, b"\xef\xbb\xbf" + text.encode()), expected)


def test_decimal_commas_are_read_where_said_and_named_where_not(tmp_path: Path) -> None:
    text = "x;n;t\n1,5;1;a\n-,25;;b\n3;2;c,d\n"
    expected = [(1.5, 1.0, "a"), (-0.25, np.nan, "b"), (3.0, 2.0, "c,d")]
    found = rows_of(tmp_path, text, fields=("x", "n", "t"), decimal=",")
    assert_same(found, [(np.float64(a), np.float64(b), c) for a, b, c in expected])
    with pytest.warns(
        PenstockWarning, match=r"a\.csv: the numbers of column 'x' have commas.*decimal=','"
    ):
        ds = ps.from_files(tmp_path / "a.csv")
    assert ds.spec["x"].dtype is str
    with pytest.raises(DataError, match=r"line 2: column 'x' is float32, got '1,5'\. decimal=','"):
        run(ps.from_files(tmp_path / "a.csv", spec={"x": "float32"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ps.from_files(tmp_path / "a.csv", decimal=".").spec["x"].dtype is str
    # A point is no decimal mark there: 1.234 may as well be a thousand.
    with pytest.raises(DataError, match=r"line 2: column 'x' is float64, got '1\.5'"):
        run(both(tmp_path, "x;n\n1.5;2\n", spec={"x": "float64"}, decimal=",")[0])


def test_numbers_without_a_header_may_have_gaps_and_commas(tmp_path: Path) -> None:
    assert_same(rows_of(tmp_path, "1,,3\n4,5,6\n", fields=("0", "1"))[0], (np.int64(1), NAN))
    found = rows_of(tmp_path, "1,5;2,5\n3,5;4,5\n", fields=("0", "1"), decimal=",")
    assert_same(found, [(np.float64(1.5), np.float64(2.5)), (np.float64(3.5), np.float64(4.5))])


def test_thousands_of_columns_are_opened_and_read(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(3000)]
    values = (np.arange(3000) * np.arange(1, 4)[:, None]) % 7
    lines = [";".join(names), *(";".join(map(str, row)) for row in values)]
    rows = run(ps.from_files(write(tmp_path / "a.csv", "\n".join(lines))))
    assert [[int(row[name]) for name in names] for row in rows] == values.tolist()
    with pytest.raises(DataError, match=r"has no field 'z', only 'c0', .* and 2950 more"):
        ps.from_files(tmp_path / "a.csv", "z")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_dtype_that_is_none_is_named_by_column(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "a,b\n1,2\n")
    with pytest.raises(TypeError, match=r"spec of column 'a': dtype must be .* got 'flot32'\."):
        ps.from_files(tmp_path / "a.csv", spec={"a": "flot32"})
    with pytest.raises(ValueError, match="a cell of a CSV file is one value"):
        ps.from_files(tmp_path / "a.csv", spec={"a": ps.ArraySpec((3,), "f4")})


def test_packed_files_resume_at_any_batch_shuffle_and_are_named_when_damaged(
    tmp_path: Path,
) -> None:
    lines = [f"{n},{'t' * (n % 50)}" for n in range(60_000)]
    _, ds = both(tmp_path, "x,s\n" + "\n".join(lines), fields=("x", "s"))
    batched = ds.batch(1000)
    with batched.stream() as stream:
        batches, states = [], []
        for batch in stream:
            batches.append(batch)
            states.append(json.loads(json.dumps(stream.state())))
    assert np.concatenate([x for x, _ in batches]).tolist() == list(range(60_000))
    for done in (1, 31, 59):
        assert_same(run(batched.with_options(threads=0), state=states[done - 1]), batches[done:])
    assert sorted(int(x) for x, _ in ds.shuffle(seed=1)) == list(range(60_000))
    assert "unpacked from its beginning" in str(ds.explain())
    path = tmp_path / "a.csv.gz"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    cut = ps.from_files(path, "x")
    with pytest.raises(DataError, match=r"a\.csv\.gz.*GZIP data is cut off.*gzip -t"):
        run(cut.batch(100))
    with cut.with_options(on_error="skip").batch(100).stream() as stream:
        found = np.concatenate(list(stream))
        assert found.tolist() == list(range(len(found)))
        assert 10_000 < len(found) < 50_000
        assert "cut off" in stream.report().skipped[0]


def test_a_packed_file_without_the_name_of_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    with pytest.raises(DataError, match=r"a\.csv: is packed by gzip.*\.csv\.gz"):
        ps.from_files(tmp_path / "a.csv")
    (tmp_path / "a.csv.gz").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match=r"a\.csv\.gz.*is not packed by gzip"):
        ps.from_files(tmp_path / "a.csv.gz")


def test_types_are_those_of_the_first_file_that_has_rows(tmp_path: Path) -> None:
    for name, text in {"0": "a,b\n", "1": "a,b", "2": "a,b\n1,2.5\n", "3": "a,b\n"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    ds = ps.from_files(tmp_path / "*.csv")
    assert {name: str(one.dtype) for name, one in ds.spec.items()} == {"a": "int64", "b": "float64"}
    assert [(int(row["a"]), float(row["b"])) for row in ds] == [(1, 2.5)]
