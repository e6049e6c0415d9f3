"""Pumps: flows that are read ahead of the consumer, each on a thread of its own."""

import contextlib
import itertools
import queue
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from penstock.core.clock import Clock
from penstock.core.crew import Crew
from penstock.core.parcels import Parcel
from penstock.core.read_count import ReadCount
from penstock.engine.stream.awaited import closed

_numbers = itertools.count()


class Depth(Protocol):
    """How many parcels may wait: those that were planned, and more while they are small."""

    planned: int
    ahead: int

    def has_room(self, sizes: Iterable[int], more: int) -> bool:
        """Whether one more takes no more bytes than those that were planned."""
        ...


def _nothing() -> None:
    pass


class Pumped(Iterator[Parcel]):
    """The parcels of a pump, which stops when nobody refers to them any more."""

    def __init__(self, pump: "Pump") -> None:
        self._pump = pump
        self._finalizer = weakref.finalize(self, pump.stop)
        self._finalizer.atexit = False  # A stream that is still open then stops its pumps itself.

    def __next__(self) -> Parcel:
        """Return the next parcel."""
        return self._pump.take()

    def close(self) -> None:
        """Make no more parcels."""
        self._pump.stop()


class Pump:
    """Runs a flow on a thread of its own, a few parcels ahead of the consumer.

    Ctrl-C may strike the consumer between any two lines. It can leave the semaphores, conditions and events of
    `threading` locked, but not a queue: so queues are used here.
    """

    def __init__(
        self,
        parcels: Iterator[Any],
        depth: Depth,
        clock: Clock,
        of: object = None,
        read_count: ReadCount | None = None,
    ) -> None:
        """Make a pump of parcels; they are rows of the node `of`, and `read_count` counts what they read."""
        self.maker = id(of)
        """The id of that node, not the node: a pump that waits to be collected would keep all that a cache holds."""
        self._read_count = read_count or ReadCount()
        self._parcels = parcels
        self._depth = depth
        self._clock = clock
        self._waiting: deque[int] = deque()
        """The bytes of each parcel that was made and, as far as the thread knows, not taken."""
        self._taken: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._made: queue.SimpleQueue[tuple[Parcel | None, BaseException | None]] = (
            queue.SimpleQueue()
        )
        self._is_closing = False
        self._is_ended = False
        self.crew = Crew()

    def start(self) -> None:
        """Begin to make parcels."""
        self.crew.start([f"penstock-pump-{next(_numbers)}"], self._run)

    def take(self) -> Parcel:
        """Return the next parcel; raise StopIteration after the last one."""
        if self._is_ended:
            # Not an end if it was closed: a cache that is being filled must not take it for one.
            raise closed() if self._is_closing else StopIteration
        mark = self._clock.enter()
        try:
            parcel, error = self._made.get()
        finally:
            self._clock.leave(mark, None, 0)
        self._taken.put(None)
        if error is not None:
            self._is_ended = True
            try:
                raise error
            finally:
                del error  # The traceback refers to this frame.
        if parcel is None:
            self._is_ended = True
            raise StopIteration
        return parcel

    @property
    def num_made(self) -> int:
        """How many parcels wait to be taken."""
        # The last thing that a pump makes is the word that there is no more.
        return max(0, self._made.qsize() - self.crew.is_ended)

    def _run(self) -> None:
        try:
            with self._read_count.counting():
                self._made.put((None, self._pumped()))
        except BaseException as error:  # noqa: BLE001  # A user's generator may fail while it is closed.
            self._made.put((None, error))
        finally:
            self._clock.end_thread()

    def _pumped(self) -> BaseException | None:
        """Hand out all parcels; return the error, if any, without a name that would tie it to its own frame."""
        parcels = self._parcels  # `drop` forgets them.
        try:
            while True:
                while not (self._is_closing or self._has_room()):
                    self._taken.get()
                    self._waiting.popleft()
                if self._is_closing:
                    # Not an end: a cache that is being filled must not take it for one.
                    return closed()
                parcel = next(parcels, None)
                if parcel is None:
                    return None
                self._waiting.append(parcel.block.nbytes)
                self._made.put((parcel, None))
                del parcel
        except BaseException as raised:  # noqa: BLE001  # It is the consumer who must see it.
            return raised
        finally:
            getattr(parcels, "close", _nothing)()

    def _has_room(self) -> bool:
        """Whether one more parcel may wait: up to the planned number, or more while all fit the planned bytes."""
        while not self._taken.empty() and self._waiting:
            self._taken.get()
            self._waiting.popleft()
        num, most = len(self._waiting), self._depth
        if num < most.planned:
            return True
        return num < most.ahead and most.has_room(self._waiting, max(self._waiting))

    def stop(self) -> None:
        """Make no more parcels, and let a consumer that waits for one wake up."""
        self._is_closing = True
        self._taken.put(None)
        self._made.put((None, closed()))

    def drop(self) -> None:
        """Drop what was made, and what it is made of: a pump and its threads refer to each other."""
        self._parcels = iter(())
        with contextlib.suppress(queue.Empty):
            while True:
                self._made.get_nowait()
        self._made.put((None, closed()))  # For a thread that may still come to ask.
