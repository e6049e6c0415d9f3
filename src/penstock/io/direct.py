"""Reads past the page cache, from any offset into any memory.

The disk wants offset, length and memory aligned to a page. Where target and offset are aligned
alike, the pages go straight into it; elsewhere they go through an aligned buffer. Each function
returns how many bytes from the front of the target it filled: fewer than all at the end of the
file, and UNSUPPORTED where file system, disk or memory do not go along: the caller then reads
buffered.
"""

import errno
import os

import numpy as np

from penstock.io.bounce import ALIGNMENT, BOUNCE, address
from penstock.io.reader import Bytes, Group

UNSUPPORTED = -1
_REFUSALS = (errno.EINVAL, errno.ENOTSUP, errno.EFAULT)


def open_direct(path: str, flags: int, expected: os.stat_result) -> int:
    """Return a descriptor for direct reads of the same file, or -1 where there are none."""
    if not hasattr(os, "O_DIRECT"):  # macOS
        return -1
    try:
        fd = os.open(path, flags | os.O_DIRECT)
    except OSError:
        return -1
    if os.path.samestat(os.fstat(fd), expected):
        return fd
    os.close(fd)  # replaced between the two calls: the next look at the path will say so
    return -1


def read_direct(fd: int, target: Bytes, offset: int) -> int:
    """Fill `target` with the bytes from `offset` on."""
    if (address(target) - offset) % ALIGNMENT == 0 and target.size >= 2 * ALIGNMENT:
        return _read_in_place(fd, target, offset)
    return _read_bounced(fd, target, offset)


def read_group(fd: int, group: Group, bounce: Bytes) -> tuple[Bytes, int]:
    """Return the part of `bounce` where the group's bytes belong, and how many were read there."""
    skip = group.start % ALIGNMENT
    span = skip + group.stop - group.start
    got = _pread(fd, [bounce[: _round_up(span)]], group.start - skip)
    return bounce[skip:span], got if got == UNSUPPORTED else min(max(got - skip, 0), span - skip)


def _read_in_place(fd: int, target: Bytes, offset: int) -> int:
    """Read whole pages into the target, and the pages at its ends beside it, in one call."""
    head = -offset % ALIGNMENT
    tail = (offset + target.size) % ALIGNMENT
    middle = target[head : target.size - tail]
    if not head and not tail:
        return _pread(fd, [middle], offset)
    edges = BOUNCE.acquire()
    try:
        parts = [middle]
        if head:
            parts.insert(0, edges[:ALIGNMENT])
        if tail:
            parts.append(edges[ALIGNMENT : 2 * ALIGNMENT])
        skip = offset % ALIGNMENT
        got = _pread(fd, parts, offset - skip)
        if got == UNSUPPORTED:
            return got
        have = min(max(got - skip, 0), target.size)
        target[: min(head, have)] = edges[skip : skip + min(head, have)]
        in_tail = max(have - (target.size - tail), 0)
        target[target.size - tail : have] = edges[ALIGNMENT : ALIGNMENT + in_tail]
        return have
    finally:
        BOUNCE.release(edges)


def _read_bounced(fd: int, target: Bytes, offset: int) -> int:
    """Read whole pages into aligned memory, and copy what was asked for."""
    bounce = BOUNCE.acquire()
    try:
        have = 0
        while have < target.size:
            skip = (offset + have) % ALIGNMENT
            span = min(_round_up(skip + target.size - have), bounce.size)
            got = _pread(fd, [bounce[:span]], offset + have - skip)
            if got == UNSUPPORTED:
                return got
            count = min(max(got - skip, 0), target.size - have)
            np.copyto(target[have : have + count], bounce[skip : skip + count])
            have += count
            if got < span:
                break
        return have
    finally:
        BOUNCE.release(bounce)


def _pread(fd: int, parts: list[Bytes], offset: int) -> int:
    try:
        return os.preadv(fd, [part.data for part in parts], offset)
    except OSError as error:
        if error.errno in _REFUSALS:
            return UNSUPPORTED
        raise


def _round_up(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
