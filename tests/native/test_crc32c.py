"""Checksums of bytes, of spans, and of two pieces together, against plain Python."""

import itertools
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native

from . import tfrecord_twins as twins

CASTAGNOLI, IEEE = 0x82F63B78, 0xEDB88320


@given(st.binary(max_size=300), st.binary(max_size=5000), st.booleans())
def test_a_checksum_goes_on_from_that_of_the_bytes_before(first, second, portable):
    before = _native.crc32c(first)
    whole = _native.crc32c(second, before=before, portable=portable)
    assert whole == twins.crc32c(first + second)


@pytest.mark.parametrize("nbytes", [16_319, 16_320, 16_321, 32_640, 50_000, 65_536, 100_001])
@pytest.mark.parametrize("skipped", [0, 1, 7])
def test_checksums_of_many_bytes_are_those_of_the_tables(nbytes, skipped):
    content = np.random.default_rng(nbytes).integers(0, 256, nbytes + skipped, np.uint8)[skipped:]
    found = _native.crc32c(content, before=5)
    assert found == _native.crc32c(content, before=5, portable=True)
    content[nbytes // 2] ^= 1
    assert found != _native.crc32c(content, before=5)


@given(st.binary(max_size=500), st.binary(max_size=500))
def test_checksums_of_two_pieces_are_combined(first, second):
    found = _native.combined_crc(
        zlib.crc32(first), zlib.crc32(second), len(second), polynomial=IEEE
    )
    assert found == zlib.crc32(first + second)
    sums = _native.crc32c(first), _native.crc32c(second)
    found = _native.combined_crc(*sums, len(second), polynomial=CASTAGNOLI)
    assert found == _native.crc32c(first + second)


def test_pieces_of_many_bytes_are_combined():
    first, second = bytes(range(256)) * 30, b"\x07" * (3 << 20)
    found = _native.combined_crc(
        zlib.crc32(first), zlib.crc32(second), len(second), polynomial=IEEE
    )
    assert found == zlib.crc32(first + second)


@given(st.binary(max_size=3000), st.data())
def test_each_span_has_its_checksum(content, data):
    edges = sorted(data.draw(st.lists(st.integers(0, len(content)), min_size=1, max_size=9)))
    out = np.zeros(len(edges) - 1, np.uint32)
    _native.crc32c_of_spans(content, np.array(edges, np.int64), out)
    wanted = [twins.crc32c(content[a:b]) for a, b in itertools.pairwise(edges)]
    assert out.tolist() == wanted


@pytest.mark.parametrize("edges", [[0, 11], [-1, 5], [5, 3]])
def test_edges_outside_the_data_are_refused(edges):
    with pytest.raises(ValueError, match="edges must rise"):
        _native.crc32c_of_spans(bytes(10), np.array(edges), np.zeros(1, np.uint32))
