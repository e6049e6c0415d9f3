"""TFRecord files for tests: rows that tell themselves apart, and ways to damage a file."""

import gzip
import struct
import zlib

import numpy as np
from tests.conformance import run

import penstock as ps
from penstock import _native

FEATURES = {
    "data": ps.FixedFeature((3,), "float32"),
    "label": ps.FixedFeature((), "int64"),
    "ids": ps.VarFeature("int64"),
    "name": ps.FixedFeature((), str),
    "image": ps.TensorFeature((2, None), "uint8"),
    "words": ps.VarFeature(bytes),
}
FIXED = {"data": FEATURES["data"], "label": FEATURES["label"]}


def row(number):
    return {
        "data": np.float32(number) + np.arange(3, dtype="float32"),
        "label": np.int64(number),
        "ids": np.arange(number % 4, dtype="int64"),
        "name": f"n{number}é",
        "image": np.full((2, number % 3), number % 251, "uint8"),
        "words": np.array([b"w" * k for k in range(number % 3)], object),
    }


def rows(count, start=0):
    return [row(number) for number in range(start, start + count)]


def payloads(count, start=0):
    return [ps.tfrecord.encode_example(one, FEATURES) for one in rows(count, start)]


def framed(records):
    offsets = np.cumsum([0, *map(len, records)]).astype(np.int64)
    return _native.tfrecord_frame(b"".join(records), offsets).tobytes()


def write(path, records, compression=None):
    data = framed(records)
    packed = {None: lambda d: d, "GZIP": gzip.compress, "ZLIB": zlib.compress}[compression](data)
    path.write_bytes(packed)
    return path


def starts(records):
    """Where each record begins."""
    return np.cumsum([0, *(16 + len(one) for one in records)]).tolist()


def masked(data):
    crc = _native.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def header(length):
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked(packed))


def damaged(path, at, value=None):
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[at] = data[at] ^ 0xFF if value is None else value
    path.write_bytes(bytes(data))


def labels(ds):
    """Read all rows, and return their labels."""
    return [int(one["label"]) for one in run(ds)]


def every_way(path, features=FIXED, **options):
    """By number, shuffled, and from front to back."""
    yield ps.from_tfrecord(path, features, **options)
    yield ps.from_tfrecord(path, features, **options).shuffle(seed=0)
    yield ps.from_tfrecord(path, features, index=False, **options).batch(3)
