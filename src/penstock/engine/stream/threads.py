"""Threads that work ahead of the consumer, in order, within what the ledger granted."""

import contextlib
import itertools
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter, thread_time
from typing import Any

from penstock.core.clock import Clock
from penstock.core.crew import Crew
from penstock.core.rows import Executor, In, Out, Parcel
from penstock.errors import StreamClosedError
from penstock.memory import Account

_numbers = itertools.count()


class _Task:
    """A call to be made on some thread, and its result."""

    __slots__ = (
        "_done",
        "argument",
        "error",
        "function",
        "is_cancelled",
        "is_finished",
        "nbytes",
        "result",
    )

    def __init__(self, function: Callable[[Any], Any], argument: Any, nbytes: int) -> None:
        self.function = function
        self.argument = argument
        self.nbytes = nbytes
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.is_finished = False
        # A plain lock is the cheapest thing to wait for, and Ctrl-C interrupts it.
        self._done = threading.Lock()
        self._done.acquire()

    @property
    def is_done(self) -> bool:
        return not self._done.locked()

    def run(self, *, is_closing: bool) -> tuple[float, float]:
        """Make the call; return the seconds that it took, and those of them on a core."""
        started, on_core = perf_counter(), thread_time()
        try:
            if is_closing:
                self.error = _closed()
            elif not self.is_cancelled:
                self.result = self.function(self.argument)
        except BaseException as error:  # noqa: BLE001  # It is the consumer who must see it.
            self.error = error
        finally:
            self.argument = None
            self.is_finished = True
            self.wake()
        return perf_counter() - started, thread_time() - on_core

    def wake(self) -> None:
        """Let whoever waits go on; not an error if it went on before."""
        with contextlib.suppress(RuntimeError):
            self._done.release()

    def wait(self) -> Any:
        """Return the result, or raise; only one thread waits, and only once."""
        self._done.acquire()
        if not self.is_finished:
            raise _closed()
        if self.error is not None:
            try:
                raise self.error
            finally:
                self.error = None  # Its traceback refers to this frame, and so to `self`: a cycle.
        result, self.result = self.result, None
        return result


class Threads(Executor):
    """A few threads, whose results are handed out in order."""

    def __init__(
        self,
        ahead: int,
        account: Account,
        block_nbytes: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.count = 0
        self.ahead = ahead
        """How many blocks are made before they are asked for; more than planned only while they are small."""
        self.busy_seconds = 0.0
        self.core_seconds = 0.0
        self.planned = ahead
        self.planned_nbytes = 0 if block_nbytes is None else ahead * block_nbytes
        self._account = account
        self._clock = clock or Clock()
        self._outstanding = 0
        self._lock = threading.Lock()  # For `_outstanding`: there may be several pumps.
        self._pumps: list[Pump] = []
        self._pending: dict[int, deque[_Task]] = {}
        """The tasks that each loop over `ordered` waits for, or will."""
        self._is_closing = False
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._number = next(_numbers)
        self._crew = Crew()

    def resize(self, count: int) -> None:
        """Set the number of threads; one that is too many ends after its current task."""
        for _ in range(count, self.count):
            self._tasks.put(None)
        first = len(self._crew)
        names = [
            f"penstock-{self._number}-{first + more}" for more in range(max(0, count - self.count))
        ]
        if names:
            self._crew.start(names, self._work)
        self.count = count

    @property
    def is_closing(self) -> bool:
        """Whether the stream is being closed: users' functions are not called for another row."""
        return self._is_closing

    def ordered(
        self, function: Callable[[In], Out], inputs: Iterable[In], nbytes: Callable[[In], int]
    ) -> Iterator[Out]:
        """Yield `function(x)` for each input, in order, as many ahead as planned and granted.

        All bookkeeping is done by the thread that iterates, at the moment it asks for the next
        block: no thread has to be woken, and no race can exceed the grant.
        """
        pending: deque[_Task] = deque()
        self._pending[id(pending)] = pending
        source = iter(inputs)
        spare: deque[In] = deque()
        is_ended = False
        try:
            while True:
                # Start one more task each time, and further ones only while the first is not ready: taking
                # an input may take long, since inputs may be parcels that have to be made.
                is_first = True
                while not is_ended and len(pending) <= self.ahead:
                    if pending and pending[0].is_done and not is_first:
                        break
                    is_first = False
                    if not spare:
                        try:
                            spare.append(next(source))
                        except StopIteration:
                            is_ended = True
                            break
                    cost = nbytes(spare[0])
                    if len(pending) > self.planned and not self.has_room(
                        (task.nbytes for task in pending), cost
                    ):
                        break
                    if not self._promise(cost, must=not pending):
                        break
                    task = _Task(function, spare.popleft(), cost)
                    pending.append(task)
                    self._tasks.put(task)
                if not pending:
                    return
                # Not through a variable: it would keep the block alive while the consumer has it.
                yield self._wait(pending[0])
                self._promise(-pending.popleft().nbytes, must=True)
        finally:
            self._pending.pop(id(pending), None)
            for task in pending:
                task.is_cancelled = True
                self._promise(-task.nbytes, must=True)

    def _wait(self, task: _Task) -> Any:
        # Whoever closes says so first, and then wakes all who wait: so nobody waits for a thread that is stuck.
        if self._is_closing and not task.is_done:
            raise _closed()
        mark = self._clock.enter()
        try:
            return task.wait()
        finally:
            self._clock.leave(mark, None, 0)

    def has_room(self, sizes: Iterable[int], more: int) -> bool:
        """Whether one more block than planned takes no more bytes than those that were planned."""
        return sum(sizes) + more <= self.planned_nbytes

    def _promise(self, nbytes: int, *, must: bool) -> bool:
        """Count bytes that a task will take; without `must` only if the grant has room for them."""
        with self._lock:
            if not must and self._outstanding + nbytes > self._account.grant:
                return False
            self._outstanding += nbytes
            return True

    def pumped(self, parcels: Iterator[Parcel]) -> Iterator[Parcel]:
        """Return the same parcels, made on a thread of their own, a few ahead, if they are not so already."""
        if isinstance(parcels, Pumped):
            return parcels
        self._pumps = [one for one in self._pumps if not one.crew.is_ended]
        pump = Pump(parcels, self, self._clock)
        self._pumps.append(pump)
        pumped = Pumped(pump)
        pump.start()
        return pumped

    def stop(self) -> None:
        """Let tasks that run stop at the next row, tasks that wait not start, and whoever waits for either wake up."""
        self._is_closing = True
        for pending in list(self._pending.values()):
            for task in list(pending):
                task.wake()
        for pump in list(self._pumps):
            pump.stop()
        self._tasks.put(None)

    @property
    def crews(self) -> list[Crew]:
        """All threads: those that make blocks, and those that ask for parcels."""
        return [self._crew, *(pump.crew for pump in self._pumps)]

    def drop(self) -> None:
        """Drop what was made and not handed out, once the threads have ended, or were abandoned."""
        for pump in self._pumps:
            pump.drop()
        with contextlib.suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()  # It has its input.
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            busy, core = task.run(is_closing=self._is_closing)
            del task  # A thread that waits must not keep the last block alive.
            with self._lock:
                self.busy_seconds += busy
                self.core_seconds += core
        if self._is_closing:
            self._tasks.put(None)  # For the next thread: one None ends any number of threads.


def _nothing() -> None:
    pass


def _closed() -> StreamClosedError:
    return StreamClosedError("the stream was closed.")


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

    def __init__(self, parcels: Iterator[Any], threads: Threads, clock: Clock) -> None:
        self._parcels = parcels
        self._threads = threads
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
            raise _closed() if self._is_closing else StopIteration
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

    def _run(self) -> None:
        try:
            self._made.put((None, self._pumped()))
        except BaseException as error:  # noqa: BLE001  # A user's generator may fail while it is closed.
            self._made.put((None, error))

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
                    return _closed()
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
        num, most = len(self._waiting), self._threads
        if num < most.planned:
            return True
        return num < most.ahead and most.has_room(self._waiting, max(self._waiting))

    def stop(self) -> None:
        """Make no more parcels, and let a consumer that waits for one wake up."""
        self._is_closing = True
        self._taken.put(None)
        self._made.put((None, _closed()))

    def drop(self) -> None:
        """Drop what was made, and what it is made of: a pump and its threads refer to each other."""
        self._parcels = iter(())
        with contextlib.suppress(queue.Empty):
            while True:
                self._made.get_nowait()
        self._made.put((None, _closed()))  # For a thread that may still come to ask.
