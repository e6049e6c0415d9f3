"""Memory that a thread unpacks chunks in: used again for the next chunk, since new memory is slow to touch."""

import threading

import numpy as np
import numpy.typing as npt

from penstock.core.rows import Context

Bytes = npt.NDArray[np.uint8]


class Scratch(threading.local):
    """Buffers of one thread, by name. A source counts them as staging: what its reads take besides the rows."""

    def __init__(self) -> None:
        self._buffers: dict[str, Bytes] = {}

    def room(self, name: str, nbytes: int) -> Bytes:
        """Return `nbytes` of the buffer of this name, which holds anything; the thread has no other use for it now."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < nbytes:
            self._buffers.pop(name, None)  # Not both at once.
            buffer = self._buffers[name] = np.empty(nbytes, np.uint8)
        return buffer[:nbytes]

    def close(self) -> None:
        """Let go of the buffers of the thread that closes the stream; others go with their threads."""
        self._buffers.clear()


def scratch_of(context: Context) -> Scratch:
    """Return the scratch memory of a stream."""
    return context.resources.get("scratch", Scratch)
