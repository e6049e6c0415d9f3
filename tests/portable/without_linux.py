"""Take from Python what only Linux has: imported first by every interpreter of `.venv-portable` (see the Makefile).

So a use of it that macOS would trip over fails here. mypy, which knows what each system has, finds uses in the library;
this finds those that only show when the code runs.
"""

import _socket
import mmap
import os

_LACKING = {
    os: (
        "EFD_CLOEXEC EFD_NONBLOCK MFD_CLOEXEC O_DIRECT O_TMPFILE POSIX_FADV_DONTNEED POSIX_FADV_NORMAL "
        "POSIX_FADV_RANDOM POSIX_FADV_SEQUENTIAL eventfd eventfd_read eventfd_write fdatasync getxattr listxattr "
        "memfd_create pidfd_open posix_fadvise posix_fallocate removexattr sched_getaffinity setxattr"
    ),
    _socket: "MSG_CMSG_CLOEXEC SOCK_SEQPACKET",
    mmap: "MADV_HUGEPAGE",
}
for module, names in _LACKING.items():
    for name in names.split():
        delattr(module, name)
