"""Messages between a pool and its workers: small frames on a socket, bulk in anonymous memory.

A frame that fits in a few kilobytes travels on the socket itself. Anything larger (and every large
array in it, by pickle's out-of-band buffers) is laid out in memory that both sides map, whose
descriptor goes with the frame. So a send never waits for the reader.

Both the parent and the worker load this file; the worker does so under another package name (see process.py), hence the
relative imports.
"""

import os
import pickle
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .anonymous_memory import memory_file, write_all
from .mapped_memory import map_memory

# The same as in penstock.memory, which a worker does not load for this one number.
ALIGNMENT = 64
# A worker has at most a few frames unread, and a socket's default buffer holds about 200 KB.
INLINE_NBYTES = 8192
# Below this a buffer is cheaper inside the pickle than in memory of its own.
OUT_OF_BAND_NBYTES = 4096

_INLINE, _MEMORY = range(2)
_HEADER = struct.Struct("<BQ")
HEADER_NBYTES = _HEADER.size
FRAME_NBYTES = HEADER_NBYTES + INLINE_NBYTES
"""The longest frame."""


class Dumps(Protocol):
    """What `pickle.dumps` and `cloudpickle.dumps` have in common."""

    def __call__(
        self, value: Any, /, *, protocol: int, buffer_callback: Callable[[pickle.PickleBuffer], Any]
    ) -> bytes:
        """Return the pickle of value, without the buffers that the callback took."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message, ready to be sent any number of times."""

    data: bytes
    memory_fd: int | None = None

    def close(self) -> None:
        """Release the memory that came with the frame."""
        if self.memory_fd is not None:
            os.close(self.memory_fd)


def frame_nbytes(header: bytes) -> int:
    """Return how long a frame with this header is."""
    kind, total = _HEADER.unpack_from(header)
    return HEADER_NBYTES + (total if kind == _INLINE else 0)


def align(nbytes: int) -> int:
    """Return nbytes rounded up to where the next array may begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def pack(message: Any, *, dumps: Dumps) -> Frame:
    """Return message as a frame; large buffers lie in memory of their own."""
    buffers: list[memoryview] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND_NBYTES:
            return True
        buffers.append(view)
        return False

    head = dumps(message, protocol=5, buffer_callback=keep_in_band)
    if not buffers and len(head) <= INLINE_NBYTES:
        return Frame(_HEADER.pack(_INLINE, len(head)) + head)
    parts = [memoryview(head), *buffers]
    sizes = [part.nbytes for part in parts]
    table = struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes)
    offsets, total = _layout(sizes)
    fd = memory_file("penstock message", total)
    try:
        write_all(fd, table, 0)
        for part, offset in zip(parts, offsets, strict=True):
            write_all(fd, part, offset)
    except BaseException:
        os.close(fd)
        raise
    return Frame(_HEADER.pack(_MEMORY, total), fd)


def pack_any(message: Any) -> Frame:
    """Return message as a frame, pickled by cloudpickle if it refers to the main module.

    The other end has another main module, so what is defined in ours has to go by value.
    """
    try:
        return pack(message, dumps=_dumps_by_name)
    except (pickle.PicklingError, AttributeError, TypeError):
        import cloudpickle

        return pack(message, dumps=cloudpickle.dumps)


def _dumps_by_name(
    value: Any, /, *, protocol: int, buffer_callback: Callable[[pickle.PickleBuffer], Any]
) -> bytes:
    head = pickle.dumps(value, protocol=protocol, buffer_callback=buffer_callback)
    if b"__main__" in head:
        raise pickle.PicklingError("it refers to the main module")
    return head


def unpack(data: bytes, fds: list[int]) -> Any:
    """Return the message of a received frame; large arrays in it are views of the memory it came in."""
    kind, total = _HEADER.unpack_from(data)
    if kind == _INLINE:
        return pickle.loads(memoryview(data)[_HEADER.size :])
    fd = fds.pop()
    try:
        # The last array that is cut from this mapping keeps it alive.
        region = memoryview(map_memory(fd, total))  # type: ignore[arg-type]  # NumPy does not say so
    finally:
        os.close(fd)
    return _load(region)


def _layout(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Return where each part begins, after the table of sizes, and where the last one ends."""
    offsets, position = [], align(8 * (len(sizes) + 1))
    for size in sizes:
        offsets.append(position)
        position = align(position + size)
    return offsets, position


def _load(region: memoryview) -> Any:
    (count,) = struct.unpack_from("<Q", region)
    sizes = struct.unpack_from(f"<{count}Q", region, 8)
    offsets, _ = _layout(sizes)
    head, *buffers = (region[at : at + size] for at, size in zip(offsets, sizes, strict=True))
    return pickle.loads(head, buffers=buffers)
