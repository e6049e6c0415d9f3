"""Small files of our own, read whole: whatever has been put in their place."""

import errno
import os
import stat
from pathlib import Path


def read_whole(path: Path, *, most: int) -> bytes:
    """Return the bytes of a plain file of at most `most` bytes; raise OSError for anything else.

    Not `path.read_bytes()`: that waits for ever at a pipe, and a device may have no end.
    """
    with open(path, "rb", opener=_opened) as file:  # Path.open has no opener.
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "this is no plain file", str(path))
        # One more, since it may have grown.
        data = file.read(most + 1) if found.st_size <= most else b""
    if max(found.st_size, len(data)) > most:
        raise OSError(errno.EFBIG, f"this has more than {most} bytes", str(path))
    return data


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
