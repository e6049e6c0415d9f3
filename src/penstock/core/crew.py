"""Threads that Ctrl-C can't lose: it interrupts only the main thread, so another thread starts them."""

import _thread
import threading
from collections.abc import Callable
from time import monotonic

_SLICE = 0.1  # seconds


class Crew:
    """A group of threads: `start` adds some, `join` waits for all; the caller tells them when to end."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._ends: dict[threading.Thread, _thread.LockType] = {}
        self._ended: set[threading.Thread] = set()
        self._starts: list[tuple[_thread.LockType, int]] = []
        self._lock = threading.Lock()
        self._when_all_ended: Callable[[], None] | None = None

    def __len__(self) -> int:
        """How many threads were ever started."""
        return len(self._threads)

    def start(self, names: list[str], target: Callable[[], None]) -> None:
        """Start a thread for each name.

        Not by `Thread.start` in the calling thread: that waits for an event. If a signal handler raises
        meanwhile, the event can stay locked, and the new thread then waits for it for ever.
        """

        def run() -> None:
            me = threading.current_thread()
            try:
                target()
            finally:
                self._end(me)
                self._ends[me].release()

        threads = [threading.Thread(target=run, name=name, daemon=True) for name in names]
        for thread in threads:
            self._ends[thread] = _thread.allocate_lock()
            self._ends[thread].acquire()
        errors: list[BaseException] = []
        is_done = _thread.allocate_lock()
        is_done.acquire()

        def start() -> None:
            try:
                for thread in threads:
                    # Listed first: it may come to its end, and be counted, at once.
                    self._threads.append(thread)
                    thread.start()
            except BaseException as error:  # noqa: BLE001  # The system may refuse another thread.
                self._threads.remove(thread)
                errors.append(error)
            finally:
                is_done.release()

        # One call, which starts a thread and lists its lock: Ctrl-C strikes between two calls, never within
        # one. After it, the threads start whatever strikes, and `settle` waits for that.
        self._starts.extend(
            zip((is_done,), map(_thread.start_new_thread, (start,), ((),)), strict=True)
        )
        with is_done:
            pass
        if errors:
            raise errors.pop()

    def _end(self, thread: threading.Thread) -> None:
        with self._lock:
            self._ended.add(thread)
            call = self._when_all_ended if self.is_ended else None
        if call is not None:
            call()

    @property
    def is_ended(self) -> bool:
        """Whether all threads have done their work."""
        return len(self._ended) == len(self._threads)

    def when_all_ended(self, call: Callable[[], None]) -> None:
        """Call this when the last thread has ended: on that thread, or here if that was before."""
        with self._lock:
            self._when_all_ended = call
            is_ended = self.is_ended
        if is_ended:
            call()

    def settle(self) -> None:
        """Wait until all requested threads have started, or failed to: Ctrl-C may have ended `start` early."""
        for is_done, _ in self._starts:
            with is_done:
                pass

    def join(self, until: float | None = None) -> list[threading.Thread]:
        """Wait for all threads to end, or until a time of `monotonic`; return those that did not.

        The calling thread may be one of them, since the garbage collector calls this in any: it is not waited for.
        """
        self.settle()
        others = [one for one in self._threads if one is not threading.current_thread()]
        self.settle()  # Some may have been listed since by another thread, and a thread is listed before it starts.
        for thread in others:
            self._wait_for(thread, until)
        return [one for one in others if one not in self._ended]

    def _wait_for(self, thread: threading.Thread, until: float | None) -> None:
        """Wait for a thread to do its work, then for what Python does at its end.

        Not by `Thread.join` alone: if Ctrl-C strikes in it, Python takes the thread for ended while it runs on.
        """
        while thread not in self._ended:
            seconds = _SLICE if until is None else min(_SLICE, until - monotonic())
            if seconds <= 0:
                return
            # By slices: a strike between these two calls keeps the lock, and the set tells all the same.
            if self._ends[thread].acquire(timeout=seconds):
                self._ends[thread].release()
        thread.join()

    @property
    def is_own(self) -> bool:
        """Whether the calling thread is one of these threads."""
        return threading.current_thread() in self._threads
