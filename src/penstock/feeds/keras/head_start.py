"""A head start: what the first epoch reads first is read while Keras builds its model.

Building takes a while, and so does the first window of a shuffle, before which there is no batch. Keras does not tell
when a build fails, and the error may keep everything alive for as long as somebody looks at it: so what was begun is
closed when nobody has taken it within 10 seconds.
"""

import _thread
from collections import deque
from contextlib import suppress

from penstock.core.crew import Crew
from penstock.core.fingerprint import walk
from penstock.core.rows import Rows
from penstock.core.state import State
from penstock.engine.stream import Stream, open_stream
from penstock.outlets import Outlets
from penstock.stages.cache.base import CacheRows

IDLE_SECONDS = 10.0


class HeadStart:
    """A stream that was opened, and has begun to read, before its epoch: it is taken for that epoch, or closed."""

    def __init__(self, source: Outlets, begin: State) -> None:
        """Open the stream at `begin`; its threads read, and nobody waits for them."""
        self._begin = begin
        stream = open_stream(source.node, source.options, state=begin.to_dict())
        self._open = deque([stream])
        """The stream, until somebody takes it out: one call, so that it is taken or closed once."""
        self._is_over = _thread.allocate_lock()
        self._is_over.acquire()
        try:
            stream.begin()
            Crew().start(["penstock-head-start"], self._end_if_forgotten)
        except BaseException:
            stream.close()
            raise

    @staticmethod
    def helps(source: Outlets) -> bool:
        """Return whether rows are read from storage, by nothing but us: no function is called before its time.

        A rank waits for no other then, and no cache is filled for a model that may fail to build.
        """
        node = source.node
        if not isinstance(node, Rows) or node.is_in_memory or node.calls_functions:
            return False
        return node.share is None and not any(isinstance(one, CacheRows) for one in walk(node))

    def take(self, begin: State) -> Stream | None:
        """Return the stream if it stands where the epoch begins; else close it: a checkpoint may go on elsewhere."""
        stream = self._taken()
        if stream is None or stream.is_closed:
            return None
        if begin != self._begin:
            stream.close()
            return None
        return stream

    def close(self) -> None:
        """Close the stream, unless it was taken."""
        stream = self._taken()
        if stream is not None:
            stream.close()

    def _taken(self) -> Stream | None:
        with suppress(IndexError):
            stream = self._open.pop()
            self._is_over.release()
            return stream
        return None

    def _end_if_forgotten(self) -> None:
        if not self._is_over.acquire(timeout=IDLE_SECONDS):
            self.close()
