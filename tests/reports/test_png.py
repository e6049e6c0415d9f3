"""Arrays as PNG images."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from penstock.reports.png import as_bytes, is_image, thumbnail

RANDOM = np.random.default_rng(0)


def opened(uri: str) -> np.ndarray:
    return np.asarray(
        Image.open(io.BytesIO(base64.b64decode(uri.removeprefix("data:image/png;base64,"))))
    )


@pytest.mark.parametrize("shape", [(20, 31), (20, 31, 1), (20, 31, 3), (20, 31, 4)])
def test_a_thumbnail_has_the_pixels_of_the_image(shape: tuple[int, ...]):
    image = RANDOM.integers(0, 256, shape, "u1")
    assert np.array_equal(opened(thumbnail(image)), image.squeeze())


def test_a_large_image_becomes_small():
    image = RANDOM.integers(0, 256, (500, 300, 3), "u1")
    assert np.array_equal(opened(thumbnail(image[:, ::-1])), image[::5, ::-1][:, ::5])


def test_values_are_scaled_by_the_range_that_they_seem_to_have():
    def scaled(*values: float) -> list[int]:
        return as_bytes(np.array(values)).tolist()

    assert scaled(0.0, 0.5, 1.0) == [0, 128, 255]
    assert scaled(0.0, 0.2) == [0, 51]
    assert scaled(0.0, 200.0) == [0, 200]
    assert scaled(-1.0, 1.0) == [0, 255]
    assert scaled(np.nan, np.inf, 7.0) == [0, 0, 7]
    assert as_bytes(np.zeros((0, 3))).shape == (0, 3)


def test_only_what_has_the_shape_of_an_image_is_taken_for_one():
    assert is_image(np.zeros((28, 28), "f4"))
    assert is_image(np.zeros((8, 8, 3), "u1"))
    for other in (
        np.zeros((7, 28)),
        np.zeros((28, 28, 2)),
        np.zeros(28),
        np.zeros((8, 1000)),
        "text",
        np.zeros((9, 9), "U1"),
    ):
        assert not is_image(other)
