"""The checksums of a PNG's pixels, which Pillow reads over: compared here, as the bytes go by."""

import struct
import zlib

_HEAD = struct.Struct(">I4s")
_TAIL_NBYTES = 4
_PIXELS = b"IDAT"


class PngSums:
    """Follows chunks of pixels, each with a CRC-32 behind it, from the head of the first one on."""

    def __init__(self, start: int) -> None:
        self.at = start
        """Where in the file the next byte is that was not seen yet."""
        self.is_done = False
        """Whether all chunks of pixels were seen."""
        self.is_bad = False
        self._head = b""
        self._left = 0
        """The bytes of pixels that are left of the chunk."""
        self._crc = 0
        self._tail = b""

    def saw(self, offset: int, data: memoryview) -> None:
        """Take in what was read from a place of the file, if it goes on from what was seen before."""
        while offset <= self.at < offset + len(data) and not self.is_done:
            self.at += self._take(data[self.at - offset :])

    def _take(self, data: memoryview) -> int:
        """Take the next piece of a chunk, and return how many bytes that was."""
        if len(self._head) < _HEAD.size:
            piece = data[: _HEAD.size - len(self._head)]
            self._head += piece
            if len(self._head) == _HEAD.size:
                self._left, kind = _HEAD.unpack(self._head)
                self._crc = zlib.crc32(kind)
                self.is_done = kind != _PIXELS
        elif self._left:
            piece = data[: self._left]
            self._crc = zlib.crc32(piece, self._crc)
            self._left -= len(piece)
        else:
            piece = data[: _TAIL_NBYTES - len(self._tail)]
            self._tail += piece
            if len(self._tail) == _TAIL_NBYTES:
                self.is_bad |= int.from_bytes(self._tail, "big") != self._crc
                self._head = self._tail = b""
        return len(piece)
