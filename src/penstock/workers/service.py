"""The thread behind a pool: it alone starts workers, talks to them, and cleans up after those that ended."""

import selectors
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import ExitStack
from time import monotonic

from penstock.core.crew import Crew
from penstock.core.descriptors import Descriptor
from penstock.errors import WorkersUnavailable
from penstock.workers.anonymous_memory import memory_file, write_all
from penstock.workers.arena import Arena
from penstock.workers.bell import Bell
from penstock.workers.errors import PoolClosed, Raised, RemoteError
from penstock.workers.process import (
    KILLED_SECONDS,
    Task,
    TaskResult,
    WorkerProcess,
    block_interrupts,
)
from penstock.workers.wire import unpack

# One task to work on, and the next one: so a worker never waits for the parent's interpreter lock.
TASKS_AHEAD = 2
# A worker may be killed while it starts. After three in a row, the pool goes on with the workers it has, or
# ends with an error if none of them is ready.
STARTS_IN_VAIN = 3
# How often dead workers are looked for where there is no pidfd: only the end of a channel tells of them at once.
LOOK_SECONDS = 0.5
# How long workers wait for the next epoch; then they end.
IDLE_SECONDS = 10.0


class Service:
    """Owns the workers of one pool. `post` and `close` may be called from any thread."""

    def __init__(self, num_workers: int, function_pickle: bytes, *, name: str) -> None:
        self.name = name
        self.ready: Future[None] = Future()
        self.ready.set_running_or_notify_cancel()  # so that nobody can cancel it: others may wait for it
        self.num_restarts = 0
        self.arenas: dict[int, Arena] = {}
        self._num_workers = num_workers
        self._num_started = self._num_ready = self._starts_in_vain = 0
        self._workers: list[WorkerProcess] = []
        self._queue: deque[Task] = deque()
        # Guards what follows. Reentrant: the garbage collector may end the pool at any moment, on any thread.
        self._lock = threading.RLock()
        self._inbox: deque[Task] = deque()
        self._num_open = 0
        """Tasks whose futures have not ended."""
        self._is_closing = self._is_closed = False
        self._is_spent = False
        """Whether the workers are no longer as they were started: one died, or its function keeps rows."""
        self._rests_until: float | None = None
        """Until when the workers wait to be used again; None while they are in use."""
        self._failure: BaseException | None = None
        self._crew = Crew()
        with ExitStack() as opened:
            try:
                self._wake = Bell()
                opened.callback(self._wake.close)
                self._function = self._function_file(function_pickle)
                opened.callback(self._function.close)
                self._selector = selectors.DefaultSelector()
                opened.callback(self._selector.close)
                self._selector.register(self._wake, selectors.EVENT_READ)
            except OSError as error:
                raise self._cannot_start(error) from error
            opened.pop_all()  # From here on, `_shut_down` closes them.

    def start(self) -> None:
        """Start the thread, and on it the workers."""
        try:
            self._crew.start([f"penstock workers of {self.name}"], self._run)
        except BaseException as error:
            self._crew.settle()
            if len(self._crew):
                self.close()  # Ctrl-C: once the thread has started, only the thread releases things.
            else:
                self._shut_down(error)
            if isinstance(error, RuntimeError):  # The system refuses another thread.
                raise self._cannot_start(error) from error
            raise

    def _function_file(self, function_pickle: bytes) -> Descriptor:
        """Return memory with the function in it, from which workers load it."""
        size = len(function_pickle)
        made = Descriptor(memory_file(f"penstock function {self.name}", size))
        try:
            write_all(made.number, function_pickle, 0)
        except BaseException:
            made.close()
            raise
        return made

    def post(self, task: Task) -> None:
        """Hand over a task; its future always comes to an end."""
        with self._lock:
            if self._is_ending or self._rests_until is not None:
                task.frame.close()
                raise self._failure or PoolClosed(
                    f"{self.name}: the pool is closed, and takes no more tasks."
                )
            self._inbox.append(task)
            self._num_open += 1
            self._wake.ring()

    @property
    def _is_ending(self) -> bool:
        return self._is_closing or self._is_closed

    def rest(self) -> bool:
        """Let the workers wait for `resume`, for IDLE_SECONDS at most; False if they can't be used again.

        Nothing may be under way. All arenas are dropped, and the memory with the function in it, too.
        """
        with self._lock:
            if self._is_ending or self._num_open or self._is_spent:
                return False
            for arena in tuple(self.arenas.values()):
                arena.discard()
            self.arenas.clear()
            self._rests_until = monotonic() + IDLE_SECONDS
            self._wake.ring()
            return True

    def resume(self, function_pickle: bytes) -> bool:
        """Let the workers, which have loaded this function, take tasks again; False if they have ended."""
        with self._lock:
            if self._is_ending or self._is_spent or self._rests_until is None:
                return False
            if self._function.number < 0:
                try:
                    # For a worker that has to be replaced.
                    self._function = self._function_file(function_pickle)
                except OSError as error:
                    raise self._cannot_start(error) from error
            self._rests_until = None
            # So that the thread no longer looks at the time.
            self._wake.ring()
            return True

    def end_soon(self) -> None:
        """End the workers and the thread, and do not wait for that."""
        with self._lock:
            if not self._is_closed:
                self._is_closing = True
                self._wake.ring()

    def close(self) -> None:
        """End the workers and the thread, and fail tasks under way; idle workers get a second to end by themselves."""
        self.end_soon()
        # If a garbage collection on the service thread calls this, join() does not wait: the loop ends by itself.
        self._crew.join()

    def pids(self) -> list[int]:
        """Return the process ids of the workers that are alive."""
        return [worker.pid for worker in tuple(self._workers)]

    def _run(self) -> None:
        if self._is_closed:
            return
        try:
            block_interrupts()
            while len(self._workers) < self._num_workers:
                self._start_worker()
            self._loop()
        except BaseException as error:  # noqa: BLE001  it is raised to all who wait
            # Whatever it is, nobody may wait for ever on a future that this thread should end.
            self._shut_down(error)
        else:
            self._shut_down(None)

    def _loop(self) -> None:
        while True:
            for key, _ in self._selector.select(self._seconds_to_wait()):
                if key.data is None:
                    self._wake.hear()
                elif key.data in self._workers:
                    self._read(key.data)
            for worker in [one for one in self._workers if one.pid_fd is None and one.is_dead]:
                self._read(worker)
            with self._lock:
                if self._rests_until is not None and not self._lie_down(self._rests_until):
                    self._is_closing = True
                if self._is_closing:
                    return
                self._queue.extend(self._inbox)
                self._inbox.clear()
            self._hand_out()

    def _seconds_to_wait(self) -> float | None:
        until = self._rests_until
        seconds = [] if until is None else [max(0.0, until - monotonic())]
        if any(worker.pid_fd is None for worker in self._workers):
            seconds.append(LOOK_SECONDS)
        return min(seconds, default=None)

    def _lie_down(self, until: float) -> bool:
        """Let go of all that waiting workers need not have; False if they shall wait no longer."""
        if self._is_spent or monotonic() >= until:
            return False
        self._function.close()
        try:
            for worker in self._workers:
                worker.unmap_all_but(self.arenas)
        except OSError:  # Dead already, or not reading its channel.
            return False
        return True

    def _start_worker(self) -> None:
        try:
            worker = WorkerProcess(self.name, self._function.number)
        except OSError as error:
            raise self._cannot_start(error) from error
        self._workers.append(worker)
        self.num_restarts += self._num_started >= self._num_workers
        self._num_started += 1
        self._selector.register(worker.channel, selectors.EVENT_READ, worker)
        if worker.pid_fd is not None:
            # A child that the user's code forked may hold the channel open past the worker's death.
            self._selector.register(worker.pid_fd, selectors.EVENT_READ, worker)

    def _hand_out(self) -> None:
        """Give queued tasks to the least busy workers; replace dead workers if there is work for new ones."""
        while self._queue:
            able = [w for w in self._workers if w.is_ready and len(w.tasks) < TASKS_AHEAD]
            if not able:
                break
            worker = min(able, key=lambda each: len(each.tasks))
            task = self._queue.popleft()
            if not task.is_begun and not task.future.set_running_or_notify_cancel():
                task.frame.close()
                self._count_end()
                continue
            task.is_begun = True
            try:
                worker.give(task, self.arenas)
            except (BrokenPipeError, ConnectionResetError, BlockingIOError):
                self._queue.appendleft(task)
                worker.kill()  # dead already, or not reading its channel
                worker.wait(KILLED_SECONDS)
                self._read(worker)
            except Exception as error:  # noqa: BLE001  it concerns this task alone
                self._end(task, error=error)
        outstanding = len(self._queue) + sum(len(worker.tasks) for worker in self._workers)
        if not self.ready.done():
            outstanding = self._num_workers  # `ready` promises all workers, or an error
        while len(self._workers) < min(self._num_workers, outstanding):
            if self._workers and self._starts_in_vain >= STARTS_IN_VAIN:
                break
            self._start_worker()

    def _read(self, worker: WorkerProcess) -> None:
        """Take all messages that a worker has sent; bury the worker if it is dead."""
        # Asked before reading: all that a dead worker sent has arrived by then, so none of it is lost.
        is_dead = worker.is_dead
        while worker in self._workers:
            try:
                received = worker.channel.receive(wait=False)
            except BlockingIOError:
                if is_dead:
                    self._bury(worker)
                return
            if received is None:
                self._bury(worker)
                return
            self._take(worker, *received)

    def _take(self, worker: WorkerProcess, data: bytes, fds: list[int]) -> None:
        try:
            kind, *rest = unpack(data, fds)
        except Exception as error:  # noqa: BLE001  what the function returned may raise anything
            text = f"{self.name}: what the function returned could not be loaded here: {error}"
            failure = RemoteError(text, type(error).__qualname__)
            failure.__cause__ = error
            self._end(worker.tasks.popleft(), error=failure)
            return
        if kind == "ready":
            worker.is_ready = True
            self._starts_in_vain = 0
            self._num_ready += 1
            if self._num_ready >= self._num_workers and not self.ready.done():
                self.ready.set_result(None)
        elif kind == "kept":
            worker.tasks[0].is_kept = True
            self._is_spent = True
        elif kind == "done":
            seconds, value = rest
            task = worker.tasks.popleft()
            self._end(task, result=TaskResult(value, seconds, task.is_kept))
        elif kind == "raised":
            ends, *raised = rest
            self._take_error(worker, Raised(*raised), ends=ends)

    def _take_error(self, worker: WorkerProcess, raised: Raised, *, ends: bool) -> None:
        if not worker.is_ready:
            raise WorkersUnavailable(
                f"{self.name}: the function could not be loaded in a worker process: "
                f"{raised.type_name}: {raised.text}. What it refers to by name must be importable "
                "there: define it in an installed module, in one beside the script, or in the "
                "script itself."
            ) from raised.rebuild()
        if ends:
            self._bury(worker, traceback_text=raised.traceback_text)
        else:
            self._end(worker.tasks.popleft(), error=raised.rebuild())

    def _bury(self, worker: WorkerProcess, *, traceback_text: str = "") -> None:
        """Clean up after a dead or dying worker: fail the task it was on, and queue those it had not begun again."""
        self._is_spent = True
        self._selector.unregister(worker.channel)
        if worker.pid_fd is not None:
            self._selector.unregister(worker.pid_fd)
        self._workers.remove(worker)
        worker.bury()
        try:
            if worker.tasks:
                task = worker.tasks.popleft()
                self._end(task, error=worker.death(task.task_id, traceback_text))
                self._queue.extendleft(reversed(worker.tasks))
            elif not worker.is_ready:
                self._starts_in_vain += 1
                if self._starts_in_vain >= STARTS_IN_VAIN:
                    if not any(other.is_ready for other in self._workers):
                        raise worker.death(None)
                    if not self.ready.done():
                        self.ready.set_result(None)
        finally:
            worker.close()

    def _end(
        self,
        task: Task,
        *,
        result: TaskResult | None = None,
        error: BaseException | None = None,
    ) -> None:
        """End a task's future; from here on its arrays belong to the caller alone."""
        task.frame.close()
        task.arrays = ()
        self._count_end()  # First: whoever waits for the future may let the workers rest.
        if result is not None:
            task.future.set_result(result)
        else:
            task.future.set_exception(error)

    def _count_end(self) -> None:
        with self._lock:
            self._num_open -= 1

    def _shut_down(self, failure: BaseException | None) -> None:
        with self._lock:
            self._is_closed = True
            self._failure = failure
            self._wake.close()
        for worker in self._workers:
            # One that has not begun has nothing to flush.
            if worker.tasks or not worker.is_ready:
                worker.kill()
            worker.channel.close()
        unfinished = [*self._queue, *self._inbox]
        for worker in self._workers:
            worker.bury()
            worker.close()
            unfinished.extend(worker.tasks)
        self._workers.clear()
        self._selector.close()
        self._function.close()
        for task in unfinished:
            if task.is_begun or task.future.set_running_or_notify_cancel():
                self._end(task, error=failure or self._closed_under_way())
        if not self.ready.done():
            self.ready.set_exception(failure or self._closed_under_way())

    def _cannot_start(self, error: Exception) -> WorkersUnavailable:
        return WorkersUnavailable(f"{self.name}: a worker process could not be started: {error}.")

    def _closed_under_way(self) -> PoolClosed:
        return PoolClosed(f"{self.name}: the pool was closed while this was under way.")
