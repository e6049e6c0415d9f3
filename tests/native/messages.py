"""Hypothesis strategies for records: those that writers make, all others that protobuf allows, and damaged ones."""

import math

import numpy as np
from hypothesis import strategies as st

from native.tensor_twins import QUANTIZED, TENSORS, encode_tensor
from native.tfrecord_twins import Feature, encode_example
from native.wire_twins import BYTES, FIXED32, FIXED64, VARINT, delimited, varint

NAMES = ["", "x", "label", "a name longer than eight bytes", "é"]
LIST_TYPES = [1, 2, 3, 4, 5, 6, 7, 9, 10, 14, 17, 19, 22, 23]
FIELD = {"bytes": 1, "floats": 2, "ints": 3}

FLOATS = st.floats(width=32)
INTS = st.one_of(st.integers(0, 1), st.integers(-200, 300), st.integers(-(2**63), 2**63 - 1))
STRINGS = st.one_of(st.binary(max_size=12), st.text(max_size=4).map(str.encode))
VALUES = {"bytes": STRINGS, "floats": FLOATS, "ints": INTS}


def padded(encoded, extra, limit):
    """The same varint in more bytes than it needs."""
    extra = min(extra, limit - len(encoded))
    if extra <= 0:
        return encoded
    return bytes(b | 0x80 for b in encoded) + b"\x80" * (extra - 1) + b"\0"


@st.composite
def varints(draw, value, limit=10):
    return padded(varint(value), draw(st.sampled_from([0, 0, 0, 0, 1, 9])), limit)


@st.composite
def fields(draw, number, body):
    """A length-delimited field, its tag and length now and then longer than needed."""
    tag = draw(varints(number << 3 | BYTES, 5))
    return tag + draw(varints(len(body), 5)) + body


@st.composite
def unknown_fields(draw):
    """A field that nobody asked for; groups included."""
    number = draw(st.integers(4, 40))
    wire = draw(st.sampled_from([VARINT, FIXED64, BYTES, FIXED32, 3]))
    tag = varint(number << 3 | wire)
    if wire == VARINT:
        return tag + draw(varints(draw(st.integers(0, 2**64 - 1))))
    if wire == BYTES:
        return tag + varint(3) + draw(st.binary(min_size=3, max_size=3))
    if wire == 3:
        inner = draw(st.sampled_from([b"", b"\x08\x01", b"\x13\x14", b"\x15abcd"]))
        return tag + inner + varint(number << 3 | 4)
    return tag + b"12345678"[: 8 if wire == FIXED64 else 4]


def shuffled(draw, parts, chance=8):
    """The parts one after the other, an unknown field among them now and then."""
    if draw(st.integers(0, chance)) == 0:
        parts = [*parts, draw(unknown_fields())]
        parts = draw(st.permutations(parts))
    return b"".join(parts)


@st.composite
def lists(draw, kind, values):
    """The body of a list, packed or not, in any number of parts."""
    parts = []
    while values:
        count = draw(st.integers(1, len(values)))
        chunk, values = values[:count], values[count:]
        if kind == "bytes":
            parts += [draw(fields(1, value)) for value in chunk]
        elif draw(st.booleans()):
            packed = (
                np.array(chunk, "<f4").tobytes()
                if kind == "floats"
                else b"".join(draw(varints(value)) for value in chunk)
            )
            parts.append(draw(fields(1, packed)))
        elif kind == "floats":
            parts += [b"\x0d" + np.array(value, "<f4").tobytes() for value in chunk]
        else:
            parts += [b"\x08" + draw(varints(value)) for value in chunk]
    return shuffled(draw, parts)


@st.composite
def messy_features(draw, kind, values):
    """A Feature in several parts, and now and then of several kinds: the last one counts."""
    parts = []
    if draw(st.integers(0, 7)) == 0:
        other = draw(st.sampled_from(sorted(FIELD)))
        ignored = draw(st.lists(VALUES[other], max_size=2))
        parts.append(draw(fields(FIELD[other], draw(lists(other, ignored)))))
    cut = draw(st.integers(0, len(values))) if draw(st.integers(0, 3)) == 0 else len(values)
    halves = [values[:cut], values[cut:]] if cut < len(values) else [values]
    parts += [draw(fields(FIELD[kind], draw(lists(kind, half)))) for half in halves]
    if draw(st.integers(0, 7)) == 0:
        parts.append(draw(unknown_fields()))
    return b"".join(parts)


@st.composite
def messy_examples(draw, content):
    """{name: (kind, values)} in one of the many ways that protobuf allows."""
    entries = []
    for name, (kind, values) in content:
        feature = draw(messy_features(kind, values)) if kind else b""
        key = draw(fields(1, name.encode())) if name or draw(st.booleans()) else b""
        parts = [key, draw(fields(2, feature))]
        if draw(st.integers(0, 5)) == 0:
            parts.reverse()
        entries.append(draw(fields(1, shuffled(draw, parts, 20))))
    cut = draw(st.integers(0, len(entries)))
    groups = [entries[:cut], entries[cut:]] if draw(st.integers(0, 3)) == 0 else [entries]
    return shuffled(draw, [draw(fields(1, shuffled(draw, group))) for group in groups])


@st.composite
def damaged(draw, data):
    """Bytes with something wrong: changed, cut off, taken out or put in."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(["change", "cut", "remove", "insert", "bit"]))
        if how == "cut":
            del data[at:]
        elif how == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif data and how == "remove":
            del data[at]
        elif data:
            data[at] = (
                draw(st.integers(0, 255))
                if how == "change"
                else data[at] ^ 1 << draw(st.integers(0, 7))
            )
    return bytes(data)


@st.composite
def tensor_bytes(draw, kind=None, shape=None):
    """A TensorProto: by its content, or by its values, of which the last may stand for many."""
    stored = kind if kind is not None else draw(st.sampled_from([*TENSORS, *QUANTIZED]))
    kind = QUANTIZED.get(stored, stored)
    where, how, dtype = TENSORS[kind]
    if shape is None:
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape)
    has_content = draw(st.booleans())
    head = encode_tensor(stored, shape, [] if kind == 7 else b"")
    if kind == 7:
        items = draw(st.lists(STRINGS, min_size=count, max_size=count))
        if has_content:
            body = b"".join(varint(len(item)) for item in items) + b"".join(items)
            return head + delimited(4, body)
        items = items[: draw(st.integers(0, count))] if draw(st.booleans()) else items
        return head + b"".join(delimited(8, item) for item in items)
    width = np.dtype(dtype).itemsize
    size = 1 if kind == 10 else 255
    if has_content or how == BYTES:
        raw = bytes(
            draw(st.lists(st.integers(0, size), min_size=count * width, max_size=count * width))
        )
        return head + delimited(4 if has_content else 18, raw)
    parts = {8: 2, 18: 2}.get(kind, 1)
    given = draw(st.integers(0, (count + 1) * parts))
    if how == VARINT:
        numbers = draw(st.lists(INTS, min_size=given, max_size=given))
        packed = [draw(varints(number)) for number in numbers]
    else:
        step = 4 if how == FIXED32 else 8
        packed = [draw(st.binary(min_size=step, max_size=step)) for _ in range(given)]
    cut = draw(st.integers(0, given))
    body = delimited(where, b"".join(packed[:cut])) if draw(st.booleans()) else b""
    return head + body + b"".join(varint(where << 3 | how) + value for value in packed[cut:])


@st.composite
def features(draw, name):
    form = draw(st.sampled_from(["fixed", "variable", "tensor"]))
    if form == "tensor":
        shape = draw(st.lists(st.integers(-1, 3), max_size=3))
        kind = draw(st.sampled_from(sorted(TENSORS)))
        return Feature(name, form, kind, shape, kind == 7 and draw(st.booleans()))
    kind = draw(st.sampled_from(LIST_TYPES))
    feature = Feature(name, form, kind, [], kind == 7 and draw(st.booleans()))
    if form == "fixed":
        feature.shape = draw(st.lists(st.integers(0, 3), max_size=2))
        if draw(st.booleans()):
            feature.default = default_of(feature)
    return feature


def default_of(feature):
    if feature.type == 7:
        return [b"default"] * feature.count
    return (np.arange(feature.count) % 2).astype(feature.dtype).tobytes()


@st.composite
def contents(draw, feature):
    """(kind, values) that mostly are what a feature asks for."""
    kind = feature.kind
    if draw(st.integers(0, 15)) == 0:
        return draw(
            st.sampled_from([(None, []), ("floats", [1.0]), ("ints", [1, 2]), ("bytes", [b"?"])])
        )
    if feature.form == "tensor":
        shape = [draw(st.integers(0, 3)) if size < 0 else size for size in feature.shape]
        if draw(st.integers(0, 9)) == 0:
            shape = None
        return kind, [draw(tensor_bytes(feature.type if draw(st.integers(0, 9)) else None, shape))]
    count = feature.count if feature.form == "fixed" else draw(st.integers(0, 4))
    if draw(st.integers(0, 15)) == 0:
        count += 1
    values = VALUES[kind]
    if kind == "ints" and draw(st.integers(0, 3)):
        is_bool = feature.type == 10
        values = st.integers(0, 1 if is_bool else 127)
    return kind, draw(st.lists(values, min_size=count, max_size=count))


@st.composite
def jobs(draw):
    """Features, and records that hold them: alike, so that the fast path has a go, or each in its own way."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    wanted = [draw(features(name)) for name in names]
    is_messy = draw(st.booleans())
    records = []
    for _ in range(draw(st.integers(0, 6))):
        pairs = [(feature.name, draw(contents(feature))) for feature in wanted]
        if draw(st.integers(0, 5)) == 0 and pairs:
            pairs.pop(draw(st.integers(0, len(pairs) - 1)))
        pairs.append(("not asked for", ("ints", [1, 300])))
        if is_messy:
            record = draw(messy_examples(draw(st.permutations(pairs))))
        else:
            record = encode_example({name: pair for name, pair in pairs if pair[0]})
        records.append(draw(damaged(record)) if draw(st.integers(0, 7)) == 0 else record)
        if draw(st.booleans()):
            records.append(records[-1])
    return wanted, records
