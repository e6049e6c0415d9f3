"""TensorProto in plain Python."""

import numpy as np

from native.wire_twins import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Fault,
    delimited,
    read_fields,
    read_varint,
    read_varints,
    signed,
    varint,
)

# The field that holds the values, how it is packed, and the NumPy dtype, by DataType.
TENSORS = {
    1: (5, FIXED32, "<f4"), 2: (6, FIXED64, "<f8"), 3: (7, VARINT, "<i4"), 4: (7, VARINT, "u1"),
    5: (7, VARINT, "<i2"), 6: (7, VARINT, "i1"), 7: (8, BYTES, None), 8: (9, FIXED32, "<c8"),
    9: (10, VARINT, "<i8"), 10: (11, VARINT, "?"), 14: (13, VARINT, "<u2"), 17: (7, VARINT, "<u2"),
    18: (12, FIXED64, "<c16"), 19: (13, VARINT, "<u2"), 22: (16, VARINT, "<u4"), 23: (17, VARINT, "<u8"),
    **dict.fromkeys(range(24, 29), (18, BYTES, "u1")),
}  # fmt: skip
QUANTIZED = {11: 6, 12: 4, 13: 3, 15: 5, 16: 17}
PACKED = {5: 4, 6: 8, 9: 4, 12: 8, 7: 0, 10: 0, 11: 0, 13: 0, 16: 0, 17: 0}


def read_shape(data):
    sizes = []
    for number, wire, value in read_fields(data):
        if (number, wire) != (2, BYTES):
            continue
        size = 0
        for inner, inner_wire, content in read_fields(value):
            if (inner, inner_wire) == (1, VARINT):
                size = signed(content)
            elif (inner, inner_wire) == (2, BYTES):
                content.decode("utf-8")
        sizes.append(size)
    return sizes


def read_parts(data):
    """DataType, shape, content, and all fields."""
    fields = read_fields(data)
    stored, shape, content = 0, [], b""
    for number, wire, value in fields:
        if (number, wire) == (1, VARINT):
            stored = value & 2**32 - 1
        elif (number, wire) == (2, BYTES):
            shape += read_shape(value)
        elif (number, wire) == (4, BYTES):
            content = value
        elif wire == BYTES and number in PACKED:
            if PACKED[number] and len(value) % PACKED[number]:
                raise Fault("bad_tensor")
            if not PACKED[number]:
                read_varints(value)
    return stored, shape, content, fields


def read_tensor(data):
    """(DataType, shape, number of values, content, fields) of a tensor that is sound but for its values."""
    try:
        stored, shape, content, fields = read_parts(data)
    except (Fault, UnicodeDecodeError):
        raise Fault("bad_tensor") from None
    if len(shape) > 254 or any(size < 0 for size in shape):
        raise Fault("bad_tensor")
    kind = QUANTIZED.get(stored, stored)
    if kind not in TENSORS:
        raise Fault("tensor_type")
    count = 1
    for size in shape:
        count *= size
        if count >= 2**63:
            raise Fault("bad_tensor")
    return kind, shape, count, content, fields


def tensor_values(kind, count, content, fields):
    where, how, dtype = TENSORS[kind]
    if count == 0:
        return [] if dtype is None else b""
    if dtype is None:
        return tensor_strings(count, content, fields)
    width = np.dtype(dtype).itemsize
    if content:
        if len(content) != count * width or (kind == 10 and max(content) > 1):
            raise Fault("bad_tensor")
        return content
    if how == VARINT:
        numbers = []
        for number, wire, value in fields:
            if number == where and wire in (VARINT, BYTES):
                numbers += [value] if wire == VARINT else read_varints(value)
        if kind == 10:
            numbers = [int(number != 0) for number in numbers]
        raw = b"".join((n & 256**width - 1).to_bytes(width, "little") for n in numbers)
    elif how == BYTES:
        raw = ([b""] + [v for n, w, v in fields if (n, w) == (where, BYTES)])[-1]
    else:
        raw = b"".join(v for n, w, v in fields if n == where and w in (how, BYTES))
    raw = raw[: len(raw) // width * width][: count * width]
    return raw + (raw[-width:] or bytes(width)) * (count - len(raw) // width)


def tensor_strings(count, content, fields):
    if not content:
        items = [v for n, w, v in fields if (n, w) == (8, BYTES)][:count]
        return items + ([*items, b""][: len(items) or 1][-1:]) * (count - len(items))
    try:
        sizes, at = [], 0
        for _ in range(count):
            size, at = read_varint(content, at)
            sizes.append(size)
    except Fault:
        raise Fault("bad_tensor") from None
    if any(size >= 2**32 for size in sizes) or sum(sizes) != len(content) - at:
        raise Fault("bad_tensor")
    items = []
    for size in sizes:
        items.append(content[at : at + size])
        at += size
    return items


def encode_tensor(kind, shape, values):
    """A TensorProto as tf.io.serialize_tensor writes it: `values` is bytes, or a list of bytes."""
    sizes = [delimited(2, b"\x08" + varint(size) if size else b"") for size in shape]
    head = b"\x08" + varint(kind) + delimited(2, b"".join(sizes))
    if kind == 7:
        return head + b"".join(delimited(8, value) for value in values)
    return head + (delimited(4, values) if values else b"")
