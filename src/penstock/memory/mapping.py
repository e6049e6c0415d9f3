"""Memory straight from the system, in huge pages where it has them."""

import contextlib
import mmap
import sys

from penstock._native import is_portable

HUGE_NBYTES = 2 << 20
"""The huge page of x86-64 and of most arm64 kernels."""


def map_memory(nbytes: int) -> mmap.mmap:
    """Return new memory that starts on a page, and goes back to the system when nothing refers to it.

    The first touch of small pages costs more than filling them does. And a disk that reads to small pages is told of
    each of them: past the page cache, those of virtual machines are two or three times as fast with huge ones.
    """
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux" and not is_portable and nbytes >= HUGE_NBYTES:
        with contextlib.suppress(OSError):  # A kernel without them.
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping
