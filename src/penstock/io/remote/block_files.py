"""One block of a remote file as a file on this machine: a header with checksums, then the bytes.

A block is written under another name and renamed, so that no reader ever sees a part of one. Nothing is synced: what a
crash of the machine tears is noticed by its checksums, like all other damage, and fetched again.
"""

import contextlib
import os
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.io.reader import Bytes

BLOCK_NBYTES = 1 << 20
"""The bytes of a remote file that are kept together; the last block of a file is shorter."""
HEADER_NBYTES = 512
FILLING = ".filling-"
"""What the names of blocks that are being written begin with."""
_PIECE_NBYTES = (
    1 << 16
)  # Each piece has a checksum of its own: a small read need not read the whole block.
_DISK_NBYTES = 4096  # What a file takes on disk is a multiple of this.
_HEAD = struct.Struct("<8s16sQQ")
_MAGIC = b"PSBLOCK1"

Parts = Sequence[tuple[int, Bytes]]
"""Where parts of a block begin, and the memory that they go to."""


def disk_nbytes(nbytes: int) -> int:
    """Return what a block of so many bytes takes on disk."""
    return -(-(nbytes + HEADER_NBYTES) // _DISK_NBYTES) * _DISK_NBYTES


def read_block(path: Path, key: bytes, number: int, size: int, parts: Parts) -> bool:
    """Fill `parts` from a block; return False if it is not there, or damaged, or another one. A bad one is removed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        if _filled(fd, key, number, size, parts):
            return True
    except OSError:
        pass  # A disk that fails is no reason to stop: the network has the bytes.
    finally:
        os.close(fd)
    with contextlib.suppress(OSError):
        path.unlink()
    return False


def _filled(fd: int, key: bytes, number: int, size: int, parts: Parts) -> bool:
    head = os.pread(fd, HEADER_NBYTES, 0)
    num_pieces = -(-size // _PIECE_NBYTES)
    end = _HEAD.size + 4 * num_pieces
    if len(head) < HEADER_NBYTES or head[: _HEAD.size] != _HEAD.pack(_MAGIC, key, number, size):
        return False
    if int.from_bytes(head[end : end + 4], "little") != _native.crc32c(head[:end]):
        return False
    sums = np.frombuffer(head, "<u4", num_pieces, _HEAD.size)
    return all(_read_part(fd, offset, part, size, sums) for offset, part in parts)


def _read_part(fd: int, offset: int, part: Bytes, size: int, sums: npt.NDArray[np.uint32]) -> bool:
    """Read one part by way of the whole pieces it lies in, and compare their checksums."""
    first, last = offset // _PIECE_NBYTES, -(-(offset + part.size) // _PIECE_NBYTES)
    start, stop = first * _PIECE_NBYTES, min(size, last * _PIECE_NBYTES)
    is_whole = offset == start and part.size == stop - start
    data = part if is_whole else np.empty(stop - start, np.uint8)
    done = 0
    while done < data.size:
        got = os.preadv(fd, [data[done:].data], HEADER_NBYTES + start + done)
        if not got:
            return False
        done += got
    if not np.array_equal(_sums(data), sums[first:last]):
        return False
    if not is_whole:
        part[:] = data[offset - start : offset - start + part.size]
    return True


def write_block(path: Path, key: bytes, number: int, data: Bytes) -> None:
    """Put a block in its place in one step; raises OSError."""
    sums = _sums(data).astype("<u4").tobytes()
    head = _HEAD.pack(_MAGIC, key, number, data.size) + sums
    head += _native.crc32c(head).to_bytes(4, "little")
    filling = path.with_name(f"{FILLING}{os.getpid()}-{secrets.token_hex(8)}")
    try:
        fd = os.open(filling, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for one in (memoryview(head.ljust(HEADER_NBYTES, b"\0")), data.data):
                done = 0
                while done < len(one):
                    done += os.write(fd, one[done:])
        finally:
            os.close(fd)
        filling.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            filling.unlink()
        raise


def _sums(data: Bytes) -> npt.NDArray[np.uint32]:
    edges = np.append(np.arange(0, data.size, _PIECE_NBYTES), data.size).astype(np.int64)
    found = np.empty(len(edges) - 1, np.uint32)
    _native.crc32c_of_spans(data, edges, found)
    return found
