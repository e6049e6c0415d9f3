"""Files that TensorBoard reads: TFRecords with a few fields of tf.Event; made without TensorFlow and TensorBoard."""

import itertools
import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from time import time

from penstock import _native

_numbers = itertools.count()
# Wire types of protocol buffers.
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5
_DT_STRING = 7


class EventFile:
    """Scalars and texts by step, appended to one file. It is open only while it is written."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Name a file in a folder; both are made by the first write."""
        name = f"events.out.tfevents.{int(time()):010}.{socket.gethostname()}.{os.getpid()}.{next(_numbers)}.penstock"
        self.path = Path(folder) / name
        self._is_begun = False

    def write(
        self, step: int, scalars: Mapping[str, float], texts: Mapping[str, str] | None = None
    ) -> None:
        """Append the values of a step, each under its tag."""
        values = [_scalar(tag, value) for tag, value in scalars.items()]
        values += [_text(tag, text) for tag, text in (texts or {}).items()]
        now = _field(1, _DOUBLE, struct.pack("<d", time()))
        event = now + _field(2, _VARINT, _varint(step)) + _field(5, _BYTES, b"".join(values))
        records = _record(event)
        if not self._is_begun:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            records = _record(now + _field(3, _BYTES, b"brain.Event:2")) + records
            self._is_begun = True
        with self.path.open("ab") as file:
            file.write(records)


def _utf8(text: str) -> bytes:
    """Return a text in UTF-8; names of files may have bytes that are none."""
    return text.encode("utf-8", "backslashreplace")


def _scalar(tag: str, value: float) -> bytes:
    """Return a field of a Summary: a Value with a tag and a simple_value."""
    number = _field(2, _FLOAT, struct.pack("<f", value))
    return _field(1, _BYTES, _field(1, _BYTES, _utf8(tag)) + number)


def _text(tag: str, text: str) -> bytes:
    """Return a field of a Summary: a Value with a tag, a tensor of one string, and the name of the plugin for texts."""
    tensor = _field(1, _VARINT, _varint(_DT_STRING)) + _field(2, _BYTES, b"")
    tensor += _field(8, _BYTES, _utf8(text))
    plugin = _field(1, _BYTES, _field(1, _BYTES, b"text"))
    return _field(
        1,
        _BYTES,
        _field(1, _BYTES, _utf8(tag)) + _field(8, _BYTES, tensor) + _field(9, _BYTES, plugin),
    )


def _field(number: int, wire: int, data: bytes) -> bytes:
    length = _varint(len(data)) if wire == _BYTES else b""
    return _varint(number << 3 | wire) + length + data


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _record(data: bytes) -> bytes:
    """Return one TFRecord: length, its checksum, the bytes, theirs."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = _native.crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
