"""Images as coloured characters: the colours are those of the pixels, and lines are as wide as was asked for."""

import re

import numpy as np
import pytest

from penstock.reports.half_blocks import side_by_side


def width(line):
    return len(re.sub(r"\x1b\[[0-9;]*m", "", line))


def test_a_character_has_a_pixel_above_and_one_below():
    image = np.zeros((2, 2, 3), "u1")
    image[0, 0] = 255, 0, 0
    image[1, 0] = 0, 255, 0
    top, label = side_by_side([image], 2, is_true=True)
    assert top.startswith("\x1b[38;2;255;0;0;48;2;0;255;0m▀\x1b[38;2;0;0;0;48;2;0;0;0m▀\x1b[0m")
    assert label == "0"
    top, _ = side_by_side([image], 2, is_true=False)
    assert top.startswith("\x1b[38;5;196;48;5;46m▀\x1b[38;5;16;48;5;16m▀\x1b[0m")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((120, 160, 3), "u1"),
        ((33, 9), "f4"),
        ((8, 8, 4), "u1"),
        ((8, 64, 1), "i8"),
        ((28, 28), "?"),
        ((9, 71, 3), "f8"),
    ],
)
def test_images_of_any_kind_are_as_wide_as_was_asked_for(shape, dtype):
    image = np.random.default_rng(0).random(shape).astype(dtype)
    lines = side_by_side([image, image[:8, :8]], 24, is_true=True)
    *drawn, label = lines
    assert all(width(line) <= 50 for line in drawn)
    assert any(width(line) > 26 for line in drawn)
    assert label.split() == ["0", "1"]


def test_without_images_there_is_nothing():
    assert side_by_side([], 24, is_true=True) == []
