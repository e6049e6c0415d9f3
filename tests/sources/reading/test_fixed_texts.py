"""Texts of one width, and numbers of narrow dtypes: what does not fit is told, never cut or made infinite."""

import re
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.sources.reading.fixed_texts import fixed_texts, wide_enough


@pytest.mark.parametrize(
    ("texts", "dtype", "wider"),
    [
        (["ab", "abc"], "U2", "U3"),
        (["ab", "abc"], "S2", "S3"),
        (["\u00e9t\u00e9"], "U2", "U3"),
        (["ab\0"], "U5", ""),  # NumPy leaves out the byte 0.
    ],
)
def test_a_text_that_does_not_fit_is_refused(texts, dtype, wider):
    with pytest.raises(OverflowError, match="too long"):
        fixed_texts(texts, np.dtype(dtype))
    assert wide_enough(texts[-1], np.dtype(dtype)) == wider


@pytest.mark.parametrize("dtype", ["U3", "U9", ">U3", "S3"])
def test_texts_that_fit_come_as_they_are(dtype):
    found = fixed_texts(["a", "", "abc"], np.dtype(dtype))
    assert found.dtype == np.dtype(dtype)
    assert [str(one, "ascii") if isinstance(one, bytes) else one for one in found] == [
        "a",
        "",
        "abc",
    ]


def test_letters_beyond_ascii_are_no_bytes_and_the_cure_is_text():
    with pytest.raises(ValueError, match="ascii"):
        fixed_texts(["\u00e9"], np.dtype("S4"))
    assert wide_enough("\u00e9", np.dtype("S4")) == "U4"


BAD = [
    ("Alexander", "U4"),
    ("Alexander", "S4"),
    ("\u00e9t\u00e9", "S4"),
    (1e39, "float32"),
    (-1e39, "float32"),
    (70000.0, "float16"),
    (70000, "float16"),
]
GOOD = [
    ("Alex", "U4"),
    ("Alex", "S4"),
    (3.4028235e38, "float32"),
    (65504, "float16"),
    (1e39, "float64"),
]


def csv(path: Path, values: list[object]) -> Path:
    path = path.with_suffix(".csv")
    path.write_text("x,y\n" + "".join(f"{value},1\n" for value in values), encoding="utf-8")
    return path


def jsonl(path: Path, values: list[object]) -> Path:
    path = path.with_suffix(".jsonl")
    shown = [f'"{value}"' if isinstance(value, str) else value for value in values]
    path.write_text("".join(f'{{"x": {value}, "y": 1}}\n' for value in shown), encoding="utf-8")
    return path


@pytest.mark.parametrize("write", [csv, jsonl])
@pytest.mark.parametrize(("value", "dtype"), BAD)
def test_what_a_column_can_not_hold_is_told_with_a_cure_that_works(tmp_path, write, value, dtype):
    usual = "abc" if isinstance(value, str) else 1
    # Far behind the first look, too, and among those that are skipped.
    for values in ([value], [usual] * 40_000 + [value, usual]):
        path = write(tmp_path / "rows", values)
        line = len(values) - (len(values) > 1) + (write is csv)
        ds = ps.from_files(path, spec={"x": dtype}, fields=("x",)).batch(64)
        with pytest.raises(ps.PenstockError, match=f"line {line}: .*'x'") as told:
            list(ds)
        cure = re.search(r"spec=\{'x': \"(\w+)\"\}", str(told.value))[1]
        assert np.can_cast(dtype, cure) or cure.startswith("U")
        found = [
            row
            for (rows,) in ps.from_files(path, spec={"x": cure}, fields=("x",)).batch(64)
            for row in rows
        ]
        assert len(found) == len(values)
        assert found[values.index(value)] == (
            np.array(value, cure) if cure[0] != "S" else value.encode()
        )
    skipped = ds.with_options(on_error="skip")
    assert sum(len(rows) for (rows,) in skipped) == len(values) - 1


@pytest.mark.parametrize("write", [csv, jsonl])
@pytest.mark.parametrize(("value", "dtype"), GOOD)
def test_what_a_column_holds_comes_as_it_is(tmp_path, write, value, dtype):
    ((found,),) = ps.from_files(write(tmp_path / "rows", [value]), spec={"x": dtype}, fields=("x",))
    assert found == np.array(value, dtype)
    assert found.dtype == np.dtype(dtype)


@pytest.mark.parametrize("write", [csv, jsonl])
def test_infinities_that_are_written_stay(tmp_path, write):
    words = ["inf", "-inf"] if write is csv else ["Infinity", "-Infinity"]
    path = write(tmp_path / "rows", [1])
    text = path.read_text()
    path.write_text(
        text + "".join(text.splitlines(keepends=True)[-1].replace("1", word, 1) for word in words)
    )
    found = [x for (x,) in ps.from_files(path, spec={"x": "float32"}, fields=("x",))]
    assert found == [1, np.inf, -np.inf]


@pytest.mark.parametrize("shape", [(2,), (None,)])
def test_lists_of_json_lines_are_looked_at_too(tmp_path, shape):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"x": [1, 2]}\n{"x": [1, 1e39]}\n')
    ds = ps.from_files(path, spec={"x": ps.ArraySpec(shape, "float32")})
    with pytest.raises(ps.DataError, match="line 2: field 'x' is float32"):
        list(ds)


SPEC = ps.ArraySpec((), "float16")


@pytest.mark.parametrize("value", [70000.0, np.float64(1e300), 70000, -70000.0])
@pytest.mark.parametrize(
    "make",
    [
        lambda value: ps.from_generator(lambda: iter([1.0, value]), SPEC),
        lambda value: ps.from_arrays(np.arange(2)).map(lambda x: value if x else 1.0, spec=SPEC),
    ],
    ids=["generator", "map"],
)
def test_numbers_of_functions_never_become_infinite(make, value):
    with pytest.raises(ps.SpecMismatchError, match="row 1"):
        list(make(value))
    assert list(make(np.inf)) == [1, np.inf]
