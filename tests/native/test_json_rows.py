"""Plain rows of JSON Lines are those of Python's json, or are left to others."""

import json
from typing import Any, NamedTuple, Self

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock import _native

DTYPES = {"f": np.float64, "i": np.int64, "b": np.uint8}
ITEMS = {"t": np.uint8, "l": np.float64, "w": np.int64}


class Wanted(NamedTuple):
    """A field: where it is, how its values are read, and the shape of one."""

    path: tuple[str, ...]
    kind: str
    shape: tuple[int, ...] = ()


WHOLE = st.integers(-(10**18) + 1, 10**18 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, places=4).map(float)
NUMBERS = WHOLE | FLOATS | DECIMALS
LETTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(LETTERS, max_size=20) | st.text('aé"\\/\n {}[],:', max_size=40)
ANY = st.recursive(
    NUMBERS | st.none() | st.booleans() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ROWS = st.fixed_dictionaries(
    {
        "i": WHOLE,
        "b": st.booleans(),
        "l": st.lists(NUMBERS, min_size=3, max_size=3),
        "r": st.lists(NUMBERS, max_size=4),
        "w": st.lists(WHOLE, max_size=4),
    },
    optional={
        "f": NUMBERS | st.none(),
        "é": NUMBERS,
        "t": TEXTS | st.none(),
        "o": st.none()
        | st.fixed_dictionaries({}, optional={"p": NUMBERS | st.none(), "t": TEXTS, "x": ANY}),
        "other": ANY,
    },
)
FIELDS = [
    Wanted(("i",), "i"),
    Wanted(("b",), "b"),
    Wanted(("l",), "f", (3,)),
    Wanted(("r",), "l"),
    Wanted(("w",), "w"),
    Wanted(("f",), "f"),
    Wanted(("é",), "f"),
    Wanted(("t",), "t"),
    Wanted(("o", "p"), "f"),
    Wanted(("o", "t"), "t"),
]
F = [Wanted(("f",), "f")]


def room(field: Wanted, num_rows: int) -> np.ndarray:
    if field.kind in DTYPES:
        return np.empty((num_rows, *field.shape), DTYPES[field.kind])
    return np.empty((3 if field.kind == "t" else 2, num_rows), np.int64)


def read(text: bytes, num_rows: int, fields: list[Wanted]) -> list[Any] | None:
    """Return the values of each field, as `twin` does; None if they were not understood."""
    raw = np.frombuffer(text, np.uint8)
    columns = [room(field, num_rows) for field in fields]
    paths = [tuple(key.encode() for key in field.path) for field in fields]
    kinds = "".join(field.kind for field in fields).replace("w", "l")
    if not _native.read_json_rows(raw, num_rows, paths, kinds, columns):
        return None
    values: list[Any] = []
    for field, column in zip(fields, columns, strict=True):
        if field.kind in DTYPES:
            values.append(column)
            continue
        out = np.empty(int(column[-1].sum()), ITEMS[field.kind])
        if field.kind == "t":
            _native.copy_json_texts(raw, column, out)
        elif not _native.read_json_lists(raw, column, out, field.kind == "l"):
            return None
        values.append(np.split(out, np.cumsum(column[-1])[:-1]) if num_rows else [])
    return values


class Whole(int):
    """A whole number as it is written: Python's own forgets the sign of -0."""

    is_minus_zero = False

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.is_minus_zero = text == "-0"
        return made

    def __float__(self) -> float:
        return -0.0 if self.is_minus_zero else super().__float__()


def twin(text: bytes, fields: list[Wanted]) -> list[Any]:
    """The same by Python's json; raises for what is no such row."""
    decoded = text.decode(errors="surrogateescape")
    lines = [line for line in decoded.replace("\r", "\n").split("\n") if line]
    rows = [json.loads(line, parse_int=Whole) for line in lines]
    return [column_of([value_at(row, field.path) for row in rows], field) for field in fields]


def value_at(row: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        assert row is None or isinstance(row, dict)
        row = None if row is None else row.get(key)
    return row


def column_of(values: list[Any], field: Wanted) -> Any:
    if field.kind == "t":
        texts = ["" if one is None else one for one in values]
        return [np.frombuffer(one.encode(errors="surrogateescape"), "u1") for one in texts]
    if field.kind in "lw":
        for value in values:
            assert isinstance(value, list)
            assert all(is_number(one, is_whole=field.kind == "w") for one in value)
        return [np.array(one, "f8" if field.kind == "l" else "i8") for one in values]
    if field.kind == "b":
        assert all(isinstance(one, bool) for one in values)
    for value in values if field.kind in "fi" else []:
        items = value if field.shape else [value]
        assert len(items) == (field.shape or (1,))[0]
        is_gap = field.kind == "f" and not field.shape and value is None
        assert is_gap or all(is_number(one, is_whole=field.kind == "i") for one in items)
    filled = [np.nan if one is None else one for one in values]
    return np.array(filled, DTYPES[field.kind]).reshape(len(values), *field.shape)


def is_number(value: Any, *, is_whole: bool) -> bool:
    return isinstance(value, Whole if is_whole else int | float) and not isinstance(value, bool)


def assert_equal(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert len(one) == len(other)
        for mine, right in zip(one, other, strict=True):
            assert (mine.dtype, mine.shape) == (right.dtype, right.shape)
            assert mine.tobytes() == right.tobytes()


@given(
    st.lists(ROWS, max_size=6),
    st.sampled_from(["\n", "\r\n", "\n\n", "\r"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")]),
    st.booleans(),
    st.booleans(),
)
def test_plain_rows_are_all_understood_and_are_those_of_python(
    rows, end, separators, is_closed, is_ascii
):
    lines = [json.dumps(row, separators=separators, ensure_ascii=is_ascii) for row in rows]
    if is_ascii:  # Keys with escapes are left to others.
        lines = [line.replace("\\u00e9", "é") for line in lines]
    text = (end + end.join(lines) + (end if is_closed else "")).encode()
    found = read(text, len(rows), FIELDS)
    assert found is not None
    assert_equal(found, twin(text, FIELDS))


PARTS = [
    *(b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\r", b"\t", b'"', b"\\", b"\\u0066", b"-"),
    *(b"0", b"1", b"00", b".", b"e", b"E+", b"1e5", b"1e400", b"-0", b"0x1", b"NaN", b"Infinity"),
    *(b"null", b"true", b"false", b"nul", b'"f"', b'"i": 1', b"\x00", b"\x1f", b"9" * 19, b"/**/"),
    *(
        b'"o": null',
        b'"o": {}',
        b'{"a": [{}]}',
        b"\\n",
        b"\\ud800",
        b"\\ud83d\\ude00",
        b"\\uDC00",
        b"\\u12",
    ),
]


@given(st.lists(ROWS, min_size=1, max_size=3), st.booleans(), st.data())
def test_what_is_understood_of_damaged_rows_is_what_python_reads(rows, is_ascii, data):
    text = "\n".join(json.dumps(row, ensure_ascii=is_ascii) for row in rows).encode()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 4)))
        text = text[:start] + data.draw(st.sampled_from(PARTS)) + text[stop:]
    found = read(text, len(rows), FIELDS)
    if found is not None:
        assert_equal(found, twin(text, FIELDS))


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
    found = read(f'{{"f": {number}}}'.encode(), 1, F)
    wanted = float(number)
    if found is None:
        # Too large or too small for a float: others say what becomes of that.
        assert not np.finfo("f8").tiny <= abs(wanted) <= np.finfo("f8").max
    else:
        assert found[0].tobytes() == np.array([wanted]).tobytes()


@pytest.mark.parametrize(
    "text",
    [
        *(
            '"\\ud83d\\ude00"',
            '"\\u0000"',
            '"\\u00E9\\u20ac"',
            '"\\"\\\\\\/\\b\\f\\n\\r\\t"',
            '""',
            '"é€😀"',
        ),
        *('"' + "x" * length + end + '"' for length in range(34) for end in ("", "\\n", "é")),
    ],
)
def test_texts_are_those_of_python_with_all_their_escapes(text: str) -> None:
    found = read(f'{{"t": {text}}}'.encode(), 1, [Wanted(("t",), "t")])
    assert found is not None
    assert found[0][0].tobytes().decode() == json.loads(text)


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
        *('{"f": 1, "f": 2}', '{"\\u0066": 1}'),
        *(
            '{"x": nul, "f": 1}',
            '{"x": 01, "f": 1}',
            '{"x: 1}',
            '{"x": "}',
            '{"x": [1}',
            '{"x": {"f": 1}',
        ),
        *(
            '{"x": [1 2]}',
            '{"x": [1,]}',
            '{"x": {1: 2}}',
            '{"x": {"a" 1}}',
            '{"x": {"a": 1,}}',
            '{"x": [}',
        ),
        *(
            '{"x": {"a": 1]}',
            '{"x": "\\x"}',
            '{"x": "\\u12g4"}',
            '{"x": "\\u12"}',
            '{"x": "\\"}',
            '{"x": ]}',
        ),
        *(
            '{"x": ' + "[" * 99 + "]" * 99 + "}",
            '{"f": ' + "1" * 5000 + "}",
            '{"x": ' + "1" * 5000 + "}",
        ),
        *(' {"f": 1}', '{"f": 1} ', '{"f": 1}{"f": 2}', '{"f": 1}\n{"f": 2}', "null", "", "}", "{"),
        *('{"f":\n1}', '{"f": 1\r}', '{"x": "\x01", "f": 1}'),
    ],
)
def test_all_else_is_left_to_others(line: str) -> None:
    assert read(line.encode(), 1, F) is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *(("i", "1.0"), ("i", "1e3"), ("i", "null"), ("i", "true"), ("i", "1" * 19)),
        *(("b", "1"), ("b", "null"), ("b", "tru"), ("b", '"true"')),
        *(
            ("t", "1"),
            ("t", "true"),
            ("t", "[]"),
            ("t", "{}"),
            ("t", '"\\ud800"'),
            ("t", '"\\udc00\\ud800"'),
        ),
        *(
            ("l", "null"),
            ("l", "1"),
            ("l", "[null]"),
            ("l", "[true]"),
            ("l", '["1"]'),
            ("l", "[[1]]"),
        ),
        *(
            ("l", "[1,]"),
            ("l", "[,1]"),
            ("l", "[1 2]"),
            ("l", "[01]"),
            ("l", "[1.]"),
            ("l", "[--1]"),
        ),
        *(
            ("l", "[1e]"),
            ("l", "[1e400]"),
            ("l", "[1,,2]"),
            ("l", "[- 1]"),
            ("w", "[1.0]"),
            ("w", "[1e2]"),
        ),
    ],
)
def test_values_of_other_kinds_are_left_to_others(kind: str, value: str) -> None:
    assert read(f'{{"x": {value}}}'.encode(), 1, [Wanted(("x",), kind)]) is None


@pytest.mark.parametrize("value", ["[1]", "[1, 2, 3]", "[1 2]", "[1, null]", "[1, 2", "[1,]", "1"])
def test_lists_that_are_not_of_one_length_are_left_to_others(value: str) -> None:
    assert read(f'{{"x": {value}}}'.encode(), 1, [Wanted(("x",), "f", (2,))]) is None


@pytest.mark.parametrize("kind", ["i", "b", "l"])
def test_only_floats_and_texts_may_be_missing(kind: str) -> None:
    text = b'{"y": 1}\n{}\n{"y": null}'
    assert read(text, 3, [Wanted(("x",), kind)]) is None
    assert read(text, 3, [Wanted(("x",), "f", (2,))]) is None
    found = read(text, 3, [Wanted(("x",), "f"), Wanted(("y",), "f"), Wanted(("z",), "t")])
    assert found is not None
    nothing = [np.empty(0, "u1")] * 3
    assert_equal(found, [np.full(3, np.nan), np.array([1, np.nan, np.nan]), nothing])


@pytest.mark.parametrize(
    "line",
    [
        *('{"o": {"p": 1}, "o": null}', '{"o": null, "o": {"p": 1}}', '{"o": {"p": 1}, "o": {}}'),
        *(
            '{"o": 1}',
            '{"o": [1]}',
            '{"o": {"p": {}}}',
            '{"o": {"p": 1}',
            '{"o": {"p": 1, "p": 2}}',
        ),
    ],
)
def test_objects_that_are_none_or_come_twice_are_left_to_others(line: str) -> None:
    assert read(line.encode(), 1, [Wanted(("o", "p"), "f")]) is None


def test_a_list_may_be_empty() -> None:
    text = b'{"x": []}\n{"x": [ ]}'
    found = read(text, 2, [Wanted(("x",), "f", (0,))])
    assert found is not None
    assert found[0].shape == (2, 0)
    found = read(text, 2, [Wanted(("x",), "l")])
    assert found is not None
    assert_equal(found, [[np.empty(0)] * 2])


def test_keys_that_are_data_are_left_to_others() -> None:
    lines = [json.dumps({str(number): 1, "f": number}) for number in range(2000)]
    assert read("\n".join(lines).encode(), 2000, F) is None
    found = read("\n".join(lines[:1000]).encode(), 1000, F)
    assert found is not None
    assert found[0].tolist() == list(range(1000))


@pytest.mark.parametrize("num_rows", [0, 1, 3])
def test_another_number_of_rows_is_left_to_others(num_rows: int) -> None:
    assert read(b'{"f": 1}\n{"f": 2}\n', num_rows, F) is None


def test_no_rows_are_understood() -> None:
    assert read(b"\n\r\n", 0, F) is not None


def test_what_does_not_fit_together_is_refused() -> None:
    text = np.frombuffer(b'{"f": 1}', np.uint8)
    one, two, ints = np.zeros(1), np.zeros(2), np.zeros((2, 1), np.int64)
    apart = np.zeros((2, 4))[:, :2]
    f, g, inner = (b"f",), (b"g",), (b"f", b"g")
    for paths, kinds, columns, message in (
        ([f], "ff", [one], "as many"),
        ([f], "f", [one, one], "as many"),
        ([f], "x", [one], "kinds must be of f, i, b, t and l"),
        ([f], "f", [two], "columns must have the length of the rows, 1, got 2"),
        ([f], "i", [one], "columns must hold int64"),
        ([f], "f", [np.zeros((1, 1, 1))], "columns must have 1 dimensions, got 3"),
        ([f], "t", [ints], "columns must have 3 rows for text, 2 for lists"),
        ([f], "l", [ints[:1]], "columns must have 3 rows for text, 2 for lists"),
        ([f], "l", [ints.T.copy()], "columns must have 3 rows for text, 2 for lists"),
        (
            [f],
            "l",
            [np.zeros((2, 2), np.int64)],
            "columns must have the length of the rows, 1, got 2",
        ),
        ([f], "l", [np.zeros(2, np.int64)], "columns must have 2 dimensions"),
        ([f, g], "ff", [one, one], "columns must share no memory"),
        ([f, f], "ff", [one, two[:1]], "no path may be another, or begin with it"),
        ([f, inner], "ff", [one, two[:1]], "no path may be another, or begin with it"),
        ([inner, f], "ff", [one, two[:1]], "no path may be another, or begin with it"),
        ([()], "f", [one], "a path must have a key"),
    ):
        with pytest.raises(ValueError, match=message):
            _native.read_json_rows(text, 1, paths, kinds, columns)
    with pytest.raises(ValueError, match="columns must be contiguous"):
        _native.read_json_rows(text, 2, [f], "f", [apart])
    own = np.frombuffer(bytearray(b'{"f": 1}'), np.uint8)
    with pytest.raises(ValueError, match="columns must share no memory with text"):
        _native.read_json_rows(own, 1, [f], "f", [own.view(np.float64)])


def test_texts_and_lists_that_are_not_there_are_refused() -> None:
    text = np.frombuffer(b'["a\\n", "b", 1, 2]}', np.uint8)
    out = np.zeros(4, np.uint8)
    _native.copy_json_texts(text, np.array([[2, 9], [3, 1], [2, 1]]), out)
    assert out.tobytes() == b"a\nb\0"
    for start, length, size, error in (
        *((-1, 1, 1, IndexError), (18, 3, 3, IndexError), (2, -1, 0, IndexError)),
        *((2, 3, 5, IndexError), (2, 3, -1, IndexError), (2, 3, 1, ValueError)),
        *((2, 2, 1, ValueError), (2, 1, 2, ValueError), (2, 3, 4, ValueError)),
    ):
        with pytest.raises(
            error, match=r"outside the text|out is too small|not as long as it should"
        ):
            _native.copy_json_texts(text, np.array([[start], [length], [size]]), out)
    numbers = np.zeros(2, np.int64)
    assert _native.read_json_lists(text, np.array([[13], [2]]), numbers, False)
    assert numbers.tolist() == [1, 2]
    assert not _native.read_json_lists(text, np.array([[13], [1]]), numbers[:1], False)
    assert not _native.read_json_lists(text, np.array([[13], [2]]), np.zeros(3, np.int64), False)
    assert not _native.read_json_lists(text[:-1], np.array([[13], [2]]), numbers, False)
    for start, count in ((-1, 1), (99, 1), (13, 3), (13, -1)):
        with pytest.raises(IndexError, match=r"outside the text|out is too small"):
            _native.read_json_lists(text, np.array([[start], [count]]), numbers, False)
    own = np.zeros(16, np.uint8)
    with pytest.raises(ValueError, match="out must be apart from the text"):
        _native.copy_json_texts(own, np.zeros((3, 1), np.int64), own)
    with pytest.raises(ValueError, match="out must be apart from the text"):
        _native.read_json_lists(own, np.zeros((2, 1), np.int64), own.view(np.int64), False)
    with pytest.raises(ValueError, match="found must have the length of starts"):
        _native.copy_json_texts(text, np.zeros((2, 1), np.int64), out)
    with pytest.raises(ValueError, match="found must have the length of starts and counts"):
        _native.read_json_lists(text, np.zeros((3, 1), np.int64), numbers, False)
