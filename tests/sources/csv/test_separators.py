"""Which separator a file has, by its first rows."""

from pathlib import Path

import pandas as pd
import pytest

import penstock as ps
from penstock.sources.csv.separators import found_separator


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("one\n1\n", ","),
        ("a,b;c\n1,2;3\n", ","),
        ("a;b,c;d\n1;2;3\n", ";"),
        ("a;b\n1,5;2,25\n", ";"),
        ("1,5;2,25\n3,5;4,5\n", ";"),
        ("a,b\n1;2,3\n4,5\n", ","),
        ('id,"x;y"\n1,"a;b"\n', ","),
        ('id;"x,y,z"\n1;"a,b,c"\n', ";"),
        ("a\tb c\n1\t2, 3\n", "\t"),
        ("a|b\n1|2\n", "|"),
        ("a;b\n", ";"),
        ("", ","),
    ],
)
def test_the_separator_is_that_of_most_rows(text: str, separator: str) -> None:
    assert found_separator(text, is_whole=True) == separator


def test_a_last_row_that_is_cut_does_not_count() -> None:
    assert found_separator("a;b;c\n1;2;3\n4;5", is_whole=False) == ";"
    assert found_separator("a,b\n" + "1,2\n" * 500 + "5;6;7", is_whole=True) == ","


def test_a_comma_is_no_separator_where_it_is_the_decimal_mark() -> None:
    assert found_separator("1,5\n2,5\n", is_whole=True, decimal=",") == ";"


@pytest.mark.parametrize("text", ["a,b\n1,2\n", 'a,b\n"1,5","2,25"\n'])
def test_commas_between_cells_that_are_to_be_decimal_marks_are_told(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(ps.DataError, match="between its cells, which is the decimal mark"):
        ps.from_files(path, decimal=",")
    pd.read_csv(path, decimal=",").to_csv(path, index=False)  # As the cure says.
    assert len(list(ps.from_files(path))) == 1


@pytest.mark.parametrize("text", ["a\n1,5\n", "a;b\n1,5;2\n", "a\tb\n1,5\t2\n"])
def test_decimal_commas_between_other_separators_are_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    assert next(iter(ps.from_files(path, decimal=",")))["a"] == 1.5
