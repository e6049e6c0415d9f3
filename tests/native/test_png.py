"""The filters of PNG are undone as plain Python does it, for pixels of every size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native


def undone(rows: np.ndarray, width: int) -> np.ndarray:
    """The twin, by the words of the standard."""
    found = rows.astype(int)
    for y, row in enumerate(found):
        for x in range(1, len(row)):
            left = row[x - width] if x > width else 0
            up = found[y - 1, x] if y else 0
            corner = found[y - 1, x - width] if y and x > width else 0
            guess = left + up - corner
            # Of equals, the first.
            nearest = min((left, up, corner), key=lambda one: abs(guess - one))
            row[x] += (0, left, up, (left + up) // 2, nearest)[row[0]]
            row[x] %= 256
    return found.astype(np.uint8)


@given(
    height=st.integers(0, 5),
    width=st.integers(0, 9),
    pixel_nbytes=st.integers(1, 8),
    values=st.sampled_from(["any", "extremes", "few"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_filters_are_undone_as_plain_python_does(
    height: int, width: int, pixel_nbytes: int, values: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    shape = height, 1 + width * pixel_nbytes
    rows = rng.integers(0, 256, shape, np.uint8)
    if values == "extremes":
        rows = rng.choice(np.array([0, 1, 127, 128, 254, 255], np.uint8), shape)
    elif values == "few":
        rows %= 3
    rows[:, 0] = rng.integers(0, 5, height)
    wanted = undone(rows, pixel_nbytes)
    _native.undo_png_filters(rows, pixel_nbytes)
    assert np.array_equal(rows, wanted)


def test_a_filter_that_there_is_none_of_is_refused_and_named_by_its_row() -> None:
    rows = np.zeros((3, 4), np.uint8)
    rows[2, 0] = 5
    with pytest.raises(ValueError, match="row 2 has a filter that there is none of"):
        _native.undo_png_filters(rows, 3)


@pytest.mark.parametrize(
    ("rows", "pixel_nbytes", "match"),
    [
        (np.zeros((3, 4), np.uint8), 0, "pixel_nbytes must be from 1 to 8, got 0"),
        (np.zeros((3, 4), np.uint8), 9, "pixel_nbytes must be from 1 to 8, got 9"),
        (np.zeros((3, 5), np.uint8), 3, "whole pixels"),
        (np.zeros((3, 0), np.uint8), 3, "whole pixels"),
        (np.zeros((3, 8), np.uint8)[:, :4], 3, "must be contiguous"),
        (np.zeros((6, 4), np.uint8)[::2], 3, "must be contiguous"),
        (np.zeros((3, 4), np.int8), 3, "rows must"),
        (np.zeros(4, np.uint8), 3, "rows must"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    rows: np.ndarray, pixel_nbytes: int, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        _native.undo_png_filters(rows, pixel_nbytes)


def test_rows_that_can_not_be_written_to_are_refused() -> None:
    rows = np.zeros((3, 4), np.uint8)
    rows.flags.writeable = False
    with pytest.raises(ValueError, match="rows must be writable"):
        _native.undo_png_filters(rows, 3)
