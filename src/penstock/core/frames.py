"""Where all threads are."""

import gc
import sys
from types import FrameType

from penstock.core import forking

_looking = forking.lock()


def frames_of_threads() -> dict[int, FrameType]:
    """Return the innermost frame of each thread, by the thread's number.

    Not while the garbage collector may run: CPython before 3.12 holds a lock meanwhile that the end of a
    `threading.local` takes, so that one among the garbage would stop the process for ever, at no fault of its own.
    """
    with _looking:  # Else one thread could enable the collector while another looks.
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()  # noqa: SLF001  # The one way to ask.
        finally:
            if was_enabled:
                gc.enable()
