"""The store by which Zarr reads through our reading layer, and what is checked before it decodes."""

import asyncio
import functools
import math
import struct
from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np

from penstock.core.optional import require
from penstock.errors import DataError
from penstock.io.keys import Keys
from penstock.io.location import without_secrets

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_FRAME_HEAD_NBYTES = 16
_WIDEST_NBYTES = 16
_SLACK_NBYTES = 1 << 16  # Filters before the compressor may add a little.


def frame_nbytes(array: Any) -> int | None:
    """Return the bytes that a chunk unpacks to, if it is one Blosc frame; else None."""
    packers = tuple(array.compressors or ())
    is_blosc = bool(packers) and type(packers[-1]).__name__.lower().startswith("blosc")
    if not is_blosc or getattr(array, "shards", None):
        return None
    itemsize = np.dtype(array.dtype).itemsize
    if (
        array.filters
    ):  # They may widen each value before it is packed, up to the widest number there is.
        itemsize = max(itemsize, _WIDEST_NBYTES)
    return int(math.prod(array.chunks) * itemsize)


def check_frame(data: bytes, most: int, file: str) -> None:
    """Raise if a Blosc frame is not as long as it claims: Blosc itself would read on past its end."""
    unpacked = packed = -1
    if len(data) >= _FRAME_HEAD_NBYTES:
        unpacked, _, packed = struct.unpack_from("<III", data, 4)
    if packed != len(data) or unpacked > most + _SLACK_NBYTES:
        raise DataError(
            f"the chunk has {len(data)} bytes and claims {packed}, which unpack to {unpacked}",
            file=without_secrets(file),
            cure="It is damaged or cut off: copy it again from its original.",
        )


@functools.cache
def store_class() -> Any:  # noqa: C901  # One small method after the other.
    """Return the class of store by which Zarr reads through our reading layer."""
    abc = require("zarr.abc.store", "reading .zarr", "zarr")

    class ReaderStore(abc.Store):  # type: ignore[misc, name-defined]  # Zarr is optional, and untyped here.
        """A folder as Zarr wants it; nothing can be written."""

        supports_writes = supports_deletes = supports_partial_writes = False
        supports_listing = True

        def __init__(self, keys: Keys) -> None:
            super().__init__(read_only=True)
            self._keys = keys
            self.frames: dict[str, int | None] = {}

        def __eq__(self, other: object) -> bool:
            return isinstance(other, ReaderStore) and self._keys.root == other._keys.root

        def __hash__(self) -> int:
            return hash(self._keys.root)

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            data = await asyncio.to_thread(self._read, key, byte_range)
            return None if data is None else prototype.buffer.from_bytes(data)

        def _read(self, key: str, byte_range: Any) -> bytes | None:
            start, stop = 0, None
            if isinstance(byte_range, abc.RangeByteRequest):
                start, stop = byte_range.start, byte_range.end
            elif isinstance(byte_range, abc.OffsetByteRequest):
                start = byte_range.offset
            elif isinstance(byte_range, abc.SuffixByteRequest):
                start = -byte_range.suffix
            data = self._keys.get(key, start, stop)
            if data is not None and byte_range is None:
                self._check(key, data)
            return data

        def _check(self, key: str, data: bytes) -> None:
            if key.rpartition("/")[2] in _METADATA:
                return
            for prefix, most in self.frames.items():
                if most is not None and key.startswith(prefix):
                    check_frame(data, most, f"{self._keys.root}/{key}")
                    return

        async def get_partial_values(
            self, prototype: Any, key_ranges: Iterable[tuple[str, Any]]
        ) -> list[Any]:
            return [await self.get(key, prototype, one) for key, one in key_ranges]

        async def exists(self, key: str) -> bool:
            return await asyncio.to_thread(self._keys.get, key, 0, 0) is not None

        async def set(self, key: str, value: Any) -> None:
            raise NotImplementedError

        async def delete(self, key: str) -> None:
            raise NotImplementedError

        async def list(self) -> AsyncIterator[str]:
            async for key in self.list_prefix(""):
                yield key

        async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
            folder = prefix.rstrip("/")
            async for name in self.list_dir(folder):
                key = f"{folder}/{name}" if folder else name
                if await self.exists(key):
                    yield key
                else:
                    async for inner in self.list_prefix(key):
                        yield inner

        async def list_dir(self, prefix: str) -> AsyncIterator[str]:
            for name in await asyncio.to_thread(self._keys.names, prefix.rstrip("/")):
                yield name

    return ReaderStore
