"""CSV: columns by name, types found once and kept, and a line number for all that is wrong."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import Case, Conformance, assert_same, run
from tests.sources.formats import CLEAR, as_nobody, assert_names

import penstock as ps
from penstock.errors import DataError


def write(
    path: Path, header: list[str] | None, rows: list[list[Any]], delimiter: str = ","
) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        if header is not None:
            writer.writerow(header)
        writer.writerows(rows)


class TestCsv(Conformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        rows = [[i, i / 2, f"name {i}" * (i % 3)] for i in range(21)]
        write(tmp_path / "a.csv", ["id", "half", "name"], rows[:13])
        write(tmp_path / "b.csv", ["id", "half", "name"], rows[13:])
        expected = [
            {"id": np.int64(i), "half": np.float64(half), "name": name} for i, half, name in rows
        ]
        return Case(lambda: ps.from_files(tmp_path), expected)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12)


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), CELLS), min_size=1))
def test_what_was_written_comes_back(rows: list[tuple[int, float, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        write(path, ["i", "f", "s"], [[i, repr(f), f"<{s}>"] for i, f, s in rows])
        ds = ps.from_files(path, ("i", "f", "s"), spec={"f": "float64"})
        expected = [(np.int64(i), np.float64(f), f"<{s}>") for i, f, s in rows]
        found = run(ds)
        assert [(a, c) for a, _, c in found] == [(a, c) for a, _, c in expected]
        floats = [[row[1] for row in rows] for rows in (found, expected)]
        assert np.array_equal(*floats, equal_nan=True)


def test_long_files_are_resumed_at_any_batch_whatever_the_threads(tmp_path: Path) -> None:
    rows = [[i, f'say "{i}",\nand more' if i % 7 == 0 else f"{i}"] for i in range(40_000)]
    write(tmp_path / "a.csv", ["i", "s"], rows)
    ds = ps.from_files(tmp_path / "a.csv", ("i", "s")).batch(1000)
    states = []
    with ds.stream() as stream:
        batches = []
        for batch in stream:
            batches.append(batch)
            states.append(stream.state())
    assert np.concatenate([b[0] for b in batches]).tolist() == list(range(40_000))
    assert [s for b in batches for s in b[1]] == [row[1] for row in rows]
    for done in (1, 13, 39):
        assert_same(run(ds.with_options(threads=3), state=states[done - 1]), batches[done:])


def test_types_are_found_once_and_then_fixed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(path, ["x"], [[i] for i in range(100_000)] + [["7.5"]])
    with pytest.raises(
        DataError, match=r"a\.csv: line 100002: column 'x' is int64, got '7.5'.*spec=.*float64"
    ):
        run(ps.from_files(path).batch(100))
    ds = ps.from_files(path, spec={"x": "float64"}).batch(100)
    assert run(ds)[-1]["x"].tolist() == [7.5]


def test_a_spec_sets_types_and_integers_do_not_wrap(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(path, ["a", "b", "c", "d"], [[1, "true", "x", "-1"], [300, "0", "y", "2"]])
    ds = ps.from_files(path, spec={"a": "int16", "b": bool, "c": bytes})
    row = run(ds)[1]
    assert (row["a"].dtype, row["a"], row["b"], row["c"]) == (np.int16, 300, False, b"y")
    for spec in ({"a": "int8"}, {"d": "uint8"}):
        with pytest.raises(DataError, match=r"line [23]: column '[ad]' is u?int8, got"):
            run(ps.from_files(path, spec=spec))
    with pytest.raises(
        DataError, match=r"a\.csv: spec names 'z', and the columns are 'a', 'b', 'c', 'd'"
    ):
        ps.from_files(path, spec={"z": "f4"})
    with pytest.raises(TypeError, match="must be a dict of columns"):
        ps.from_files(path, spec=ps.ArraySpec((), "f4"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", r"line 3 has 1 columns, and the header has 2 \(a, b\)"),
        ("a,b\n1,2\n\n3,4,5\n", r"line 4 has 3 columns"),
        (f"a,b\n1,{2**60}\n3,\n", r"line 3: column 'b' has whole numbers beyond 2\*\*53.*float64"),
        ('a,b\n1,"2\n3,4\n', r"line 2: .*quote"),
        ('a,b\n1,2\n3,"x"y\n5,6\n', r"line 3: .*expected after.*quote"),
        ("a\n" + "1\n" * 200_000 + '"4\n5\n', r"line 200002: .*quote"),
        ("a,a\n1,2\n", r"two columns called 'a'"),
        ("", r"is empty"),
        ("\n\n", r"is empty"),
    ],
)
def test_bad_tables_are_named_by_line_with_the_cure(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=rf"a\.csv.*{message}"):
        run(ps.from_files(tmp_path / "a.csv"))


def test_not_a_number_among_whole_numbers_is_an_error_and_among_others_a_value(
    tmp_path: Path,
) -> None:
    rows = [[i] for i in range(100_000)] + [["NaN"]]
    write(tmp_path / "a.csv", ["length"], rows)
    with pytest.raises(DataError, match=r"line 100002: column 'length' is int64, got 'NaN'"):
        run(ps.from_files(tmp_path / "a.csv").batch(1000))
    write(tmp_path / "b.csv", ["x"], [[0.5], ["nan"], ["-inf"]])
    values = [float(row["x"]) for row in run(ps.from_files(tmp_path / "b.csv"))]
    assert np.isnan(values[1])
    assert values[2] == -np.inf


def test_bytes_that_are_no_text_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"name\nfine\ncaf\xe9\n")
    with pytest.raises(DataError, match=r"a\.csv, byte 13: line 3 is not UTF-8.*iconv"):
        ps.from_files(tmp_path / "a.csv")


def test_numbers_without_a_header_tabs_and_marks_are_understood(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "a.csv", np.arange(6).reshape(3, 2), delimiter=",")
    assert run(ps.from_files(tmp_path / "a.csv", ("1", "0")))[2] == (5.0, 4.0)
    write(tmp_path / "b.tsv", ["a", "b"], [[1, "x,y"]], delimiter="\t")
    assert run(ps.from_files(tmp_path / "b.tsv")) == [{"a": 1, "b": "x,y"}]
    (tmp_path / "c.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4")
    assert run(ps.from_files(tmp_path / "c.csv")) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


def test_files_with_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", ["x"], [[1]])
    write(tmp_path / "b.csv", ["y"], [[1]])
    with pytest.raises(ValueError, match=r"same columns, got x in .*a\.csv and y in .*b\.csv"):
        ps.from_files(tmp_path)


def test_a_file_that_changes_vanishes_or_may_not_be_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    write(path, ["x"], [[i] for i in range(100_000)])
    ds = ps.from_files(path).batch(100).with_options(threads=0)
    with ds.stream() as stream:
        next(stream)
        path.write_bytes(path.read_bytes()[:300_000])
        with pytest.raises(DataError, match=r"a\.csv.*(shrank|changed)"):
            list(stream)
    path.unlink()
    with pytest.raises(DataError, match=r"a\.csv.*vanished"):
        run(ds)
    write(path, ["x"], [[1]])
    path.chmod(0)
    with as_nobody(tmp_path), pytest.raises(PermissionError, match="chmod"):
        ps.from_files(path)


@pytest.mark.filterwarnings("ignore:.*taken for the names")
@given(st.binary(max_size=60))
def test_any_bytes_give_rows_or_a_clear_error(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.csv").write_bytes(data)
        try:
            run(ps.from_files(f"{folder}/a.csv"))
        except CLEAR as error:
            assert_names(error, "a.csv")


def test_bad_quotes_leave_a_file_that_is_read_forward_and_caches_for_an_exact_shuffle(
    tmp_path: Path,
) -> None:
    lines = [f"{i}" for i in range(100_000)]
    (tmp_path / "a.csv").write_text("\n".join(["x", *lines, '"1" 2', *lines]))
    ds = ps.from_files(tmp_path / "a.csv", "x")
    assert "read forward" in str(ds.explain())
    with pytest.raises(TypeError, match="length"):
        len(ds)
    with pytest.raises(DataError, match=r"a\.csv.*: line 100002: ',' expected after '\"'"):
        run(ds.batch(1000))
    with pytest.raises(ps.StateError):
        good = tmp_path / "good.csv"
        good.write_text("\n".join(["x", *lines]))
        with ds.take(10).stream() as stream:
            state = stream.state()
        run(ps.from_files(good, "x").take(10), state=state)
    exact = run(ds.with_options(on_error="skip").take(500).cache().shuffle(seed=3))
    assert_same(exact, run(ps.from_arrays(np.arange(500)).shuffle(seed=3)))
