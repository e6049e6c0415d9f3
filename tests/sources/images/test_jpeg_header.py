"""The header of a JPEG is what Pillow finds in it, or nothing: then Pillow has to look."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock.sources.images.jpeg_header import JpegHeader, jpeg_header


def jpeg(mode: str = "RGB", size: tuple[int, int] = (30, 20), **options: Any) -> bytes:
    values = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    made = io.BytesIO()
    Image.fromarray(values).convert(mode).save(made, "JPEG", **options)
    return made.getvalue()


def header_of(data: bytes) -> JpegHeader | None:
    return jpeg_header(lambda offset, nbytes: data[offset : offset + nbytes])


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
def test_colours_are_found_with_their_size(subsampling: int, *, progressive: bool) -> None:
    data = jpeg(subsampling=subsampling, progressive=progressive)
    assert header_of(data) == JpegHeader(30, 20, 3, has_many_scans=progressive)


def test_grey_is_one_colour() -> None:
    assert header_of(jpeg("L")) == JpegHeader(30, 20, 1, has_many_scans=False)


@pytest.mark.parametrize(
    "options",
    [
        {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0" + bytes(60_000)},
        {"icc_profile": bytes(300_000)},
        {"comment": b"\xff\xd8\xff\xda" * 99},
        {"restart_marker_blocks": 1},
        {"keep_rgb": True},
        {"optimize": True, "dpi": (72, 72)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_stands_before_the_pixels_is_stepped_over(options: dict[str, Any]) -> None:
    assert header_of(jpeg(**options)) == JpegHeader(30, 20, 3, has_many_scans=False)


def test_what_is_not_plain_is_left_to_pillow() -> None:
    data = jpeg()
    frame = data.index(b"\xff\xc0")
    assert header_of(jpeg("CMYK")) is None
    for at, value in (
        (1, 0xC3),  # Without loss.
        (1, 0xC9),  # By arithmetic.
        (4, 12),  # More bits.
        (5, 0xFF),  # Another size is fine, see below.
        (11, 0x31),  # Colours three times as coarse.
        (14, 0x12),
        (9, 4),
        (3, 30),
    ):
        changed = bytearray(data)
        changed[frame + at] = value
        assert (header_of(bytes(changed)) is None) == (at != 5), at
    assert header_of(data[:2] + b"\xff" + data[2:]) is None  # Filled up.
    assert header_of(data[:2] + b"\0" + data[2:]) is None
    assert (
        header_of(jpeg(comment=b"x").replace(b"\xff\xfe\0\x03x", b"\xff\xfe\0\x03x" * 5000)) is None
    )
    made = io.BytesIO()
    Image.new("RGB", (3, 3)).save(made, "PNG")
    assert header_of(made.getvalue()) is None


@given(st.integers(0, 700), st.integers(0, 255), st.integers(1, 700))
def test_damage_is_no_error_and_never_another_header_than_pillows(
    at: int, value: int, cut: int
) -> None:
    data = bytearray(jpeg())
    data[at % len(data)] = value
    found = header_of(bytes(data[:cut]))
    if found is not None:
        with Image.open(io.BytesIO(data)) as image:
            assert image.size == (found.width, found.height)
            assert len(image.getbands()) == found.num_colors
