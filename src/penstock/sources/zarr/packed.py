"""How the chunks of a Zarr array are packed, and what is checked before Zarr unpacks them.

Zarr unpacks whatever a chunk holds, and some codecs allocate what it claims: a few kilobytes may become gigabytes.
"""

import bz2
import lzma
import math
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.optional import require
from penstock.errors import DataError
from penstock.io.location import without_secrets

_SLACK_NBYTES = 1 << 16  # Filters before the compressor may add a little.
_WIDEST_NBYTES = 16
_PIECE_NBYTES = 1 << 20
_BLOSC_HEAD_NBYTES = 16
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_SUMS = {"crc32c", "crc32", "adler32", "fletcher32", "jenkins_lookup3"}  # They add 4 bytes.
_EMPTY = 2**64 - 1  # In the index of a shard: there is no such chunk.
_UNKNOWN = -1


class BombError(ValueError):
    """A chunk unpacks to more than it may hold."""


@dataclass(frozen=True, slots=True)
class Shards:
    """How chunks lie in the shards of an array."""

    num_chunks: int
    """Of one shard."""
    index_nbytes: int
    is_index_first: bool

    def is_index(self, start: int, stop: int | None) -> bool:
        """Return whether a read of these bytes (negative: from the end) is that of the index."""
        if self.is_index_first:
            return (start, stop) == (0, self.index_nbytes)
        return start == -self.index_nbytes

    def chunks(self, data: bytes) -> Iterator[bytes]:
        """Yield the chunks of a shard, as they are packed."""
        at = 0 if self.is_index_first else len(data) - self.index_nbytes
        if at < 0 or len(data) < self.index_nbytes:
            return  # Zarr says so.
        for start, nbytes in (
            np.frombuffer(data, "<u8", 2 * self.num_chunks, at).reshape(-1, 2).tolist()
        ):
            if start != _EMPTY and start < len(data):
                yield data[start : start + nbytes]


@dataclass(frozen=True, slots=True)
class Packing:
    """How the chunks of an array are packed."""

    codecs: tuple[Mapping[str, Any], ...]
    """What was applied to the bytes of a chunk, in that order; `id` is the name of each."""
    nbytes: int
    """The most bytes that a chunk takes before it is packed."""
    shards: Shards | None = None

    @property
    def most_stored(self) -> int:
        """The most bytes that a file of the array has."""
        count = 1 if self.shards is None else self.shards.num_chunks
        index = 0 if self.shards is None else self.shards.index_nbytes
        return count * (2 * self.nbytes + _SLACK_NBYTES) + index

    def check(self, data: bytes, start: int, stop: int | None, file: str) -> None:
        """Raise if what was read from a file unpacks to more than it may."""
        is_whole = start == 0 and stop is None
        if self.shards is None:
            chunks = [data] if is_whole else []
        elif is_whole:
            chunks = self.shards.chunks(data)  # type: ignore[assignment]  # One at a time.
        else:
            chunks = [] if self.shards.is_index(start, stop) else [data]
        for chunk in chunks:
            try:
                self._check_chunk(chunk)
            except BombError as error:
                raise DataError(
                    f"the chunk can't be unpacked: {error}",
                    file=without_secrets(file),
                    cure="It is damaged or cut off: copy it again from its original.",
                ) from error

    def _check_chunk(self, data: bytes) -> None:
        most = self.nbytes + self.nbytes // 8 + _SLACK_NBYTES
        packers = [number for number, codec in enumerate(self.codecs) if codec["id"] in _PACKERS]
        for number in range(len(self.codecs) - 1, -1, -1):
            codec = self.codecs[number]
            # Before or behind the bytes: what is packed begins with either.
            if codec["id"] in _SUMS:
                is_first = (
                    codec.get("location", "end" if codec["id"] == "crc32c" else "start") == "start"
                )
                data = data[4:] if is_first and codec["id"] != "fletcher32" else data[:-4]
                continue
            if codec["id"] not in _PACKERS:
                return  # It keeps the number of bytes, or is not known.
            unpacked = _PACKERS[codec["id"]](data, most, codec, is_wanted=number > packers[0])
            if unpacked is None:
                return
            data = unpacked


def codecs_of(array: Any) -> list[Mapping[str, Any]]:
    """Return the codecs of an array as its metadata has them.

    Not by `array.metadata.to_dict()`: that warns of data types, which nobody asked about.
    """
    metadata = array.metadata
    if metadata.zarr_format == 2:
        codecs = [*(metadata.filters or ()), metadata.compressor]
        return [one.get_config() for one in codecs if one is not None]
    return [one.to_dict() for one in metadata.codecs]


def packing_of(array: Any) -> Packing:
    """Return how the chunks of an array are packed."""
    codecs = codecs_of(array)
    itemsize = max(1, np.dtype(array.dtype).itemsize)
    # They may widen each value before it is packed, up to the widest number there is.
    if array.filters:
        itemsize = max(itemsize, _WIDEST_NBYTES)
    nbytes = math.prod(array.chunks) * itemsize
    if array.metadata.zarr_format == 2:
        return Packing(tuple(codecs), nbytes)
    shards = None
    if getattr(array, "shards", None):
        number = next(i for i, one in enumerate(codecs) if one["name"] == "sharding_indexed")
        if codecs[number + 1 :]:  # Packed once more as a whole.
            nbytes = math.prod(array.shards) * itemsize
            return Packing(_named(codecs[number + 1 :]), nbytes)
        sharding = codecs[number]["configuration"]
        count = math.prod(
            -(-whole // part) for whole, part in zip(array.shards, array.chunks, strict=True)
        )
        sums = len([one for one in sharding["index_codecs"] if one["name"] == "crc32c"])
        is_first = str(sharding.get("index_location", "end")).endswith("start")
        shards = Shards(count, 16 * count + 4 * sums, is_first)
        codecs = list(sharding["codecs"])
    return Packing(_named(codecs), nbytes, shards)


def _named(codecs: Sequence[Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the codecs of version 3 as version 2 writes them."""
    return tuple(
        {**(one.get("configuration") or {}), "id": str(one["name"]).removeprefix("numcodecs.")}
        for one in codecs
    )


def _pieces(unpacker: Any, data: bytes, most: int, *, is_wanted: bool) -> tuple[bytes, int, bytes]:
    """Unpack one stream, a piece at a time; return its bytes if they are wanted, how many, and what follows it."""
    found = []
    total = 0
    rest = data
    while not unpacker.eof:
        piece = unpacker.decompress(rest, min(_PIECE_NBYTES, most + 1 - total))
        total += len(piece)
        if total > most:
            raise BombError(f"it unpacks to more than {most} bytes")
        rest = getattr(unpacker, "unconsumed_tail", b"")
        if is_wanted:
            found.append(piece)
        if not piece and not rest:
            break  # Cut off: Zarr says so.
    return b"".join(found), total, unpacker.unused_data


def _streamed(make: Callable[[], Any], *, is_many: bool) -> Callable[..., bytes | None]:
    """Return what unpacks one stream, or many that follow each other, and stops at damage: Zarr says so."""

    def unpacked(data: bytes, most: int, _: Mapping[str, Any], *, is_wanted: bool) -> bytes | None:
        found = []
        left, rest = most, data
        try:
            while rest:
                one, nbytes, rest = _pieces(make(), rest, left, is_wanted=is_wanted)
                found.append(one)
                left -= nbytes
                rest = rest.lstrip(b"\0") if is_many else b""
        except (zlib.error, OSError, EOFError, lzma.LZMAError):
            return None
        return b"".join(found) if is_wanted else None

    return unpacked


def _unpacked_lzma(
    data: bytes, most: int, codec: Mapping[str, Any], *, is_wanted: bool
) -> bytes | None:
    if codec.get("format") == lzma.FORMAT_RAW:
        filters = codec.get("filters")
        return _streamed(
            lambda: lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters), is_many=False
        )(data, most, codec, is_wanted=is_wanted)
    return _streamed(lzma.LZMADecompressor, is_many=True)(data, most, codec, is_wanted=is_wanted)


def _claimed(claim: Callable[[bytes], int]) -> Callable[..., bytes | None]:
    """Return what unpacks a frame that says how long it is, and no more than that."""

    def unpacked(
        data: bytes, most: int, codec: Mapping[str, Any], *, is_wanted: bool
    ) -> bytes | None:
        nbytes = claim(data)
        if nbytes > most:
            raise BombError(f"it claims to unpack to {nbytes} bytes, and may have {most}")
        if nbytes != _UNKNOWN and not is_wanted:
            return None
        registry = require("numcodecs", "reading .zarr", "zarr")
        unpacker = registry.get_codec({"id": codec["id"]})
        out = np.empty(most if nbytes == _UNKNOWN else nbytes, np.uint8)
        try:
            unpacker.decode(data, out)
        except (RuntimeError, ValueError) as error:
            if nbytes == _UNKNOWN:
                raise BombError(f"it is damaged, or unpacks to more than {most} bytes") from error
            return None  # Zarr says so.
        return out.tobytes() if nbytes != _UNKNOWN else None

    return unpacked


def _blosc_nbytes(data: bytes) -> int:
    """Return the bytes that a frame of Blosc claims; raise if it is cut off: Blosc would read past its end."""
    unpacked = packed = -1
    if len(data) >= _BLOSC_HEAD_NBYTES:
        unpacked, _, packed = struct.unpack_from("<III", data, 4)
    if packed != len(data):
        raise BombError(f"it has {len(data)} bytes and claims {packed}, which unpack to {unpacked}")
    return unpacked


def _lz4_nbytes(data: bytes) -> int:
    return int.from_bytes(data[:4], "little", signed=True) if len(data) >= 4 else 0


def _zstd_nbytes(data: bytes) -> int:
    """Return the bytes that a frame of Zstandard claims, or that it does not say."""
    if len(data) < 6 or data[:4] != _ZSTD_MAGIC:
        return 0  # Zarr says so.
    head = data[4]
    is_single = bool(head & 0x20)
    at = 5 + (not is_single) + (0, 1, 2, 4)[head & 3]
    width = (int(is_single), 2, 4, 8)[head >> 6]
    if not width:
        return _UNKNOWN
    return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)


_PACKERS: dict[str, Callable[..., bytes | None]] = {
    "gzip": _streamed(lambda: zlib.decompressobj(31), is_many=True),
    "zlib": _streamed(zlib.decompressobj, is_many=False),
    "bz2": _streamed(bz2.BZ2Decompressor, is_many=True),
    "lzma": _unpacked_lzma,
    "blosc": _claimed(_blosc_nbytes),
    "lz4": _claimed(_lz4_nbytes),
    "zstd": _claimed(_zstd_nbytes),
}
