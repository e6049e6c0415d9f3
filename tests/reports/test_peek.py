"""A few rows as a table: in a terminal, in a notebook, as JSON."""

import json
import warnings

import numpy as np
import pytest
from tests.reports.pages import checked

import penstock as ps

IMAGE = np.arange(12 * 12 * 3, dtype="u1").reshape(12, 12, 3)
ROWS = ps.from_arrays(
    {
        "blob": [b"\xff\x00", b"a", b"b"],
        "image": np.stack([IMAGE] * 3),
        "label": np.array([4, 4, 7]),
        "loss": np.array([np.nan, np.nan, np.nan]),
        "ragged": [np.arange(2), np.arange(9), np.arange(3)],
        "series": np.stack(
            [np.arange(50.0), np.zeros(50), np.where(np.arange(50) == 3, np.nan, 1.0)]
        ),
        "square": np.zeros((3, 2, 2)),
        "text": ["<b>", "ü" * 60, ""],
    }
)


def test_each_kind_of_value_is_shown_in_its_way():
    text = str(ROWS.peek(3))
    for line in (
        "blob bytes: lengths 1 to 2; 3 different",
        r"0  b'\xff\x00'",
        "image uint8[12x12x3]: 0 to 255, mean 111.2",
        "0  image 12x12x3 uint8, 0..255",
        "label int64: 4 to 7, mean 5; 2 different",
        "loss float64: 3 NaN",
        "0  nan",
        "ragged int64[?]: 0 to 8, mean 2.857; lengths 2 to 9",
        "0  [0 1]",
        "1  ▁▂▃▄▅▆▇██ 0..8 (9)",
        "0  ▁▁▂▂▂▃▃▃▄▄▄▅▅▅▅▆▆▆▇▇▇███ 0..49 (50)",
        "1  ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ 0..0 (50)",
        "0  2x2 [0 0 0 0 ...]",
        "1  '" + "ü" * 37 + "'... (60)",
        "2  ''",
    ):
        assert line in text, line


def test_a_page_has_pictures_and_lines_and_text_as_it_is():
    page = ROWS.peek(3)._repr_html_()
    text = checked(page)
    assert page.count("data:image/png;base64,") == 3
    assert page.count("<polyline") == 4  # Three series, and a row of nine numbers.
    assert "'<b>'" in text
    assert "all 3 rows" in text


def test_as_json_it_has_the_first_values_and_no_nan():
    found = json.loads(json.dumps(ROWS.peek(2).to_dict(), allow_nan=False))
    assert found["title"] == "the first 2 of 3 rows"
    names = [field["name"] for field in found["fields"]]
    row = dict(zip(names, found["rows"][0], strict=True))
    assert row["label"] == 4
    assert row["loss"] == "nan"
    assert row["blob"] == r"\xff" + "\0"
    assert row["ragged"] == [0, 1]
    assert row["image"] == {"shape": [12, 12, 3], "dtype": "uint8", "first": list(range(64))}
    assert found["fields"][names.index("label")]["classes"] == ["4"]


def test_nothing_at_all_is_shown_too():
    nothing = ps.from_arrays(np.zeros((0, 3))).peek()
    assert str(nothing) == "from_arrays((0, 3) float64): no rows\n    value float64[3]"
    assert "no rows" in checked(nothing._repr_html_())
    assert nothing.to_dict()["rows"] == []


@pytest.mark.parametrize(
    "values",
    [
        [1.0, np.inf, 2.0],
        [-np.inf, np.inf],
        [np.nan],
        [1e308, -1e308],
        np.array([[1e308, -1e308] * 8, [np.inf, -np.inf] * 8]),
        np.array([[1e308] * 16, [np.nan] * 16]),
        np.array([["a", "b"], ["c", "d"]]),
        np.array([b"a", b"\xff"]),
    ],
)
def test_numbers_without_bounds_and_text_of_numpy_are_shown(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = ps.from_arrays(np.asarray(values)).peek()
        assert "np." not in str(found)
        assert found._repr_html_()
