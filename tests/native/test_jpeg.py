"""Plain JPEGs are decoded to the pixels of libjpeg-turbo, or left to it: never to others."""

import io
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock import _native

simplejpeg = pytest.importorskip("simplejpeg")

OPTIONS: list[dict[str, Any]] = [
    {"quality": 90},
    {"quality": 100, "subsampling": 0},
    {"quality": 75, "subsampling": 1, "optimize": True},
    {"quality": 20, "restart_marker_blocks": 2},
    {"quality": 85, "restart_marker_rows": 1, "subsampling": 2},
    {"quality": 3},
    {"quality": 100, "subsampling": 2},
]


@cache
def packed(height: int, width: int, mode: str, option: int, kind: str = "soft") -> bytes:
    rng = np.random.default_rng(height * 1000 + width)
    if kind == "noise":
        image = Image.fromarray(rng.choice(np.array([0, 255], np.uint8), (height, width, 3)))
    elif kind == "flat":
        image = Image.new("RGB", (width, height), (200, 30, 90))
    else:
        small = rng.integers(0, 256, (height // 4 + 2, width // 4 + 2, 3), np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    file = io.BytesIO()
    image.convert(mode).save(file, "JPEG", **OPTIONS[option])
    return file.getvalue()


def decoded(data: bytes | np.ndarray, height: int, width: int) -> np.ndarray | None:
    out = np.full((height, width, 3), 99, np.uint8)
    taken = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data
    return out if _native.decode_jpeg(taken, out) else None


def agrees(data: bytes, height: int, width: int) -> bool:
    """Return whether it was decoded; then the twin has the same pixels, and nothing to complain of."""
    found = decoded(data, height, width)
    if found is not None:
        assert np.array_equal(found, simplejpeg.decode_jpeg(data, "RGB"))
    return found is not None


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    mode=st.sampled_from(["RGB", "L"]),
    option=st.integers(0, len(OPTIONS) - 1),
    kind=st.sampled_from(["soft", "noise", "flat"]),
)
def test_the_pixels_are_those_of_libjpeg_turbo(
    height: int, width: int, mode: str, option: int, kind: str
) -> None:
    is_decoded = agrees(packed(height, width, mode, option, kind), height, width)
    # Very narrow ones have too few colours across to be widened as others are.
    assert is_decoded or (mode == "RGB" and width <= 4)


@pytest.mark.parametrize("option", range(len(OPTIONS)))
@pytest.mark.parametrize("shape", [(8, 8), (17, 33), (64, 48), (100, 37), (200, 320)], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_usual_sides_are_decoded(mode: str, shape: tuple[int, int], option: int) -> None:
    assert agrees(packed(*shape, mode, option), *shape)


def test_rows_may_have_gaps_between_them() -> None:
    data = packed(40, 30, "RGB", 0)
    room = np.full((40, 50, 3), 7, np.uint8)
    assert _native.decode_jpeg(np.frombuffer(data, np.uint8), room[:, 10:40])
    assert np.array_equal(room[:, 10:40], simplejpeg.decode_jpeg(data, "RGB"))
    assert (room[:, :10] == 7).all()
    assert (room[:, 40:] == 7).all()


SHAPES = [(40, 50), (17, 33), (100, 37)]


@given(
    shape=st.sampled_from(SHAPES),
    mode=st.sampled_from(["RGB", "L"]),
    option=st.integers(0, len(OPTIONS) - 1),
    changes=st.lists(
        st.tuples(
            st.sampled_from(["set", "flip", "cut", "put"]), st.floats(0, 1), st.integers(0, 255)
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_damaged_ones_are_decoded_as_libjpeg_turbo_does_without_a_warning_or_not_at_all(
    shape: tuple[int, int], mode: str, option: int, changes: list[tuple[str, float, int]]
) -> None:
    data = bytearray(packed(*shape, mode, option))
    for kind, where, byte in changes:
        at = int(where * (len(data) - 1))
        if kind == "set":
            data[at] = byte
        elif kind == "flip":
            data[at] ^= 1 << byte % 8
        elif kind == "cut":
            del data[at : at + 1 + byte % 4]
        else:
            data[at:at] = bytes([byte])
    agrees(bytes(data), *shape)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("option", range(len(OPTIONS)))
def test_one_that_is_cut_off_is_left_to_others(mode: str, option: int) -> None:
    data = packed(40, 50, mode, option)
    for stop in range(len(data)):
        assert decoded(data[:stop], 40, 50) is None


def test_what_is_unusual_is_left_to_others() -> None:
    image = Image.open(io.BytesIO(packed(40, 50, "RGB", 0)))

    def saved(mode: str = "RGB", **options: Any) -> bytes:
        file = io.BytesIO()
        image.convert(mode).save(file, "JPEG", **options)
        return file.getvalue()

    assert decoded(saved(), 40, 50) is not None
    assert decoded(saved(progressive=True), 40, 50) is None
    assert decoded(saved(keep_rgb=True), 40, 50) is None
    assert decoded(saved("CMYK"), 40, 50) is None
    assert decoded(saved() + b"more", 40, 50) is not None
    # Sides that are not those of the image.
    assert decoded(saved(), 40, 51) is None
    assert decoded(saved(), 50, 40) is None
    # Nothing, and what is no JPEG at all.
    assert decoded(b"", 40, 50) is None
    assert decoded(b"\x89PNG" * 30, 40, 50) is None


def adobe(transform: int) -> bytes:
    body = b"Adobe" + bytes([0, 100, 0, 0, 0, 0, transform])
    return b"\xff\xee" + struct.pack(">H", len(body) + 2) + body


def numbered(data: bytes, numbers: bytes) -> bytes:
    changed = bytearray(data)
    frame, scan = data.index(b"\xff\xc0"), data.index(b"\xff\xda")
    for place, number in enumerate(numbers):
        changed[frame + 10 + 3 * place] = changed[scan + 5 + 2 * place] = number
    return bytes(changed)


def test_what_colours_there_are_follows_from_all_that_says_so() -> None:
    data = packed(40, 50, "RGB", 0)
    start = data[:2]
    head_stop = 4 + int.from_bytes(data[4:6], "big")
    head, rest = data[2:head_stop], data[head_stop:]
    assert head[4:8] == b"JFIF"
    for changed, is_decoded in (
        (start + rest, True),
        (start + adobe(1) + rest, True),
        (start + adobe(0) + rest, False),
        (start + adobe(2) + rest, False),
        (start + head + adobe(0) + rest, True),
        (numbered(start + rest, b"RGB"), False),
        (numbered(start + rest, b"\0\1\2"), False),
        (numbered(data, b"RGB"), True),
    ):
        assert agrees(changed, 40, 50) == is_decoded


def test_brightness_that_is_finer_down_alone_is_left_to_others() -> None:
    data = bytearray(packed(32, 32, "RGB", 2))
    frame = data.index(b"\xff\xc0")
    assert data[frame + 11] == 0x21
    data[frame + 11] = 0x12
    assert decoded(bytes(data), 32, 32) is None


@pytest.mark.parametrize(
    ("data", "out", "match"),
    [
        (np.zeros((3, 3), np.uint8), np.zeros((4, 4, 3), np.uint8), "data must have 1 dimensions"),
        (np.zeros(9, np.int8), np.zeros((4, 4, 3), np.uint8), "data must hold uint8"),
        (np.zeros(9, np.uint8), np.zeros((4, 4), np.uint8), "out must have 3 dimensions"),
        (np.zeros(9, np.uint8), np.zeros((4, 4, 4), np.uint8), "pixels of 3 bytes"),
        (np.zeros(9, np.uint8), np.zeros((4, 4, 6), np.uint8)[:, :, :3], "pixels of 3 bytes"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    data: np.ndarray, out: np.ndarray, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        _native.decode_jpeg(data, out)


def test_memory_that_is_shared_or_read_only_is_refused() -> None:
    room = np.zeros(300, np.uint8)
    with pytest.raises(ValueError, match="must not share memory"):
        _native.decode_jpeg(room, room[:48].reshape(4, 4, 3))
    out = np.zeros((4, 4, 3), np.uint8)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out must be writable"):
        _native.decode_jpeg(room, out)
