"""The first look at JSON Lines: fields from objects in objects, types, gaps, packed files, and what can't be read."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, Conformance, assert_same, run

import penstock as ps
from penstock.core.rows import Flow, Rows
from penstock.errors import DataError, FieldError, PenstockWarning
from penstock.sources.jsonl import parsing

ROWS = [
    {
        "id": n,
        "user": {"name": "x" * (n % 3), "score": n / 2 if n % 4 else None},
        "tokens": list(range(n % 5)),
    }
    for n in range(21)
]
EXPECTED = [
    {
        "id": np.int64(row["id"]),
        "tokens": np.array(row["tokens"], np.int64),
        "user": {
            "name": row["user"]["name"],
            "score": np.float64("nan" if row["user"]["score"] is None else row["user"]["score"]),
        },
    }
    for row in ROWS
]


def write(path: Path, rows: list[Any], end: str = "\n") -> Path:
    data = end.join(map(json.dumps, rows)).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


class TestPlain(Conformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        write(tmp_path / "a.jsonl", ROWS[:13])
        write(tmp_path / "b.ndjson", ROWS[13:])
        return Case(lambda: ps.from_files(tmp_path), EXPECTED)


class TestPacked(Conformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        write(tmp_path / "a.jsonl.gz", ROWS[:13])
        write(tmp_path / "b.ndjson.gz", ROWS[13:])
        return Case(lambda: ps.from_files(tmp_path), EXPECTED, has_length=False)


def test_fields_are_chosen_by_their_place_and_types_set_by_name(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.jsonl.gz"):
        path = write(tmp_path / name, ROWS)
        ds = ps.from_files(
            path, ("user.score", {"n": "id"}), spec={"user.score": "float32", "id": "int8"}
        )
        assert isinstance(ds.node, Rows if name == "a.jsonl" else Flow)
        assert ds.spec == (ps.ArraySpec((), "float32"), {"n": ps.ArraySpec((), "int8")})
        assert [int(row[1]["n"]) for row in run(ds)] == list(range(21))
        with pytest.raises(
            DataError, match=r"has no field 'user', only 'id', 'user.name', 'user.score'"
        ):
            ps.from_files(path, "user")
        with pytest.raises(DataError, match="spec names 'age', and the columns are 'id'"):
            ps.from_files(path, spec={"age": "float32"})
        rare = ps.from_files(path, ("id", "age"), spec={"age": "float32"})
        assert np.isnan(run(rare)[0][1])


def test_lists_of_one_length_have_a_shape_by_the_spec(tmp_path: Path) -> None:
    rows = [{"v": [n, n + 0.5], "m": [[n, 1], [2, 3]], "r": [[n]] * n} for n in range(3)]
    spec = {
        "v": ps.ArraySpec((2,), "float32"),
        "m": ps.ArraySpec((2, 2), "int16"),
        "r": ps.ArraySpec((None, 1), "float64"),
    }
    ds = ps.from_files(write(tmp_path / "a.jsonl", rows), spec=spec)
    expected = [
        {
            "m": np.array(row["m"], "int16"),
            "r": np.array(row["r"], "float64").reshape(-1, 1),
            "v": np.array(row["v"], "float32"),
        }
        for row in rows
    ]
    assert_same(run(ds), expected)
    write(tmp_path / "b.jsonl", [*rows, {"v": [1], "m": [[1, 2], [3, 4]], "r": []}])
    with pytest.raises(
        DataError, match=r"line 4: field 'v' is float32 in lists of shape \(2,\), got \[1\]"
    ):
        run(ps.from_files(tmp_path / "b.jsonl", spec=spec))
    for wrong in (ps.ArraySpec((2, None), "f4"), ps.ArraySpec((2,), str), "complex64"):
        with pytest.raises(ValueError, match="only the first length may differ, got"):
            ps.from_files(tmp_path / "a.jsonl", spec={"v": wrong})


@pytest.mark.parametrize("late", [{"age": 2.5}, {"age": None}, {}])
def test_whole_numbers_that_turn_out_otherwise_are_an_error_with_the_cure(
    tmp_path: Path, late: dict[str, Any]
) -> None:
    for name in ("a.jsonl", "a.jsonl.gz"):
        path = write(tmp_path / name, [{"age": 30}] * 30_000 + [late])
        match = r"line 30001: field 'age' is int64, got .*spec={'age': \"float32\"}"
        with pytest.raises(DataError, match=match):
            run(ps.from_files(path).batch(1000))
        assert len(run(ps.from_files(path, spec={"age": "float32"}).batch(1))) == 30_001


@pytest.mark.parametrize(
    ("usual", "late", "cure"),
    [
        (1, 2**64 - 1, r"spec={'id': \"uint64\"} holds it, and spec={'id': \"float64\"}"),
        (1, 2**64, r"\. spec={'id': \"float64\"} reads rounded"),
        (2**64 - 1, -1, r"\. spec={'id': \"float64\"} reads rounded"),
    ],
)
@pytest.mark.parametrize("has_arrow", [True, False])
def test_whole_numbers_beyond_the_type_are_never_other_ones(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    usual: int,
    late: int,
    cure: str,
    has_arrow: bool,
) -> None:
    if not has_arrow:
        monkeypatch.setattr(parsing, "arrow", lambda: None)
    dtype = "int64" if usual == 1 else "uint64"
    for name in ("a.jsonl", "a.jsonl.gz"):
        path = write(tmp_path / name, [{"id": usual}] * 30_000 + [{"id": late}])
        ds = ps.from_files(path, "id", spec={"id": dtype})
        assert_same(run(ds.take(1)), [np.dtype(dtype).type(usual)])
        match = rf"line 30001: field 'id' is {dtype}, got {late}.*{cure}"
        with pytest.raises(DataError, match=match):
            run(ds.batch(1000))


@pytest.mark.parametrize("has_arrow", [True, False])
def test_a_time_that_the_unit_does_not_hold_is_an_error_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_arrow: bool
) -> None:
    if not has_arrow:
        monkeypatch.setattr(parsing, "arrow", lambda: None)
    for name in ("a.jsonl", "a.jsonl.gz"):
        path = write(tmp_path / name, [{"d": "1970-01-01"}, {"d": "2500-01-01"}, {"d": None}])
        ds = ps.from_files(path, "d", spec={"d": "datetime64[ns]"})
        match = r"line 2: field 'd' is .*\"2500-01-01\".*spec={'d': \"datetime64\[us\]\"} holds"
        with pytest.raises(DataError, match=match):
            run(ds)
        assert len(run(ds.with_options(on_error="skip"))) == 2
        path = write(tmp_path / name, [{"d": "20240131"}])
        with pytest.raises(DataError, match=r"line 1: .*written as 2024-01-31"):
            run(ps.from_files(path, "d", spec={"d": "datetime64[D]"}))
        path = write(tmp_path / name, [{"d": "2024-01-01T00:30:00.75+01:00"}])
        ds = ps.from_files(path, "d", spec={"d": "datetime64[s]"})
        assert run(ds)[0] == np.datetime64("2023-12-31T23:30:00")
    with pytest.raises(ValueError, match="must have a unit, got datetime64"):
        ps.from_files(path, "d", spec={"d": "datetime64"})


@pytest.mark.parametrize("has_arrow", [True, False])
@pytest.mark.parametrize("in_list", [True, False])
def test_large_whole_numbers_after_the_first_look_are_not_rounded_among_gaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_arrow: bool, in_list: bool
) -> None:
    if not has_arrow:
        monkeypatch.setattr(parsing, "arrow", lambda: None)

    def row(value: Any) -> dict[str, Any]:
        return {"a": {"x": [value]} if in_list else {"x": value}}

    spec = ps.ArraySpec((None,) if in_list else (), "float64")
    for name in ("a.jsonl", "a.jsonl.gz"):
        usual = [row(None)] + [row(1)] * 25_000
        path = write(tmp_path / name, [*usual, row(-(2**53) - 1)])
        match = (
            rf"line 25002: field 'a.x' is float64, .*up to 2\*\*53, got -{2**53 + 1}.*spec={{'a.x'"
        )
        with pytest.raises(DataError, match=match):
            run(ps.from_files(path, "a.x"))
        assert np.sum(run(ps.from_files(path, "a.x", spec={"a.x": spec}))[-1]) == -(2.0**53)
        path = write(tmp_path / name, [*usual, row(2**53), row(1e300)])
        assert [np.sum(one) for one in run(ps.from_files(path, "a.x"))[-2:]] == [2.0**53, 1e300]


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ([1, "x"], "is a number and text, depending on the line"),
        ([None, None], "has no value in the first 256 KB"),
        ([True, None], "a truth can't be"),
        ([[1], None], "a list can't be"),
        ([[[1]], [[2]]], "has lists of lists"),
        ([[{}], []], "has lists of an object"),
        ([[], []], "has lists of nothing"),
        ([{}, {}], "has only empty objects"),
        ([2**60, None], r"whole numbers beyond 2\*\*53"),
        ([2**70, 1], r"whole numbers beyond 2\*\*53"),
    ],
)
def test_a_field_that_can_not_be_read_is_left_out_with_a_warning_unless_it_is_named(
    tmp_path: Path, values: list[Any], what: str
) -> None:
    path = write(tmp_path / "a.jsonl", [{"odd": value, "x": n} for n, value in enumerate(values)])
    with pytest.warns(PenstockWarning, match=rf"a\.jsonl: field 'odd' .*{what}"):
        ds = ps.from_files(path)
    assert_same(run(ds), [{"x": np.int64(n)} for n in range(len(values))])
    with pytest.raises(FieldError, match=what):
        ps.from_files(path, ("odd", "x"))


@pytest.mark.parametrize(
    ("values", "cure"),
    [
        ([2**70, 1], r"spec={'id': \"float64\"} with fields"),
        ([2**64 - 1, -1], r"spec={'id': \"float64\"} with fields"),
        ([2**64 - 1, 1], r"spec={'id': \"uint64\"} \(or \"float64\", which rounds them\) with"),
    ],
)
def test_whole_numbers_beyond_int64_name_the_type_that_holds_them(
    tmp_path: Path, values: list[int], cure: str
) -> None:
    path = write(tmp_path / "a.jsonl", [{"id": value} for value in values])
    with pytest.raises(FieldError, match=rf"field 'id' has whole numbers beyond.*{cure}"):
        ps.from_files(path, "id")


def test_a_field_in_objects_that_are_none_in_other_lines_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"a": {"b": 1}, "x": 1}, {"a": 5, "x": 2}])
    with pytest.warns(
        PenstockWarning, match=r"field 'a.b' is in objects in some lines, and 'a' is no object"
    ):
        assert len(ps.from_files(path)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "has no rows"),
        (b"\n\r\n", "has no rows"),
        (b'{"a": 1}\n[1]\n', r"line 2 is a list, and a row must be an object"),
        (b'{"a": 1}\n\n{"a": \n', r"line 3 is no JSON: Expecting value at character 7"),
        (b'{"a": 1}\n \t\n{"a": 2}\n', r"line 2 has spaces and no row.*Remove them"),
        (b'[\n{"a": 1}\n]\n', r"line 1 is no JSON.*Each line must be an object"),
        (b'{"a": "\xff"}\n', r"line 1 is not UTF-8.*iconv -f latin1 -t utf-8"),
        (b'{"a": 1}\n{\0"\0a\0"\0:\0 \0001\0}\0\n', "line 2 is not UTF-8.*iconv -f utf-16"),
        (b'{"a": 1}\n{"a": "\0"}\n', "line 2 is no JSON"),
        (b'{"a.b": 1, "a": {"b": 2}}\n', "two fields are called 'a.b'"),
        (b"{}\n", "has objects without keys only"),
        (b"\x1f\x8b\x08aaaa", "is packed by gzip"),
        (b'{"a": ' + b"[" * 100_000 + b"\n", "line 1 can't be read as JSON"),
    ],
)
def test_bad_files_are_named_by_line_with_the_cure(
    tmp_path: Path, text: bytes, message: str
) -> None:
    (tmp_path / "a.jsonl").write_bytes(text)
    with pytest.raises(DataError, match=rf"a\.jsonl.*{message}"):
        ps.from_files(tmp_path / "a.jsonl")


def test_bad_lines_among_the_first_are_skipped_and_a_mark_is_no_part_of_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\nbad\n{"a": 2}\n{"a": "x"}\n')
    with pytest.raises(DataError, match="line 2 is no JSON") as caught:
        ps.from_files(tmp_path / "a.jsonl")
    assert "on_error='skip'" in caught.value.__notes__[0]
    ds = ps.from_files(tmp_path / "a.jsonl", spec={"a": "int64"}, on_error="skip")
    with ds.with_options(on_error="skip").stream() as stream:
        assert [int(row["a"]) for row in stream] == [1, 2]
        assert ["line 2" in stream.report().skipped[0], "line 4" in stream.report().skipped[1]] == [
            True,
            True,
        ]


def test_a_field_with_a_dot_that_was_not_met_may_be_in_an_object_that_was(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1, "a": {"c": 1}}\n' * 20_000 + '{"x": 1, "a": {"b": 2.5}}\n')
    ds = ps.from_files(path, fields=("x", "a.b"), spec={"a.b": "float32"})
    assert [float(b) for _, b in ds.skip(20_000)] == [2.5]
    # Else it may be a key of that name, too, and would be missing in silence.
    path.write_text('{"x": 1}\n' * 40_000 + '{"x": 1, "a.b": 2.5}\n')
    with pytest.raises(DataError, match=r"a key of that name, or in an object 'a'. Put a file"):
        ps.from_files(path, fields=("x", "a.b"), spec={"a.b": "float32"})


@pytest.mark.parametrize("value", ["5", "[]", '"text"'])
def test_what_is_no_object_any_more_is_told(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"o": {"z": {"y": 1.5}}}\n' * 20_000 + f'{{"o": {{"z": {value}}}}}\n')
    with pytest.raises(DataError, match=rf"line 20001: .*'o\.z' is none, got {re.escape(value)}"):
        run(ps.from_files(path))


LISTS = {
    "a larger float": ((None,), "float32", "[1e300]", '((None,), "float64")} holds it'),
    "a larger number": ((None,), "int16", "[70000]", '((None,), "int64")} holds it'),
    "one of a uint64": ((None,), "int64", "[9223372036854775808]", '"uint64")} holds it'),
    "one that none holds": ((None,), "int64", "[-1, 18446744073709551615]", "rounded numbers"),
    "a decimal": ((None,), "int64", "[1.5]", '((None,), "float64")} holds it'),
    "a longer list": ((2,), "int16", "[1, 2, 3]", '((None,), "int16")} holds it'),
    "no list": ((None,), "float32", "2.5", "leave the field out"),
    "a list of lists": ((2,), "float32", "[[1, 2], [3, 4]]", "leave the field out"),
    "a truth": ((None,), "float32", "[true]", "leave the field out"),
    "text": ((None,), "float32", '["a"]', "leave the field out"),
}


@pytest.mark.parametrize("name", LISTS)
def test_the_cure_of_a_list_is_a_spec_that_holds_it(tmp_path: Path, name: str) -> None:
    shape, dtype, value, words = LISTS[name]
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": [1, 2]}}\n{{"a": {value}}}\n')
    with pytest.raises(DataError, match="line 2: field 'a'") as caught:
        run(ps.from_files(path, spec={"a": ps.ArraySpec(shape, dtype)}))
    message = str(caught.value)
    assert words in message
    found = re.search(r"spec=(\{.*?\)\})", message)
    assert (found is None) == ("leave" in words)
    if found is not None:
        assert len(run(ps.from_files(path, spec=eval(found[1], {"ps": ps})))) == 2
