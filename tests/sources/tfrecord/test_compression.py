"""Packed TFRecord files: found by what they begin with, and read to their end."""

import gzip
import zlib

import pytest
from tests.conformance import run
from tests.sources.tfrecord.files import FIXED, framed, labels, payloads, write

import penstock as ps
from penstock.core.rows import Flow, Rows
from penstock.errors import DataError


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_compression_is_found_and_may_be_said(tmp_path, compression):
    path = write(tmp_path / "any.name", payloads(12), compression)
    assert labels(ps.from_tfrecord(path, FIXED)) == list(range(12))
    said = ps.from_tfrecord(path, FIXED, compression=compression or "")
    assert labels(said) == list(range(12))
    assert isinstance(said.node, Flow if compression else Rows)


def test_packed_files_put_one_after_the_other_are_read_to_the_end(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(b"".join(gzip.compress(framed(payloads(5, 5 * n))) for n in range(3)))
    assert labels(ps.from_tfrecord(path, FIXED)) == list(range(15))


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_damaged_packing_is_an_error_with_the_file(tmp_path, pack):
    packed = bytearray(pack(framed(payloads(3000))))
    path = tmp_path / "a"
    path.write_bytes(packed[:-5])
    with pytest.raises(DataError, match="cut off"):
        run(ps.from_tfrecord(path, FIXED))
    packed[len(packed) // 2] ^= 0xFF
    packed[len(packed) // 2 + 1] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(DataError, match=str(path)):
        run(ps.from_tfrecord(path, FIXED))
