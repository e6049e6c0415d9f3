"""The header of a JPEG: what is in front of its pixels, read without a library."""

import struct
from collections.abc import Callable
from dataclasses import dataclass

_MOST_SEGMENTS = 4096  # Of a header that has more, Pillow finds the end.
_START = b"\xff\xd8\xff"
_FRAMES = (0xC0, 0xC1, 0xC2)
_PROGRESSIVE = 0xC2
_SCAN = 0xDA
# Tables, restart intervals, applications' own, comments: all else is unusual.
_SKIPPED = {0xC4, 0xDB, 0xDD, *range(0xE0, 0xF0), 0xFE}
# How much finer than colour brightness is, across and down.
_FINER = {0x11, 0x21, 0x12, 0x22, 0x41}


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """What the header of a JPEG says, which is a plain one: grey or of three colours, 8 bits each."""

    width: int
    height: int
    num_colors: int
    has_many_scans: bool
    """Whether its colours, or their details, come one after the other."""


def jpeg_header(read: Callable[[int, int], bytes]) -> JpegHeader | None:
    """Return what the header says; None if it is no JPEG, not a plain one, or damaged.

    `read(offset, nbytes)` returns so many bytes of the file, or fewer at its end.
    """
    if read(0, 3) != _START:
        return None
    at = 2
    frame: JpegHeader | None = None
    for _ in range(_MOST_SEGMENTS):
        head = read(at, 4)
        if len(head) < 4 or head[0] != 0xFF:
            return None
        kind, nbytes = head[1], head[2] << 8 | head[3]
        if kind == _SCAN:
            return _with_scan(frame, read(at + 2, 3))
        if kind in _FRAMES and frame is None:
            frame = _frame(kind, read(at + 2, nbytes))
            if frame is None:
                return None
        elif kind not in _SKIPPED:
            return None
        at += 2 + nbytes
    return None


def _frame(kind: int, body: bytes) -> JpegHeader | None:
    if len(body) < 8:
        return None
    nbytes, bits, height, width, num_colors = struct.unpack_from(">HBHHB", body)
    if bits != 8 or not width or not height or nbytes != len(body) or nbytes != 8 + 3 * num_colors:
        return None
    finer = body[9::3]
    is_plain = num_colors == 1 or (
        num_colors == 3 and finer[0] in _FINER and finer[1:] == b"\x11\x11"
    )
    return JpegHeader(width, height, num_colors, kind == _PROGRESSIVE) if is_plain else None


def _with_scan(frame: JpegHeader | None, body: bytes) -> JpegHeader | None:
    """Return the header, knowing how many colours are in the first scan."""
    if frame is None or len(body) < 3:
        return None
    is_all = body == struct.pack(">HB", 6 + 2 * frame.num_colors, frame.num_colors)
    many = frame.has_many_scans or not is_all
    return JpegHeader(frame.width, frame.height, frame.num_colors, many)
