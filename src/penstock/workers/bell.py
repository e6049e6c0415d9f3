"""What wakes a thread that waits for descriptors."""

import os
import sys
from contextlib import suppress

from penstock.core.descriptors import Descriptor
from penstock.workers.portable import is_portable

_ONE = (1).to_bytes(8, sys.byteorder)  # What an eventfd is written to with.


class Bell:
    """Any thread may ring it; its descriptor is then readable until the thread that waits has heard it."""

    def __init__(self) -> None:
        if sys.platform != "linux" or is_portable:
            ends = os.pipe()
            for end in ends:
                os.set_blocking(end, False)
            self._heard, self._rung = map(Descriptor, ends)
        else:
            self._heard = self._rung = Descriptor(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._heard.number

    def ring(self) -> None:
        """Wake the thread."""
        with suppress(BlockingIOError):  # Full of rings that it has not heard: it will wake.
            os.write(self._rung.number, _ONE)

    def hear(self) -> None:
        """Take in that it was rung, however often."""
        os.read(self._heard.number, 1 << 16)

    def close(self) -> None:
        """Close its descriptors."""
        self._rung.close()
        self._heard.close()
