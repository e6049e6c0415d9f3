"""Numbers of JSON Lines are those of Python's json, or are left to others."""

import json
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import _native

DTYPES = {"f": np.float64, "i": np.int64, "b": np.uint8}
WHOLE = st.integers(-(10**18) + 1, 10**18 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=4).map(float)
NUMBERS = WHOLE | FLOATS | DECIMALS
ROWS = st.fixed_dictionaries(
    {"i": WHOLE, "b": st.booleans(), "l": st.lists(NUMBERS, min_size=3, max_size=3)},
    optional={
        "f": NUMBERS | st.none(),
        "é": NUMBERS,
        "other": NUMBERS | st.none() | st.booleans() | st.text("aé {}[],:", max_size=5),
    },
)
SHAPES = {"i": ("i", ()), "b": ("b", ()), "l": ("f", (3,)), "f": ("f", ()), "é": ("f", ())}


def read(text: bytes, num_rows: int, shapes: dict[str, Any]) -> list[np.ndarray] | None:
    columns = [np.empty((num_rows, *shape), DTYPES[kind]) for kind, shape in shapes.values()]
    kinds = "".join(kind for kind, _ in shapes.values())
    names = [name.encode() for name in shapes]
    raw = np.frombuffer(text, np.uint8)
    return columns if _native.read_json_numbers(raw, num_rows, names, kinds, columns) else None


def twin(text: bytes, shapes: dict[str, Any]) -> list[np.ndarray]:
    """The same by Python's json; raises for what is no such row."""
    lines = [
        line
        for line in text.decode(errors="surrogateescape").replace("\r", "\n").split("\n")
        if line
    ]
    rows = [json.loads(line, parse_int=Whole) for line in lines]
    columns = []
    for name, (kind, shape) in shapes.items():
        values = [row.get(name) for row in rows]
        if kind == "f":
            assert np.all([is_number(one, shape) for one in values])
            values = [np.nan if one is None else one for one in values]
        elif kind == "i":
            assert all(isinstance(one, Whole) for one in values)
        else:
            assert all(type(one) is bool for one in values)
        columns.append(np.array(values, DTYPES[kind]).reshape(len(rows), *shape))
    return columns


class Whole(int):
    """A whole number as it is written: Python's own forgets the sign of -0."""

    is_minus_zero = False

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.is_minus_zero = text == "-0"
        return made

    def __float__(self) -> float:
        return -0.0 if self.is_minus_zero else super().__float__()


def is_number(value: Any, shape: tuple[int, ...]) -> bool:
    if shape:
        return (
            isinstance(value, list)
            and len(value) == shape[0]
            and all(one is not None and is_number(one, ()) for one in value)
        )
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def assert_equal(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


@given(
    st.lists(ROWS, max_size=6),
    st.sampled_from(["\n", "\r\n", "\n\n", "\r"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
    st.booleans(),
)
def test_plain_rows_are_all_understood_and_are_those_of_python(rows, end, separators, is_closed):
    lines = [json.dumps(row, separators=separators, ensure_ascii=False) for row in rows]
    text = (end + end.join(lines) + (end if is_closed else "")).encode()
    found = read(text, len(rows), SHAPES)
    assert found is not None
    assert_equal(found, twin(text, SHAPES))


PARTS = [
    *(b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\r", b"\t", b'"', b"\\", b"\\u0066", b"-"),
    *(b"0", b"1", b"00", b".", b"e", b"E+", b"1e5", b"1e400", b"-0", b"0x1", b"NaN", b"Infinity"),
    *(b"null", b"true", b"false", b"nul", b'"f"', b'"i": 1', b"\x00", b"\x1f", b"9" * 19, b"/**/"),
]


@given(st.lists(ROWS, min_size=1, max_size=3), st.data())
def test_what_is_understood_of_damaged_rows_is_what_python_reads(rows, data):
    text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 4)))
        text = text[:start] + data.draw(st.sampled_from(PARTS)) + text[stop:]
    found = read(text, len(rows), SHAPES)
    if found is not None:
        assert_equal(found, twin(text, SHAPES))


@given(
    st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
)
@example("-0")
@example("-0.0")
@example("9007199254740993")
@example("9007199254740992e22")
@example("2.2250738585072011e-308")
@example("1.7976931348623157e308")
@example("0.1000000000000000055511151231257827021181583404541015625")
def test_each_number_is_the_nearest_float(number: str) -> None:
    found = read(f'{{"f": {number}}}'.encode(), 1, {"f": ("f", ())})
    wanted = float(number)
    if found is None:
        # Too large or too small for a float: others say what becomes of that.
        assert not np.finfo("f8").tiny <= abs(wanted) <= np.finfo("f8").max
    else:
        assert found[0].tobytes() == np.array([wanted]).tobytes()


@pytest.mark.parametrize(
    "line",
    [
        *(
            '{"f": 01}',
            '{"f": .5}',
            '{"f": 1.}',
            '{"f": +1}',
            '{"f": 1e}',
            '{"f": -}',
            '{"f": 0x1}',
        ),
        *('{"f": NaN}', '{"f": "1"}', '{"f": true}', '{"f": [1]}', '{"f": {}}', '{"f": 1e400}'),
        *(
            '{"f": 1,}',
            '{,"f": 1}',
            '{"f" 1}',
            '{"f": 1 "i": 2}',
            '{"f": 1',
            '"f": 1}',
            '{"f": 1}}',
        ),
        *('{"f": 1, "f": 2}', '{"\\u0066": 1}', '{"x": "\\n", "f": 1}', '{"x": {}, "f": 1}'),
        *('{"x": [], "f": 1}', '{"x": nul, "f": 1}', '{"x": 01, "f": 1}', '{"x: 1}', '{"x": "}'),
        *(' {"f": 1}', '{"f": 1} ', '{"f": 1}{"f": 2}', '{"f": 1}\n{"f": 2}', "null", "", "}", "{"),
        *('{"f":\n1}', '{"f": 1\r}', '{"x": "\x01", "f": 1}'),
    ],
)
def test_all_else_is_left_to_others(line: str) -> None:
    assert read(line.encode(), 1, {"f": ("f", ())}) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("i", "1.0"), ("i", "1e3"), ("i", "null"), ("i", "true"), ("i", "1" * 19)),
        *(("b", "1"), ("b", "null"), ("b", "tru"), ("b", '"true"')),
    ],
)
def test_values_of_other_kinds_are_left_to_others(kind: str, value: str) -> None:
    assert read(f'{{"x": {value}}}'.encode(), 1, {"x": (kind, ())}) is None


@pytest.mark.parametrize("value", ["[1]", "[1, 2, 3]", "[1 2]", "[1, null]", "[1, 2", "[1,]", "1"])
def test_lists_that_are_not_of_one_length_are_left_to_others(value: str) -> None:
    assert read(f'{{"x": {value}}}'.encode(), 1, {"x": ("f", (2,))}) is None


@pytest.mark.parametrize("kind", ["i", "b"])
def test_only_floats_may_be_missing(kind: str) -> None:
    text = b'{"y": 1}\n{}\n{"y": null}'
    assert read(text, 3, {"x": (kind, ())}) is None
    assert read(text, 3, {"x": ("f", (2,))}) is None
    found = read(text, 3, {"x": ("f", ()), "y": ("f", ())})
    assert found is not None
    assert_equal(found, [np.full(3, np.nan), np.array([1, np.nan, np.nan])])


def test_a_list_may_be_empty() -> None:
    found = read(b'{"x": []}\n{"x": [ ]}', 2, {"x": ("f", (0,))})
    assert found is not None
    assert found[0].shape == (2, 0)


def test_keys_that_are_data_are_left_to_others() -> None:
    lines = [json.dumps({str(number): 1, "f": number}) for number in range(2000)]
    assert read("\n".join(lines).encode(), 2000, {"f": ("f", ())}) is None
    found = read("\n".join(lines[:1000]).encode(), 1000, {"f": ("f", ())})
    assert found is not None
    assert found[0].tolist() == list(range(1000))


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_another_number_of_rows_is_left_to_others(num_rows: int) -> None:
    assert read(b'{"f": 1}\n{"f": 2}\n', num_rows, {"f": ("f", ())}) is None


def test_no_rows_are_understood() -> None:
    assert read(b"\n\r\n", 0, {"f": ("f", ())}) is not None


def test_what_does_not_fit_together_is_refused() -> None:
    text = np.frombuffer(b'{"f": 1}', np.uint8)
    one, two = np.zeros(1), np.zeros(2)
    apart = np.zeros((2, 4))[:, :2]
    for names, kinds, columns, message in (
        ([b"f"], "ff", [one], "as many"),
        ([b"f"], "f", [one, one], "as many"),
        ([b"f"], "x", [one], "kinds must be of f, i and b"),
        ([b"f"], "f", [two], "columns must have the length of the rows, 1, got 2"),
        ([b"f"], "i", [one], "columns must hold int64"),
        ([b"f"], "f", [np.zeros((1, 1, 1))], "columns must have 1 dimensions, got 3"),
        ([b"f", b"g"], "ff", [one, one], "columns must share no memory"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.read_json_numbers(text, 1, names, kinds, columns)
    with pytest.raises(ValueError, match="columns must be contiguous"):
        _native.read_json_numbers(text, 2, [b"f"], "f", [apart])
    own = np.frombuffer(bytearray(b'{"f": 1}'), np.uint8)
    with pytest.raises(ValueError, match="columns must share no memory with text"):
        _native.read_json_numbers(own, 1, [b"f"], "f", [own.view(np.float64)])
