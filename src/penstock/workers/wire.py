"""Messages between a pool and its workers: small frames on a socket, bulk in anonymous memory.

A frame that fits in a few kilobytes travels on the socket itself. Anything larger (and every large
array in it, by pickle's out-of-band buffers) is laid out in memory that both sides map: a new memfd, whose
descriptor goes with the frame. So a send never waits for the reader.

Both the parent and the worker load this file and mapped_memory.py; the worker does so under another package
name (see process.py), hence the relative import.
"""

import os
import pickle
import socket
import struct
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from .mapped_memory import map_memory

# The same as in penstock.memory, which a worker does not load for this one number.
ALIGNMENT = 64
# A worker has at most a few frames unread, and a socket's default buffer holds about 200 KB.
INLINE_NBYTES = 8192
# Below this a buffer is cheaper inside the pickle than in memory of its own.
OUT_OF_BAND_NBYTES = 4096

_INLINE, _MEMORY = range(2)
_HEADER = struct.Struct("<BQ")
_FRAME_NBYTES = _HEADER.size + INLINE_NBYTES
# Room for one descriptor of the message and one of its bulk; the kernel closes any further ones.
_RIGHTS_NBYTES = socket.CMSG_SPACE(2 * 4)


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


class TruncatedDescriptors(OSError):
    """A frame came without its descriptors: this process may open no more files."""


def align(nbytes: int) -> int:
    """Return nbytes rounded up to where the next array may begin."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def memory_file(name: str, nbytes: int) -> int:
    """Return the descriptor of nbytes of anonymous memory; it is in no directory, so nothing can be left behind."""
    fd = os.memfd_create(name[:200], os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, nbytes)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_all(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of data at offset, however many calls that takes."""
    view = memoryview(data).cast("B")
    while view.nbytes:
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written


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


class Channel:
    """One end of the socket between a pool and a worker."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    # Not socket.send_fds and recv_fds: in Python 3.11 they ignore their flags.

    def send(self, frame: Frame, *, fds: Sequence[int] = (), wait: bool = True) -> None:
        """Send a frame and descriptors; with wait=False, raise BlockingIOError if the reader is far behind."""
        # NOSIGNAL: a program that lets SIGPIPE end it (many command lines do) must not end with its worker.
        flags = socket.MSG_NOSIGNAL if wait else socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
        carried = [*fds] if frame.memory_fd is None else [*fds, frame.memory_fd]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", carried))] if carried else []
        self._socket.sendmsg([frame.data], rights, flags)

    def receive(self, *, wait: bool = True) -> tuple[bytes, list[int]] | None:
        """Return the next frame's bytes and descriptors, or None when the other end is closed."""
        flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
        try:
            data, rights, came, _ = self._socket.recvmsg(_FRAME_NBYTES, _RIGHTS_NBYTES, flags)
        except ConnectionResetError:
            # The other end died with messages unread. The kernel says so once, and then hands out what the
            # other end had sent.
            return self.receive(wait=wait)
        fds = array("i", b"".join(content for _, _, content in rights)).tolist()
        if came & socket.MSG_CTRUNC:
            for fd in fds:
                os.close(fd)
            raise TruncatedDescriptors(
                "a message between a pool and its worker lost its descriptors: this process has "
                "too many files open; raise its limit (ulimit -n)."
            )
        return (data, fds) if data else None

    def close(self) -> None:
        """Close this end; the other end then receives None, even if a fork of this process has copies of this end."""
        with suppress(OSError):  # closed already, or the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self.forget()

    def forget(self) -> None:
        """Close only this process's copy: for a forked child, whose parent goes on using the channel."""
        self._socket.close()
