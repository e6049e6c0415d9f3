"""Threads that work ahead of the consumer, in order, within what the ledger granted."""

import contextlib
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter, thread_time
from typing import Any

from penstock._native import Jobs
from penstock.core.clock import Clock
from penstock.core.crew import Crew
from penstock.core.executors import Executor, In, Out, filled_here
from penstock.core.parcels import Begun, Parcel
from penstock.core.read_count import ReadCount
from penstock.engine.stream.awaited import Filling, Task, closed
from penstock.engine.stream.pump import Pump, Pumped
from penstock.memory import Account

_numbers = itertools.count()


class Threads(Executor):
    """A few threads, whose results are handed out in order."""

    def __init__(
        self,
        ahead: int,
        account: Account,
        block_nbytes: int | None = None,
        clock: Clock | None = None,
        read_count: ReadCount | None = None,
    ) -> None:
        self.count = 0
        self.ahead = ahead
        """How many blocks are made before they are asked for; more than planned only while they are small."""
        self._busy_seconds = 0.0
        self._core_seconds = 0.0
        self.planned = ahead
        self.planned_nbytes = 0 if block_nbytes is None else ahead * block_nbytes
        self._account = account
        self._clock = clock or Clock()
        self._read_count = read_count or ReadCount()
        self._outstanding = 0
        self._lock = threading.Lock()  # For `_outstanding`: there may be several pumps.
        self._pumps: list[Pump] = []
        self._pending: dict[int, deque[Task | Filling]] = {}
        """The tasks that each loop over `ordered` waits for, or will."""
        self._makers: dict[int, int] = {}
        """The id of the node whose rows each of these loops makes."""
        self._is_closing = False
        self._jobs = Jobs()
        """What threads serve: native jobs, and calls, each of which is a task in `_tasks`."""
        self.begins = False
        """Whether the next loop over results yields None once, as soon as its first tasks are begun: `Engine.begin`."""
        self.made_here = 0
        """Bytes of blocks that the consumer itself makes before the threads are started: see `_made_here`."""
        self._is_begun = False
        self._starting = threading.Lock()
        self._spare: deque[Callable[[], bool]] = deque()
        """What is done when there is no task, by one thread at a time: so a task that comes is begun at once."""
        self._sparing = threading.Lock()
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._number = next(_numbers)
        self._crew = Crew()

    def resize(self, count: int) -> None:
        """Set how many threads there are from the first task on; one that is too many ends after its current task."""
        if self._is_begun:
            self._change(self.count, count)
        self.count = count

    def _begin(self) -> None:
        """Start the threads, if they were not: opening a stream is then quick, and so is a short one."""
        if self._is_begun:
            return
        with self._starting:
            if not self._is_begun:
                self._change(0, self.count)
                # Last: if Ctrl-C strikes before, the next task starts them.
                self._is_begun = True

    def _change(self, before: int, count: int) -> None:
        for _ in range(count, before):
            self._put(None)
        first = len(self._crew)
        names = [f"penstock-{self._number}-{first + more}" for more in range(count - before)]
        if names:
            self._crew.start(names, self._work)

    @property
    def busy_seconds(self) -> float:
        """What all tasks took so far."""
        return self._busy_seconds + self._jobs.seconds[0]

    @property
    def core_seconds(self) -> float:
        """What they took of that on a core."""
        return self._core_seconds + self._jobs.seconds[1]

    @property
    def is_closing(self) -> bool:
        """Whether the stream is being closed: users' functions are not called for another row."""
        return self._is_closing

    def ordered(
        self,
        function: Callable[[In], Out],
        inputs: Iterable[In],
        nbytes: Callable[[In], int],
        *,
        of: object = None,
    ) -> Iterator[Out]:
        """Yield `function(x)` for each input, in order, as many ahead as planned and granted.

        All bookkeeping is done by the thread that iterates, at the moment it asks for the next
        block: no thread has to be woken, and no race can exceed the grant.
        """

        def begin(one: In, cost: int) -> Task:
            task = Task(function, one, cost)
            self._put(task)
            return task

        return self._in_order(begin, function, inputs, nbytes, of)

    def filled(
        self,
        begin: Callable[[In], Begun | None],
        inputs: Iterable[In],
        nbytes: Callable[[In], int],
        end: Callable[[Begun], Parcel],
        read: Callable[[In], Parcel],
        *,
        of: object = None,
    ) -> Iterator[Parcel]:
        """Yield each block, filled; in between, no thread but the one that iterates needs the interpreter lock.

        Whoever waits for a block helps to fill those that no thread has begun.
        """

        def submit(one: In, cost: int) -> Filling | Task:
            begun = begin(one)
            if begun is None:
                task = Task(read, one, cost)
                self._put(task)
                return task
            self._jobs.submit(begun.job)
            # With one thread it does not help: who asks for one thread wants one core to read.
            return Filling(begun, end, cost, helps=self.count > 1)

        def make(one: In) -> Parcel:
            return filled_here(begin, one, end, read)

        return self._in_order(submit, make, inputs, nbytes, of)

    def _in_order(
        self,
        begin: "Callable[[In, int], Task | Filling]",
        make: Callable[[In], Any],
        inputs: Iterable[In],
        nbytes: Callable[[In], int],
        of: object,
    ) -> Iterator[Any]:
        """Yield what `begin` has threads make of each input; the first few are made by `make`, in this thread."""
        pending: deque[Task | Filling] = deque()
        self._pending[id(pending)] = pending
        self._makers[id(pending)] = id(of)
        source = iter(inputs)
        spare: deque[In] = deque()
        is_ended = False
        begins, self.begins = self.begins, False
        try:
            yield from self._made_here(make, source, nbytes, spare)
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
                    self._begin()
                    pending.append(begin(spare.popleft(), cost))
                if begins:
                    begins = False
                    yield None
                if not pending:
                    return
                # Not through a variable: it would keep the block alive while the consumer has it.
                yield self._wait(pending[0])
                self._promise(-pending.popleft().nbytes, must=True)
        finally:
            self._pending.pop(id(pending), None)
            self._makers.pop(id(pending), None)
            for task in pending:
                task.cancel()
                self._promise(-task.nbytes, must=True)

    def _made_here(
        self,
        make: Callable[[In], Out],
        source: Iterator[In],
        nbytes: Callable[[In], int],
        spare: deque[In],
    ) -> Iterator[Out]:
        """Yield the first results of a short or merely begun stream, made by the thread that asks for them.

        So small blocks of what is in memory cost less than it takes to start threads for them. The first input
        that is too large for that is left in `spare`.
        """
        while self.made_here and not self._is_begun:
            for one in source:
                spare.append(one)
                break
            else:
                return
            self.made_here -= nbytes(spare[0])
            if self.made_here < 0:
                self.made_here = 0
                return
            if self._is_closing:
                raise closed()
            yield make(spare.popleft())

    def _wait(self, task: "Task | Filling") -> Any:
        # Whoever closes says so first, and then wakes all who wait: so nobody waits for a thread that is stuck.
        if self._is_closing and not task.is_done:
            raise closed()
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

    def pumped(self, parcels: Iterator[Parcel], *, of: object = None) -> Iterator[Parcel]:
        """Return the same parcels, made on a thread of their own, a few ahead, if they are not so already."""
        if isinstance(parcels, Pumped):
            return parcels
        self._pumps = [one for one in self._pumps if not one.crew.is_ended]
        pump = Pump(parcels, self, self._clock, of, self._read_count)
        self._pumps.append(pump)
        pumped = Pumped(pump)
        pump.start()
        return pumped

    def when_idle(self, work: Callable[[], bool]) -> None:
        """Call `work` on a thread that has nothing else to do, again and again until it returns False."""
        if work not in self._spare:
            self._spare.append(work)

    def stop(self) -> None:
        """Let tasks that run stop at the next row, tasks that wait not start, and whoever waits for either wake up."""
        self._is_closing = True
        self._jobs.stop()
        for pending in list(self._pending.values()):
            for task in list(pending):
                task.wake()
        for pump in list(self._pumps):
            pump.stop()
        self._put(None)

    @property
    def crews(self) -> list[Crew]:
        """All threads: those that ask for parcels, and may be about to start the others; those that make blocks."""
        return [*(pump.crew for pump in self._pumps), self._crew]

    def drop(self) -> None:
        """Drop what was made and not handed out, once the threads have ended, or were abandoned."""
        self._spare.clear()
        for pump in self._pumps:
            pump.drop()
        with contextlib.suppress(queue.Empty):
            while True:
                self._tasks.get_nowait()  # It has its input.
        self._tasks.put(None)

    def _put(self, task: Task | None) -> None:
        """Have a thread run a task; None ends one."""
        self._tasks.put(task)
        self._jobs.call()

    def _next_task(self) -> Task | None:
        """Return the next task, or None at the end; until there is one, fill blocks, or do what there is besides."""
        while self._spare and self._tasks.empty() and self._sparing.acquire(blocking=False):
            try:
                started, on_core = perf_counter(), thread_time()
                with contextlib.suppress(IndexError):  # It was cleared just now.
                    work = self._spare.popleft()
                    if not self._is_closing and work():
                        self._spare.append(work)
                    del work
                self._was_busy(perf_counter() - started, thread_time() - on_core)
            finally:
                self._sparing.release()
        self._jobs.serve()
        return self._tasks.get()

    def _work(self) -> None:
        self._clock.know_thread()
        with self._read_count.counting():
            self._work_on()

    def _work_on(self) -> None:
        while (task := self._next_task()) is not None:
            busy, core = task.run(is_closing=self._is_closing)
            del task  # A thread that waits must not keep the last block alive.
            self._was_busy(busy, core)
        if self._is_closing:
            self._put(None)  # For the next thread: one None ends any number of threads.

    def waiting(self) -> dict[int, int]:
        """Return how many blocks were made of each node's rows and wait to be taken, by the id of the node."""
        found: dict[int, int] = {}
        for key, pending in list(self._pending.items()):
            # The first one is with whoever took it, until the next is asked for.
            count = sum([task.is_done for task in list(pending)[1:]])
            maker = self._makers.get(key, 0)
            found[maker] = found.get(maker, 0) + count
        for pump in list(self._pumps):
            found[pump.maker] = found.get(pump.maker, 0) + pump.num_made
        return found

    def _was_busy(self, seconds: float, core_seconds: float) -> None:
        with self._lock:
            self._busy_seconds += seconds
            self._core_seconds += core_seconds
