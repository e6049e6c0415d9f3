"""The store by which Zarr reads through our reading layer."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable
from typing import Any

from penstock.core.optional import require
from penstock.io.keys import Keys
from penstock.sources.zarr.sizes import Limits

_METADATA = ("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata")
_MOST_METADATA = 1 << 26  # Of all arrays of a group, where it is consolidated.


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
            self.limits: dict[str, Limits] = {}
            """The most bytes that are read at once of each array, by the prefix of its keys."""

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
            is_whole = start == 0 and stop is None
            return self._keys.get(key, start, stop, most=self._most(key, is_whole=is_whole))

        def _most(self, key: str, *, is_whole: bool) -> int:
            """Return the most bytes to be read at once from under a key."""
            prefixes = [prefix for prefix in self.limits if key.startswith(prefix)]
            if key.rpartition("/")[2] in _METADATA or not prefixes:
                return _MOST_METADATA
            limits = self.limits[max(prefixes, key=len)]
            return limits.whole if is_whole else limits.part

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
