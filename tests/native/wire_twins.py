"""The wire format of protobuf in plain Python."""

VARINT, FIXED64, BYTES, GROUP, END_GROUP, FIXED32 = range(6)


class Fault(Exception):
    """What is wrong with a record, by its name in RECORD_FAULTS."""

    def __init__(self, kind, feature=-1):
        super().__init__(kind)
        self.kind = kind
        self.feature = feature


def read_varint(data, at, max_bytes=10):
    value = 0
    for index in range(max_bytes):
        if at + index >= len(data):
            raise Fault("malformed")
        byte = data[at + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value & 2**64 - 1, at + index + 1
    raise Fault("malformed")


def read_fields(data, group=None, depth=0):
    """(number, wire type, value) of each field; the value of fixed ones is their bytes."""
    found, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at, 5)
        number, wire = tag >> 3, tag & 7
        if not 8 <= tag < 2**32:
            raise Fault("malformed")
        if wire == VARINT:
            value, at = read_varint(data, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            value, at = data[at : at + size], at + size
        elif wire == BYTES:
            size, at = read_varint(data, at, 5)
            value, at = data[at : at + size], at + size
            if len(value) != size:
                raise Fault("malformed")
        elif wire == GROUP:
            if depth == 100:
                raise Fault("malformed")
            value, size = read_fields(data[at:], number, depth + 1)
            at += size
        elif wire == END_GROUP and number == group:
            return found, at
        else:
            raise Fault("malformed")
        if at > len(data):
            raise Fault("malformed")
        found.append((number, wire, value))
    if group is not None:
        raise Fault("malformed")
    return found


def read_varints(data):
    values, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at)
        values.append(value)
    return values


def signed(value, bits=64):
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


def varint(value):
    value &= 2**64 - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def delimited(number, body):
    return varint(number << 3 | BYTES) + varint(len(body)) + body
