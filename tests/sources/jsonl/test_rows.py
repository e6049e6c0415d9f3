"""JSON Lines with random access: all that a format must do, and every row as Python's json reads it."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import assert_same, run
from tests.sources.csv.test_rows import read, small_runs
from tests.sources.formats import Columns, FormatSuite

import penstock as ps
from penstock.core.rows import Rows
from penstock.errors import DataError
from penstock.sources.jsonl import parsing
from penstock.sources.jsonl.flow import JsonFlow
from penstock.sources.jsonl.rows import JsonRows
from penstock.sources.reading.parsed_rows import ParsedRows


class TestJsonLines(FormatSuite):
    suffix = ".jsonl"
    options: ClassVar[dict[str, Any]] = {"spec": {"x": ps.ArraySpec((3,), "float32")}}

    def write(self, path: Path, columns: Columns) -> None:
        names = list(columns)
        rows = zip(*(columns[name].tolist() for name in names), strict=True)
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        # Without a last line end, and with lines of odd lengths, so that no cut is at the end of a line.
        path.write_text("\n".join(line[:-1] + "  }" for line in lines))

    def test_files_of_other_dtypes_are_refused_by_name(self, tmp_path: Path) -> None:
        """Numbers have no dtype here: a value that is none of its field is named when it is read."""
        (tmp_path / "a.jsonl").write_text('{"y": 1}\n')
        (tmp_path / "b.jsonl").write_text('{"y": "one"}\n')
        with pytest.raises(DataError, match=r"b\.jsonl: line 1: field 'y' is int64, got \"one\""):
            run(ps.from_files(tmp_path))


TEXTS = st.text(max_size=6)
LARGEST = float(np.finfo("f4").max)  # What is larger is an error: the column is float32.
FLOATS = st.floats(-LARGEST, LARGEST) | st.sampled_from([np.inf, -np.inf])
NUMBERS = st.integers(-(2**40), 2**40)
OBJECTS = st.fixed_dictionaries(
    {"i": NUMBERS, "b": st.booleans(), "l": st.lists(NUMBERS, max_size=3)},
    optional={
        "f": st.none() | FLOATS | NUMBERS,
        "s": st.none() | TEXTS,
        "o": st.none() | st.fixed_dictionaries({}, optional={"p": st.none() | NUMBERS, "x": TEXTS}),
        "t": st.just("2024-02-03"),
        "unknown": st.recursive(st.none() | NUMBERS | TEXTS, st.lists, max_leaves=3),
    },
)
FIELDS = ("i", "b", "l", "f", "s", "o.p", "t", "tags")
NUM_PLAIN = 6
"""How many fields, from the first on, native code reads, if all that are wanted are such."""
SPEC = {
    "i": "int64",
    "b": bool,
    "l": ps.ArraySpec((None,), "int64"),
    "f": "float32",
    "s": str,
    "o.p": "float64",
    "t": "datetime64[D]",
    "tags": ps.ArraySpec((None,), str),
}


def expected_of(row: dict[str, Any]) -> list[Any]:
    inner = (row.get("o") or {}).get("p")
    number = row.get("f")
    with np.errstate(over="ignore"):
        return [
            np.int64(row["i"]),
            np.bool_(row["b"]),
            np.array(row["l"], np.int64),
            np.float32(np.nan if number is None else np.float64(number)),
            row.get("s") or "",
            np.float64(np.nan if inner is None else inner),
            np.datetime64(row.get("t", "NaT"), "D"),
            np.array(row["tags"], object),
        ]


@given(
    st.lists(OBJECTS, min_size=1, max_size=20),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
    st.integers(20, 300),
    st.booleans(),
    st.booleans(),
    st.data(),
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_any_rows_are_those_of_python_s_json(
    objects: list[dict[str, Any]],
    end: str,
    nbytes: int,
    has_arrow: bool,
    is_ascii: bool,
    data: st.DataObject,
) -> None:
    for row in objects:
        row["tags"] = data.draw(st.lists(TEXTS, max_size=2))
    text = end.join(json.dumps(row, ensure_ascii=is_ascii) for row in objects)
    fields = FIELDS[: data.draw(st.sampled_from([NUM_PLAIN, len(FIELDS)]))]
    wanted = [expected_of(row)[: len(fields)] for row in objects]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        small_runs(patch, nbytes)
        if not has_arrow:
            patch.setattr(parsing, "arrow", lambda: None)
        path = Path(folder) / "a.jsonl"
        path.write_bytes(text.encode() + data.draw(st.sampled_from([b"", end.encode()])))
        ds = ps.from_files(path, fields, spec={name: SPEC[name] for name in fields})
        assert len(ds) == len(wanted)
        assert_same(run(ds), [tuple(row) for row in wanted])
        assert_same(run(ds.with_options(on_error="skip")), [tuple(row) for row in wanted])
        chosen = np.array(data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=9)), int)
        if len(chosen):
            assert isinstance(ds.node, Rows)
            found = [tuple(row) for row in read(ds.node, chosen)]
            assert_same(found, [tuple(wanted[row]) for row in chosen.tolist()])


def test_most_rows_are_parsed_by_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JsonRows, "_put_slowly", lambda *_: pytest.fail("Python was asked"))
    text = '{"a": 1, "o": {"s": "é\\n", "v": [1, 2.5]}, "t": ["x"]}\n\n{"a": null, "o": {"v": []}, "t": []}\r\n'
    (tmp_path / "a.jsonl").write_text(text, encoding="utf-8", newline="")
    rows = run(ps.from_files(tmp_path / "a.jsonl"))
    assert_same(
        rows,
        [
            {
                "a": np.float64(1),
                "o": {"s": "é\n", "v": np.array([1, 2.5])},
                "t": np.array(["x"], object),
            },
            {
                "a": np.float64("nan"),
                "o": {"s": "", "v": np.array([], "f8")},
                "t": np.array([], object),
            },
        ],
    )


PLAIN = ("int8", "uint16", "int64", "uint64", "float16", "float32", "float64", ">f4", "bool")


@pytest.mark.parametrize("dtype", PLAIN)
@pytest.mark.parametrize("shape", [(), (3,), (None,)])
@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
def test_numbers_are_those_of_python_and_need_no_pyarrow(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    shape: tuple[int | None, ...],
    ending: str,
) -> None:
    size = tuple(size or 3 for size in shape)
    values = np.random.default_rng(0).integers(-100, 100, (50, *size)) % 128 / 4
    values = (values if np.dtype(dtype).kind == "f" else values.astype("i8") % 2).astype(dtype)
    text = "\n".join(json.dumps({"no": 0, "x": value}) for value in values.tolist())
    path = tmp_path / f"a.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    monkeypatch.setattr(parsing, "arrow", lambda: None)
    if dtype != "uint64" and (dtype, shape) != ("bool", (None,)):
        monkeypatch.setattr(ParsedRows, "_put_slowly", lambda *_: pytest.fail("Python was asked"))
        monkeypatch.setattr(JsonFlow, "raw_rows", lambda *_: pytest.fail("Python was asked"))
    ds = ps.from_files(path, "x", spec={"x": ps.ArraySpec(shape, dtype)})
    assert_same(run(ds), list(values))


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        *(("int8", 128, "int8, got 128"), ("uint8", -1, "uint8, got -1")),
        *(("uint64", 2**64, "uint64, got 18446744073709551616"), ("int64", 1.0, "int64, got 1.0")),
        *(("float32", 1e39, "float32, got 1e"), ("float16", 70000, "float16, got 70000")),
        *(("int64", 2**63, "int64, got 9223372036854775808"), ("bool", 1, "bool, got 1")),
        *(("int64", None, "int64, got null"), ("float64", True, "float64, got true")),
    ],
)
def test_a_number_that_does_not_fit_its_field_is_named(
    tmp_path: Path, dtype: str, value: Any, wanted: str
) -> None:
    lines = [json.dumps({"x": one}) for one in (True if dtype == "bool" else 1, value)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    ds = ps.from_files(tmp_path / "a.jsonl", spec={"x": dtype})
    with pytest.raises(DataError, match=rf"a\.jsonl: line 2: field 'x' is {wanted}"):
        run(ds)


@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("kind", [str, bytes])
def test_texts_in_objects_are_those_of_python_and_need_no_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, is_ascii: bool
) -> None:
    texts = ["", "a", "é\n", 'a "quote" and a \\', "😀" * 9, "x" * 100, None, "\x00\x1f\x7f"] * 20
    rows = [{"o": {"no": [{"s": text}], "s": text}} for text in texts]
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(row, ensure_ascii=is_ascii) for row in [*rows, {"o": None}, {}]]
    path.write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(parsing, "arrow", lambda: None)
    monkeypatch.setattr(ParsedRows, "_put_slowly", lambda *_: pytest.fail("Python was asked"))
    found = run(ps.from_files(path, "o.s", spec={"o.s": kind}))
    wanted = [text or "" for text in [*texts, None, None]]
    assert found == (wanted if kind is str else [text.encode() for text in wanted])


def test_whole_numbers_with_gaps_are_never_rounded(tmp_path: Path) -> None:
    text = '{"x": 1}\n{"x": null}\n' + '{"x": 2}\n' * 40_000
    (tmp_path / "a.jsonl").write_text(f'{text}{{"x": 9007199254740993}}\n')
    with pytest.raises(DataError, match=r"line 40003: field 'x' is float64, since it has whole"):
        run(ps.from_files(tmp_path / "a.jsonl"))
    run(ps.from_files(tmp_path / "a.jsonl", spec={"x": "float64"}))


LINES = [
    *("null", "[1]", "1", "{", '{"a": 1', '{"a": 1} {"a": 2}', '{"a": 1}{"a": 2}', '{"a": 1},'),
    *(
        '{"a": 01}',
        "{'a': 1}",
        '{"a": 1, }',
        '{"a": 1} // note',
        "   ",
        '{"a": "x"}',
        '{"a": true}',
    ),
    *('{"a": 1.0}', '{"a": 1e2}', '{"a": 9223372036854775808}', '{"a": null}', "{}", '{"a": [1]}'),
    *('{"a": {"b": 1}}', '{"a": NaN}', '{"a": "\\ud800"}', '{"b": "\t", "a": 1}', '{"a": \r1}'),
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_no_such_row_is_named_alike_and_skipped_alone(
    tmp_path: Path, line: str
) -> None:
    text = ('{"a": 1, "p": "' + "x" * 1000 + '"}\n') * 300 + line + '\n{"a": 3}\n'
    (tmp_path / "a.jsonl").write_bytes(text.encode("utf-8", "surrogatepass"))
    ds = ps.from_files(tmp_path / "a.jsonl", "a")
    for one in (ds.batch(100), ds.skip(290), ds.shuffle(seed=1)):
        with pytest.raises(DataError, match=r"a\.jsonl.*line 301"):
            run(one)
    with ds.with_options(on_error="skip").batch(500).stream() as stream:
        (found,) = stream
        assert found.tolist() == [1] * 300 + [3]
        assert "line 301" in stream.report().skipped[0]


def test_lines_that_only_python_reads_are_read(tmp_path: Path) -> None:
    text = '  {"a": 1}  \n{"a": 2, "a": 3}\n{"a": 4, "b": "\\ud83d"}\n{"a": 1e400}\n'
    (tmp_path / "a.jsonl").write_text(text)
    assert [float(row) for row in run(ps.from_files(tmp_path / "a.jsonl", "a"))] == [
        1,
        3,
        4,
        np.inf,
    ]


def test_a_key_that_is_half_of_a_letter_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"\\ud800": 1}\n')
    assert list(ps.from_files(tmp_path / "a.jsonl")) == [{"\ud800": 1}]
