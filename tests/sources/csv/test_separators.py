"""Which separator a file has, by its first rows."""

import pytest

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
