"""CSV with random access: every row by its number, as Python's csv reads it, whatever the quotes and the line ends."""

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import assert_same, run

import penstock as ps
from penstock.core.fields import allocate_block
from penstock.core.rows import Rows, plain_context
from penstock.errors import DataError, FileChangedError, StateError
from penstock.io.formats import lines
from penstock.memory import allocate_plain
from penstock.sources.csv import parsing, rows
from penstock.sources.reading import line_index, line_rows, parsed_rows

CELLS = st.text(st.sampled_from('ab,"\n\r 0xné'), max_size=6)
ROWS = st.lists(st.tuples(st.integers(-(2**31), 2**31), st.floats(width=32), CELLS), max_size=25)


def small_runs(patch: pytest.MonkeyPatch, nbytes: int) -> None:
    """Runs and reads of a few bytes, so that few rows are many of both."""
    patch.setattr(line_index, "RUN_NBYTES", nbytes)
    patch.setattr(line_rows, "RUN_NBYTES", nbytes)
    patch.setattr(line_rows, "PIECE_NBYTES", 3 * nbytes)
    patch.setattr(line_index, "PIECE_NBYTES", 2 * nbytes)
    patch.setattr(parsed_rows, "_SLOW_NBYTES", nbytes)


def read(node: Rows, index: Any) -> list[list[Any]]:
    size = index.stop - index.start if isinstance(index, slice) else len(index)
    block = allocate_block(node.fields, size, allocate_plain, aligned=False)
    context = plain_context()
    try:
        node.read(index, block, context)
    finally:
        context.resources.close()
    return [block.row(row) for row in range(size)] if block.finish() else []


@given(
    ROWS,
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 200),
    st.booleans(),
    st.booleans(),
    st.sampled_from([",", "\t"]),
    st.data(),
)
def test_any_rows_are_those_of_python_s_csv(
    wanted: list[tuple[int, float, str]],
    end: str,
    nbytes: int,
    has_end: bool,
    has_arrow: bool,
    delimiter: str,
    data: st.DataObject,
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_MINIMAL)
    writer.writerow(["i", "f", "s"])
    for i, f, s in wanted:
        # Python's writer leaves some line ends without quotes.
        writer.writerow(
            [i, repr(f), s.replace("\r", "").replace("\n", ";" if end == "\r" else "\n")]
        )
        if data.draw(st.integers(0, 5)) == 0:
            text.write(end)  # A blank line.
    content = text.getvalue().removesuffix("" if has_end else end)
    parsed = list(csv.reader(io.StringIO(content, newline=""), delimiter=delimiter, strict=True))[
        1:
    ]
    expected = [
        (np.int64(i), np.float32(np.float64(f)), s) for i, f, s in (row for row in parsed if row)
    ]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        small_runs(patch, nbytes)
        if not has_arrow:
            patch.setattr(parsing, "arrow", lambda: None)
        path = Path(folder) / ("a.csv" if delimiter == "," else "a.tsv")
        path.write_bytes(content.encode())
        spec = {"i": "int64", "f": "float32", "s": str}
        ds = ps.from_files(path, ("i", "f", "s"), spec=spec)
        assert len(ds) == len(expected)
        assert_same(run(ds), expected)
        if not expected:
            return
        index = st.lists(st.integers(0, len(expected) - 1), max_size=20)
        chosen = np.array(data.draw(index), np.int64)
        assert isinstance(ds.node, Rows)
        assert_same(read(ds.node, chosen), [list(expected[row]) for row in chosen.tolist()])
        first, last = sorted(data.draw(st.tuples(*[st.integers(0, len(expected))] * 2)))
        assert_same(read(ds.node, slice(first, last)), [list(one) for one in expected[first:last]])


NUMBERS = [
    *(
        "1",
        " 2 ",
        "+3",
        "-4",
        "-0",
        "007",
        "00000000000000000000009",
        "99999999999999999999",
        "1_0",
        "0x1F",
        "٣",
    ),
    *("1e3", "2.5", "1.", ".5", "1e400", "1e-400", "1e-46", "3.4028236e38", "1,5", "", "x"),
    *("nan", "nan(5)", "NaN", "-nan", "inf", "-Infinity", "true", "TRUE", "tRue", "0"),
    *("NA", " NA ", "n/a", "null", "None", "na", " ", "-,5", "1,5e3", "1.234,5", "1,2,3", "1;5"),
]
DTYPES = [
    "int8",
    "uint8",
    "int64",
    "uint64",
    ">i4",
    "float16",
    "float32",
    "float64",
    "bool",
    "complex64",
    "S4",
    "U3",
]


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_a_cell_is_what_python_makes_of_it_or_refused_alike(
    tmp_path: Path, dtype: str, decimal: Literal[".", ","]
) -> None:
    separator = "," if decimal == "." else ";"
    for number, cell in enumerate(NUMBERS):
        found = []
        for has_arrow in (False, True):
            path = tmp_path / f"{number}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file, delimiter=separator)
                writer.writerows([["a", "b"], ["1", "1"], [cell, "2"], ["0", "3"]])
            with pytest.MonkeyPatch.context() as patch:
                if not has_arrow:
                    patch.setattr(parsing, "arrow", lambda: None)
                try:
                    ds = ps.from_files(path, ("a", "b"), spec={"a": dtype}, decimal=decimal)
                    found.append(run(ds))
                except DataError as error:
                    found.append(str(error))
        assert isinstance(found[1], str) == isinstance(found[0], str), cell
        if isinstance(found[0], str):
            assert found[0] == found[1]
            assert "line 3" in found[0]
        else:
            assert_same(found[1], found[0])


def test_most_cells_are_parsed_by_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows.CsvRows, "_put_slowly", lambda *_: pytest.fail("Python was asked"))
    text = 'a,b,c,d\n1,2.5,"x, ""y""\nz",true\n\n-3,nan,é,0\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    spec = {"d": bool, "c": bytes}
    found = run(ps.from_files(tmp_path / "a.csv", ("a", "b", "c", "d"), spec=spec))
    expected = [(1, 2.5, b'x, "y"\nz', True), (-3, np.nan, "é".encode(), False)]
    kinds = (np.int64, np.float64, bytes, np.bool_)
    assert_same(
        found,
        [tuple(kind(cell) for kind, cell in zip(kinds, row, strict=True)) for row in expected],
    )


def test_rows_are_those_of_pandas_in_file_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{n}": rng.normal(size=30_000) for n in range(4)})
    frame["y"], frame["name"] = (
        rng.integers(-9, 9, 30_000),
        [f'row {n}, "q"' for n in range(30_000)],
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    batches = run(ps.from_files(tmp_path / "a.csv").batch(1000))
    for (
        name
    ) in frame:  # As it was written: pandas itself, before 3.0, reads some numbers a digit off.
        found = np.concatenate([batch[name] for batch in batches])
        assert found.tolist() == frame[name].tolist()


def numbers(path: Path, count: int, start: int = 0) -> Path:
    path.write_text(
        "x,s\n" + "".join(f"{n},{'t' * (n % 40)}\n" for n in range(start, start + count))
    )
    return path


def test_shuffles_go_over_all_rows_of_all_files_and_are_resumed_at_once(tmp_path: Path) -> None:
    for number in range(5):
        numbers(tmp_path / f"{number}.csv", 20_000, 20_000 * number)
    ds = ps.from_files(tmp_path, ("x", "s")).shuffle(seed=3, window="200KB").batch(500)
    with ds.stream() as stream:
        batches, states = [], []
        for batch in stream:
            batches.append(batch)
            states.append(json.loads(json.dumps(stream.state())))
    found = np.concatenate([batch[0] for batch in batches])
    assert np.array_equal(np.sort(found), np.arange(100_000))
    assert all(len(text) == x % 40 for batch in batches for x, text in zip(*batch, strict=True))
    assert len(set((batches[0][0] // 20_000).tolist())) > 1
    for done in (1, 77, 199):
        assert isinstance(states[done - 1]["cursor"], int)
        assert_same(run(ds.with_options(threads=0), state=states[done - 1]), batches[done:])
    told = str(ds.explain())
    assert "mixing" in told
    assert "the index takes" in told
    assert "parsed by pyarrow" in told


def test_states_of_a_flow_are_refused(tmp_path: Path) -> None:
    ds = ps.from_files(numbers(tmp_path / "a.csv", 100))
    with ds.with_options(on_error="skip").stream() as stream:
        next(stream)
        state = stream.state()
    with pytest.raises(StateError, match="belongs to another pipeline"):
        run(ds, state=state)


def test_on_error_skip_is_a_flow_and_raise_the_rows_again(tmp_path: Path) -> None:
    ds = ps.from_files(numbers(tmp_path / "a.csv", 100))
    skipping = ds.with_options(on_error="skip")
    with pytest.raises(TypeError, match="length"):
        len(skipping)
    assert len(skipping.with_options(on_error="raise")) == len(ds) == 100
    assert_same(run(skipping), run(ds))


def test_bad_cells_are_named_by_file_and_line_wherever_they_are_read(tmp_path: Path) -> None:
    good, bad = numbers(tmp_path / "a.csv", 9000), tmp_path / "b.csv"
    lines_of = [f"{n},t" for n in range(9000)]
    lines_of[8000] = '7,"a\nb"'
    lines_of[8500] = "seven,t"
    bad.write_text("x,s\n" + "\n".join(lines_of))
    ds = ps.from_files([good, bad])
    match = r"b\.csv: line 8503: column 'x' is int64, got 'seven'"
    for one in (ds, ds.shuffle(seed=1), ds.skip(17_400).batch(100)):
        with pytest.raises(DataError, match=match):
            run(one)
    lines_of[8500] = "1,2,3"
    bad.write_text("x,s\n" + "\n".join(lines_of))
    with pytest.raises(DataError, match=r"b\.csv: line 8503 has 3 columns, and the header has 2"):
        run(ps.from_files([good, bad]))
    bad.write_bytes(b"x,s\n" + "\n".join(lines_of[:8500]).encode() + b"\n5,caf\xe9\n")
    with pytest.raises(DataError, match=r"b\.csv, byte \d+: line 8503 is not UTF-8"):
        run(ps.from_files([good, bad], "x"))


def test_a_quote_within_a_cell_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "TEXT_NBYTES", 64)
    rows_of = [f'{n},5" pipe' if n % 3 else f'{n},"a ""b"", c"' for n in range(200)]
    (tmp_path / "a.csv").write_text("x,s\n" + "\n".join(rows_of))
    expected = ['5" pipe' if n % 3 else 'a "b", c' for n in range(200)]
    ds = ps.from_files(tmp_path / "a.csv", "s", spec={"s": str})
    assert run(ds) == expected
    assert run(ds.with_options(on_error="skip")) == expected


def test_a_file_that_changes_under_the_index_is_an_error(tmp_path: Path) -> None:
    path = numbers(tmp_path / "a.csv", 100)
    ds = ps.from_files(path)
    numbers(path, 99)
    with pytest.raises(FileChangedError, match="changed after it was listed"):
        run(ds)


def test_files_with_a_header_only_and_marks_and_open_ends_are_joined(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfx,s\r\n1,\xef\xbb\xbfa\r\n2,b")
    (tmp_path / "b.csv").write_bytes(b"x,s")
    (tmp_path / "c.csv").write_bytes(b"x,s\n\n\n3,c\n\n")
    ds = ps.from_files(tmp_path, ("x", "s"))
    expected = [(np.int64(1), "\ufeffa"), (np.int64(2), "b"), (np.int64(3), "c")]
    assert_same(run(ds), expected)
    node = ds.node
    assert isinstance(node, Rows)
    assert_same(read(node, np.array([2, 0, 2, 1, 0])), [list(expected[n]) for n in (2, 0, 2, 1, 0)])
    assert ps.from_files(tmp_path / "b.csv").batch(2).explain() is not None
    assert len(ps.from_files(tmp_path / "b.csv")) == 0
