"""The packers of Zarr's chunks, undone here: never to more bytes than a chunk may hold.

Zarr unpacks whatever a chunk holds, and some codecs allocate what it claims: a few kilobytes may become gigabytes.
"""

import bz2
import functools
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.optional import require

Bytes = npt.NDArray[np.uint8]
Config = Mapping[str, Any]
_BLOSC_HEAD_NBYTES = 16
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_UNKNOWN = -1


class PackedError(ValueError):
    """A chunk can't be unpacked, or not to the bytes that it may have."""


def unpack(codec: Config, packed: Bytes, most: int) -> Any:
    """Return the bytes that a codec packed; raise PackedError if they are damaged, or more than `most`.

    The codec is one of PACKERS; its configuration has its name as `id`.
    """
    return PACKERS[codec["id"]](packed, most, codec)


def unpack_into(codec: Config, packed: Bytes, out: Bytes) -> bool:
    """Unpack to `out`, if that is as large as what comes; False if not, or if it is damaged: then ask `unpack`."""
    try:
        if codec["id"] in _CLAIMS:
            if _CLAIMS[codec["id"]](packed) != out.size:
                return False
            _numcodec(codec["id"]).decode(packed, out)
            return True
        if codec["id"] == "zlib":
            return _native.unpack_zlib(packed, out) == out.size
        if codec["id"] == "gzip":
            return _unpack_gzip(packed, out)
    except (RuntimeError, ValueError, BufferError):
        pass
    return False


def _unpack_gzip(packed: Bytes, out: Bytes) -> bool:
    """Unpack a single member that has a plain header."""
    if packed[:3].tobytes() != b"\x1f\x8b\x08" or packed[3] or packed.size < 18:
        return False  # With a name, or a comment: rare enough to be left to `unpack`.
    used, written = _native.unpack_deflate(packed[10:], out)
    tail = packed[10 + used :]
    if written != out.size or tail.size != 8:
        return False
    checksum, size = struct.unpack("<II", tail.data)
    return bool(zlib.crc32(out.data) == checksum and size == written & 0xFFFFFFFF)


@functools.cache
def _numcodec(name: str) -> Any:
    return require("numcodecs", "reading .zarr", "zarr").get_codec({"id": name})


def _streamed(
    make: Callable[[Config], Any], several: Callable[[Any, Config], Any] | None
) -> Callable[[Bytes, int, Config], bytes]:
    """Return what unpacks a stream; `several` opens a file of streams that follow each other."""

    def unpacked(packed: Bytes, most: int, codec: Config) -> bytes:
        try:
            # One byte more tells a bomb from a chunk that is just as large as it may be.
            unpacker = make(codec)
            found: bytes = unpacker.decompress(packed.data, most + 1)
            is_whole = unpacker.eof or len(found) > most
            if several is not None and is_whole and unpacker.unused_data:
                with several(io.BytesIO(packed.data), codec) as file:
                    found = file.read(most + 1)
        except (zlib.error, OSError, EOFError, lzma.LZMAError) as error:
            raise PackedError(f"it is damaged: {error}") from error
        if len(found) > most:
            raise PackedError(f"it unpacks to more than {most} bytes")
        if not is_whole:
            raise PackedError("it is cut off")
        return found

    return unpacked


def _lzma_options(codec: Config) -> dict[str, Any]:
    if codec.get("format") == lzma.FORMAT_RAW:
        return {"format": lzma.FORMAT_RAW, "filters": codec.get("filters")}
    return {}


def _claimed(claim: Callable[[Bytes], int]) -> Callable[[Bytes, int, Config], Any]:
    """Return what unpacks a frame that says how long it is, and no more than that."""

    def unpacked(packed: Bytes, most: int, codec: Config) -> Any:
        nbytes = claim(packed)
        if nbytes > most:
            raise PackedError(f"it claims to unpack to {nbytes} bytes, and may have {most}")
        unpacker = _numcodec(codec["id"])
        if nbytes == _UNKNOWN:
            try:
                unpacker.decode(packed, np.empty(most, np.uint8))
            except (RuntimeError, ValueError) as error:
                raise PackedError(f"it is damaged, or unpacks to more than {most} bytes") from error
        try:
            return unpacker.decode(packed)
        except (RuntimeError, ValueError) as error:
            raise PackedError(f"it is damaged: {error}") from error

    return unpacked


def _blosc_nbytes(packed: Bytes) -> int:
    """Return the bytes that a frame of Blosc claims; raise if it is cut off: Blosc would read past its end."""
    unpacked = claimed = -1
    if len(packed) >= _BLOSC_HEAD_NBYTES:
        unpacked, _, claimed = struct.unpack_from("<III", packed.data, 4)
    if claimed != len(packed):
        raise PackedError(
            f"it has {len(packed)} bytes and claims {claimed}, which unpack to {unpacked}"
        )
    return unpacked


def _lz4_nbytes(packed: Bytes) -> int:
    return int.from_bytes(packed[:4].tobytes(), "little", signed=True)


def _zstd_nbytes(packed: Bytes) -> int:
    """Return the bytes that a frame of Zstandard claims, or that it does not say."""
    head = packed[:18].tobytes()
    if len(head) < 6 or head[:4] != _ZSTD_MAGIC:
        return 0  # The unpacker says so.
    flags = head[4]
    is_single = bool(flags & 0x20)
    at = 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
    width = (int(is_single), 2, 4, 8)[flags >> 6]
    if not width:
        return _UNKNOWN
    return int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)


_CLAIMS = {"blosc": _blosc_nbytes, "lz4": _lz4_nbytes, "zstd": _zstd_nbytes}
PACKERS: dict[str, Callable[[Bytes, int, Config], Any]] = {
    "gzip": _streamed(
        lambda _: zlib.decompressobj(31), lambda file, _: gzip.GzipFile(fileobj=file)
    ),
    "zlib": _streamed(lambda _: zlib.decompressobj(), None),
    "bz2": _streamed(lambda _: bz2.BZ2Decompressor(), lambda file, _: bz2.BZ2File(file)),
    "lzma": _streamed(
        lambda codec: lzma.LZMADecompressor(**_lzma_options(codec)),
        lambda file, codec: lzma.LZMAFile(file, **_lzma_options(codec)),  # noqa: SIM115  # Its caller does.
    ),
    **{name: _claimed(claim) for name, claim in _CLAIMS.items()},
}
"""What undoes a codec, by its name: `(packed, most, configuration)`."""
