"""The TFRecord kernels over again in plain Python: slow, and plain enough to be believed."""

import struct
from dataclasses import dataclass, field

import numpy as np

from native.tensor_twins import TENSORS, read_tensor, tensor_values
from native.wire_twins import (
    BYTES,
    FIXED32,
    VARINT,
    Fault,
    delimited,
    read_fields,
    read_varints,
    signed,
    varint,
)

KINDS = {1: "bytes", 2: "floats", 3: "ints"}
MAX_EXPANSION = 64


# Checksums and frames.


def _make_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _make_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(payload):
    length = struct.pack("<Q", len(payload))
    checksums = struct.pack("<I", masked(length)), struct.pack("<I", masked(payload))
    return length + checksums[0] + payload + checksums[1]


def scan(data, remaining=None, verify=True):
    """(offset, length) of each complete record, the bytes they take, and what is wrong with the next."""
    found, at = [], 0
    limit = None if remaining is None else max(remaining, len(data))
    while at < len(data):
        if len(data) - at < 12:
            return found, at, "truncated" if limit is not None and limit - at < 16 else None
        (length,) = struct.unpack_from("<Q", data, at)
        if verify and struct.unpack_from("<I", data, at + 8)[0] != masked(data[at : at + 8]):
            return found, at, "length_checksum"
        if length > 2**62 or (limit is not None and at + 16 + length > limit):
            return found, at, "truncated"
        if at + 16 + length > len(data):
            return found, at, None
        found.append((at, length))
        at += 16 + length
    return found, at, None


def read_list(kind, data):
    values = []
    for number, wire, value in read_fields(data):
        if number != 1:
            continue
        if kind == "bytes" and wire == BYTES:
            values.append(value)
        elif kind == "floats" and wire in (BYTES, FIXED32):
            if len(value) % 4:
                raise Fault("malformed")
            values += np.frombuffer(value, "<f4").tolist()
        elif kind == "ints" and wire == VARINT:
            values.append(signed(value))
        elif kind == "ints" and wire == BYTES:
            values += map(signed, read_varints(value))
    return values


def read_feature(entry):
    """(kind, values) of what a map entry holds, its Features merged; (None, []) for nothing."""
    kind, values = None, []
    for number, wire, value in read_fields(entry):
        if (number, wire) != (2, BYTES):
            continue
        for which, inner, content in read_fields(value):
            if which in KINDS and inner == BYTES:
                if KINDS[which] != kind:
                    kind, values = KINDS[which], []
                values += read_list(kind, content)
    return kind, values


def read_entries(payload):
    """The bytes of the map entry of each key, the last of equal keys."""
    entries = {}
    for number, wire, features in read_fields(payload):
        if (number, wire) != (1, BYTES):
            continue
        for inner, inner_wire, entry in read_fields(features):
            if (inner, inner_wire) == (1, BYTES):
                keys = [v for n, w, v in read_fields(entry) if (n, w) == (1, BYTES)]
                entries[keys[-1] if keys else b""] = entry
    return entries


def read_example(payload):
    """{name: (kind, values)} of all features."""
    return {key: read_feature(entry) for key, entry in read_entries(payload).items()}


# Rows.


@dataclass
class Feature:
    """What the plan says of one feature, in the terms of Python."""

    name: str
    form: str
    type: int
    shape: list = field(default_factory=list)
    is_text: bool = False
    default: object = None

    @property
    def native(self):
        return (self.name, self.form, self.type, self.shape, self.is_text, self.default)

    @property
    def dtype(self):
        # A column of halves is made of numbers here, not of their bits.
        return {19: "<f2"}.get(self.type, TENSORS[self.type][2])

    @property
    def kind(self):
        if self.form == "tensor" or self.type == 7:
            return "bytes"
        return "floats" if self.type in (1, 2, 14, 19) else "ints"

    @property
    def is_fixed(self):
        return self.form != "variable" and -1 not in self.shape and self.type != 7

    @property
    def count(self):
        return int(np.prod(self.shape, dtype=object)) if -1 not in self.shape else -1


def decode_row(payload, features):
    """The values of each feature: the bytes of numbers, or a list of bytes; with the shape of a tensor."""
    entries = read_entries(payload)
    return [
        decode_feature(feature, index, entries.get(feature.name.encode()), len(payload))
        for index, feature in enumerate(features)
    ]


def decode_feature(feature, index, entry, record_nbytes):
    try:
        return values_of(feature, entry, record_nbytes)
    except Fault as fault:
        raise Fault(fault.kind, index) from None


def values_of(feature, entry, record_nbytes):
    kind, values = (None, []) if entry is None else read_feature(entry)
    if kind is None:
        return missing(feature)
    if kind != feature.kind:
        raise Fault("wrong_kind")
    if feature.form == "tensor":
        if len(values) != 1:
            raise Fault("wrong_size")
        return decode_tensor(feature, values[0], record_nbytes)
    if feature.form == "fixed" and len(values) != feature.count:
        raise Fault("wrong_size")
    return convert(feature, values), [len(values)]


def missing(feature):
    if feature.form == "variable":
        return ([] if feature.type == 7 else b""), [0]
    if feature.default is None:
        raise Fault("missing")
    return feature.default, [feature.count]


def convert(feature, values):
    if feature.kind == "bytes":
        for value in values:
            check_text(feature, value)
        return values
    if feature.kind == "floats":
        floats = np.array(values, "<f4")
        with np.errstate(over="ignore"):
            made = to_bfloat16(floats) if feature.type == 14 else floats.astype(feature.dtype)
        infinite = made & 0x7FFF == 0x7F80 if feature.type == 14 else np.isinf(made)
        if (infinite & np.isfinite(floats)).any():
            raise Fault("out_of_range")
        return made.tobytes()
    low, high = (
        (0, 1) if feature.type == 10 else (np.iinfo(feature.dtype).min, np.iinfo(feature.dtype).max)
    )
    if any(not low <= value <= high for value in values):
        raise Fault("out_of_range")
    return np.array(values, feature.dtype).tobytes()


def to_bfloat16(floats):
    rounded = []
    for bits in floats.view("<u4").tolist():
        is_nan = bits & 0x7FFFFFFF > 0x7F800000
        rounded.append(bits >> 16 | 0x40 if is_nan else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return np.array(rounded, "<u2")


def check_text(feature, value):
    if feature.is_text:
        try:
            value.decode("utf-8")
        except UnicodeDecodeError:
            raise Fault("not_utf8") from None


def decode_tensor(feature, data, record_nbytes):
    kind, shape, count, content, fields = read_tensor(data)
    dtype = TENSORS[kind][2]
    # Whether the content has the right size is part of what makes a tensor sound.
    if dtype is not None and count and content and len(content) != count * np.dtype(dtype).itemsize:
        raise Fault("bad_tensor")
    if kind != feature.type:
        raise Fault("tensor_type")
    if len(shape) != len(feature.shape) or any(
        want not in (-1, got) for want, got in zip(feature.shape, shape, strict=True)
    ):
        raise Fault("tensor_shape")
    room = record_nbytes * MAX_EXPANSION
    if not feature.is_fixed and not content:
        if dtype is not None and count * np.dtype(dtype).itemsize > room:
            raise Fault("tensor_expands")
        # Enough strings to run out of room.
        count = min(count, room // 8 + 1)
    values = tensor_values(kind, count, content, fields)
    if dtype is None:
        for value in values:
            room -= 8 + len(value)
            if room < 0:
                raise Fault("tensor_expands")
            check_text(feature, value)
    return values, shape


# Writing.


def encode_list(kind, values):
    if kind == "bytes":
        body = b"".join(delimited(1, value) for value in values)
        return delimited(1, body)
    if kind == "floats":
        packed = np.array(values, "<f4").tobytes()
        return delimited(2, delimited(1, packed) if packed else b"")
    packed = b"".join(map(varint, values))
    return delimited(3, delimited(1, packed) if packed else b"")


def encode_example(features):
    """{name: (kind, values)} to bytes, as protobuf's deterministic serialisation has them."""
    entries = [
        delimited(1, delimited(1, name.encode()) + delimited(2, encode_list(*features[name])))
        for name in sorted(features, key=str.encode)
    ]
    return delimited(1, b"".join(entries))
