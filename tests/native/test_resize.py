"""Images are resized as Pillow does it, one side at a time; in pieces as in one go; and never past an end."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import _native

side = st.integers(1, 70)
GOLDEN = [159235440, 2986039176]


def resized(image, height, width):
    out = np.full((height, width, 3), 77, np.uint8)
    _native.resize(image, 0, len(image), image.shape[:2], out, 0, height)
    return out


def by_pillow(image, height, width):
    made = Image.fromarray(image).resize((image.shape[1], height), Image.Resampling.BILINEAR)
    return np.asarray(made.resize((width, height), Image.Resampling.BILINEAR))


def picture(height, width, seed, *, is_harsh=False):
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 256, (height, width, 3), np.uint8)
    return np.where(values > 127, 255, 0).astype(np.uint8) if is_harsh else values


@given(side, side, side, side, st.integers(0, 99), st.booleans())
def test_it_resizes_as_pillow_does_first_down_then_across(height, width, to, wide, seed, is_harsh):
    image = picture(height, width, seed, is_harsh=is_harsh)
    assert np.array_equal(resized(image, to, wide), by_pillow(image, to, wide))


@pytest.mark.parametrize(
    ("height", "width", "to", "wide"),
    [(320, 320, 224, 224), (1000, 3, 7, 500), (2, 900, 1, 1), (224, 224, 224, 224), (5, 5, 400, 2)],
)
def test_sizes_of_all_kinds_are_as_pillow_has_them(height, width, to, wide):
    image = picture(height, width, 0)
    assert np.array_equal(resized(image, to, wide), by_pillow(image, to, wide))


def test_the_pixels_are_those_of_every_machine():
    found = [zlib.crc32(resized(picture(320, 240, 1), *size)) for size in ((224, 224), (500, 100))]
    assert found == GOLDEN


@given(side, side, side, side, st.data())
def test_pieces_are_what_the_whole_is(height, width, to, wide, data):
    image = picture(height, width, height + to)
    whole = resized(image, to, wide)
    at = data.draw(st.integers(0, to - 1))
    stop = data.draw(st.integers(at + 1, to))
    first, end = _native.rows_to_resize(height, height, at, stop - at, to)
    assert 0 <= first < end <= height
    # Rows that lie apart, in memory that has nothing behind them, and pixels of others around the result.
    source = np.ascontiguousarray(image[first:end])
    memory = np.full((stop - at + 2, wide * 3 + 5), 9, np.uint8)
    out = memory[1:-1, : wide * 3].reshape(stop - at, wide, 3)
    _native.resize(source, first, height, (height, width), out, at, to)
    assert np.array_equal(out, whole[at:stop])
    rest = memory.copy()
    rest[1:-1, : wide * 3] = 9
    assert (rest == 9).all()
    if end - first > 1:
        for less, start in ((source[1:], first + 1), (source[:-1], first)):
            with pytest.raises(ValueError, match="source has not all rows"):
                _native.resize(less, start, height, (height, width), out, at, to)


def test_no_rows_are_made_of_no_rows():
    assert _native.rows_to_resize(5, 5, 6, 0, 6) == (0, 0)
    _native.resize(picture(5, 4, 0), 0, 5, (5, 4), np.empty((0, 3, 3), np.uint8), 6, 6)


IMAGE = picture(4, 5, 0)
OUT = np.empty((3, 2, 3), np.uint8)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"first": -1}, "source must lie within the 4 rows"),
        ({"first": 1}, "source must lie within the 4 rows of the image, got 4 from 1"),
        ({"at": 1}, "out must lie within the 3 rows of the image, got 3 from 1"),
        ({"rows": 0}, "rows must be from 1"),
        ({"out_rows": 2**31}, "out_rows must be from 1"),
        ({"size": (3, 5)}, "height must be that of 4 pixels"),
        ({"size": (4.1, 5)}, "height must be that of 4 pixels"),
        ({"size": (4, 4)}, "width must be that of 5 pixels"),
        ({"size": (4, float("nan"))}, "width must be that of 5 pixels"),
        ({"source": IMAGE[:, :0]}, "the width of source must be from 1"),
        ({"out": OUT[:, :0]}, "the width of out must be from 1"),
        ({"source": IMAGE[:, ::2]}, "source must have pixels of 3 bytes, one after"),
        ({"source": IMAGE[:, :, :2]}, "source must have pixels of 3 bytes"),
        ({"out": OUT.astype("u2")}, "out must hold uint8"),
        ({"source": IMAGE[0]}, "source must have 3 dimensions"),
        ({"out": IMAGE[:3]}, "must not share memory"),
    ],
)
def test_what_can_not_be_is_refused(changed, message):
    right = {"source": IMAGE, "first": 0, "rows": 4, "size": (4, 5), "out": OUT, "at": 0}
    with pytest.raises(ValueError, match=message):
        _native.resize(**{**right, "out_rows": 3, **changed})


def test_rows_that_are_not_there_are_not_looked_for():
    for arguments in ((4, 4, 1, 3, 3), (4, 4, -1, 1, 3), (0, 0, 0, 1, 3), (4, 9, 0, 1, 3)):
        with pytest.raises(ValueError, match="must"):
            _native.rows_to_resize(*arguments)


@given(side, side, side, side, st.floats(0, 0.99), st.floats(0, 0.99))
def test_a_last_pixel_that_is_less_than_whole_counts_for_less(height, width, to, wide, low, thin):
    image = picture(height, width, 3)
    out = np.empty((to, wide, 3), np.uint8)
    _native.resize(image, 0, height, (height - low, width - thin), out, 0, to)
    down = Image.fromarray(image).resize(
        (width, to), Image.Resampling.BILINEAR, box=(0, 0, width, height - low)
    )
    both = down.resize((wide, to), Image.Resampling.BILINEAR, box=(0, 0, width - thin, to))
    # Pillow's boxes are of 32 bits.
    assert np.abs(np.asarray(both).astype(int) - out).max() <= 1


@pytest.mark.parametrize("across", [False, True])
def test_white_stays_white_however_many_pixels_become_one(across):
    long = 506_971  # Weights of so many add up to more than one.
    image = np.full((1, long, 3) if across else (long, 1, 3), 255, np.uint8)
    assert resized(image, 1, 1).tolist() == [[[255, 255, 255]]]
