"""How many bytes the chunks of a Zarr array may have: in a store, and after each of their codecs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.sources.zarr.packed import PACKERS

Config = Mapping[str, Any]
_SLACK_NBYTES = 1 << 16  # Codecs before a packer may add a little.
_CHUNK_SLACK_NBYTES = 1 << 10
_WIDEST_NBYTES = 16
_INDEX_NBYTES = 16  # Of a chunk, in the index of a shard.
_RANGE_NBYTES = 1 << 24  # Zarr may read the chunks of a shard that lie next to each other at once.
_ENCODED = (
    "astype",
    "encode_dtype",
)  # What a codec makes of values, by the names that it may have.
_DECODED = ("dtype", "decode_dtype")
# They keep the bytes of a value, but for what they say themselves.
_KEEP_WIDTH = {
    *PACKERS,
    *("bytes", "endian", "transpose", "shuffle", "sharding_indexed"),
    *("delta", "bitround", "quantize", "fixedscaleoffset", "astype", "categorize"),
    *("crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"),
}


class WidthError(ValueError):
    """A codec makes wider values than the array has."""


def codecs_of(array: Any) -> list[Config]:
    """Return the codecs of an array as its metadata has them.

    Not by `array.metadata.to_dict()`: that warns of data types, which nobody asked about.
    """
    metadata = array.metadata
    if metadata.zarr_format == 2:
        codecs = [*(metadata.filters or ()), metadata.compressor]
        return [one.get_config() for one in codecs if one is not None]
    return [one.to_dict() for one in metadata.codecs]


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes that are read at once from a store."""

    whole: int
    """Of a file that is read whole."""
    part: int
    """Of a file that is not: a shard."""


def limits_of(array: Any) -> Limits:
    """Return the most bytes that are read at once of a file of an array."""
    width = np.dtype(array.dtype).itemsize
    if array.metadata.zarr_format == 2:
        whole = _SLACK_NBYTES + _most_packed(codecs_of(array), array.chunks, width)
        return Limits(whole, whole)
    codecs, shape = named(codecs_of(array)), array.metadata.chunk_grid.chunk_shape
    whole = part = _SLACK_NBYTES + _most_packed(codecs, shape, width)
    if array.shards is not None:
        index = _num_chunks(array.shards, array.chunks) * _INDEX_NBYTES
        chunk = _most_packed(named(codecs[0]["codecs"]), array.chunks, width)
        part = max(_RANGE_NBYTES, chunk, index) + _SLACK_NBYTES
    return Limits(whole, part)


def _most_packed(codecs: Sequence[Config], shape: Sequence[int], width: int) -> int:
    """Return the most bytes that a chunk takes when it is packed, or in any step before that."""
    steps = list(_steps(codecs, math.prod(shape), width))
    for codec, (_, of_codec) in zip(codecs, steps, strict=False):
        if codec["id"] == "sharding_indexed":
            inner = tuple(codec["chunk_shape"])
            chunk = _most_packed(named(codec["codecs"]), inner, of_codec)
            return _num_chunks(shape, inner) * (chunk + _INDEX_NBYTES) + _CHUNK_SLACK_NBYTES
    return 2 * max(count * of_codec for count, of_codec in steps) + _CHUNK_SLACK_NBYTES


def _num_chunks(shape: Sequence[int], inner: Sequence[int]) -> int:
    return math.prod(-(-whole // max(1, part)) for whole, part in zip(shape, inner, strict=True))


def named(codecs: Sequence[Any]) -> list[Config]:
    """Return the codecs of version 3 as version 2 writes them."""
    return [
        {**(one.get("configuration") or {}), "id": str(one["name"]).removeprefix("numcodecs.")}
        for one in codecs
    ]


def _steps(codecs: Sequence[Config], count: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield how many values a chunk has, and the most bytes of one, before each codec and after the last."""
    width = max(1, width)
    yield count, width
    for codec in codecs:
        encoded = [_itemsize(codec[key]) for key in _ENCODED if codec.get(key) is not None]
        if encoded:
            width = max(encoded)
        elif codec["id"] == "packbits":
            count, width = count // 8 + 2, 1
        elif codec["id"] not in _KEEP_WIDTH:
            width = max(width, _WIDEST_NBYTES)
        yield count, width


def _itemsize(dtype: Any) -> int:
    try:
        return max(1, int(np.dtype(dtype).itemsize))
    except TypeError:
        return _WIDEST_NBYTES  # The codec says so.


def decoded_sizes(
    codecs: Sequence[Config], shape: Sequence[int], width: int
) -> list[tuple[int, int]]:
    """Return the most bytes that each codec may decode to, and the most of one value; raise if it would make more."""
    steps = list(_steps(codecs, math.prod(shape), width))
    for codec, (_, of_codec) in zip(codecs, steps, strict=False):
        made = max((_itemsize(codec[key]) for key in _DECODED if codec.get(key)), default=0)
        if made > max(of_codec, _WIDEST_NBYTES):
            raise WidthError(
                f"values of {of_codec} bytes, of which codec {codec['id']!r} makes values of {made} bytes"
            )
    return [
        (count * of_codec + count * of_codec // 8 + _SLACK_NBYTES, of_codec)
        for count, of_codec in steps[: len(codecs)]
    ]
