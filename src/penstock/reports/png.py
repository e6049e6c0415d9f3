"""Arrays as small PNG images, without any library: for pages that show a few rows."""

import base64
import struct
import zlib
from typing import Any

import numpy as np

from penstock.core.arrays import Array

_MOST_PIXELS = 112  # The longer side of what is shown.
_LEAST = 8  # Smaller arrays are tables of numbers.
_CHANNELS = {1: 0, 3: 2, 4: 6}  # What PNG calls them.


def is_image(value: Any) -> bool:
    """Whether an array looks like an image: height and width of 8 or more, and 1, 3 or 4 channels, or none."""
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind not in "buif"
        or value.ndim not in (2, 3)
    ):
        return False
    if value.ndim == 3 and value.shape[2] not in _CHANNELS:  # height, width, channels
        return False
    height, width = value.shape[:2]
    # A long and narrow one is a series of vectors.
    least, most = sorted((int(height), int(width)))
    return least >= _LEAST and most <= 8 * least


def thumbnail(value: Array) -> str:
    """Return an image as a data URI of a small PNG."""
    step = -(-max(value.shape[:2]) // _MOST_PIXELS)
    small = as_bytes(value[::step, ::step])
    return "data:image/png;base64," + base64.b64encode(_png(small)).decode()


def as_bytes(value: Array) -> Array:
    """Return the values from 0 to 255: as they are, or by the range that they seem to have."""
    if value.dtype == np.uint8:
        return value
    numbers = np.nan_to_num(value.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (0.0, 0.0)
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 255:  # as bytes have it
        low, high = 0.0, 255.0
    scaled = (numbers - low) * (255.0 / (high - low if high > low else 1.0))
    found: Array = scaled.round().astype(np.uint8)
    return found


def _png(pixels: Array) -> bytes:
    height, width = pixels.shape[:2]
    kind = _CHANNELS[1 if pixels.ndim == 2 else pixels.shape[2]]  # no channels
    lines = np.ascontiguousarray(pixels).reshape(height, -1)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(raw, 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
