"""Threads that Ctrl-C can't lose: it interrupts only the main thread, so another thread starts them."""

import _thread
import threading
from collections.abc import Callable


class Crew:
    """A group of threads: `start` adds some, `join` waits for all; the caller tells them when to end."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._starts: list[_thread.LockType] = []

    def __len__(self) -> int:
        """How many threads were ever started."""
        return len(self._threads)

    def start(self, names: list[str], target: Callable[[], None]) -> None:
        """Start a thread for each name.

        Not by `Thread.start` in the calling thread: that waits for an event. If a signal handler raises
        meanwhile, the event can stay locked, and the new thread then waits for it for ever.
        """
        threads = [threading.Thread(target=target, name=name, daemon=True) for name in names]
        errors: list[BaseException] = []
        is_done = _thread.allocate_lock()
        is_done.acquire()

        def start() -> None:
            try:
                for thread in threads:
                    thread.start()
                    self._threads.append(thread)
            except BaseException as error:  # noqa: BLE001  # The system may refuse another thread.
                errors.append(error)
            finally:
                is_done.release()

        _thread.start_new_thread(start, ())
        # If Ctrl-C strikes right here, the threads start all the same, and find that they were told to end.
        self._starts.append(is_done)
        with is_done:
            pass
        if errors:
            raise errors.pop()

    def settle(self) -> None:
        """Wait until all requested threads have started, or failed to: Ctrl-C may have ended `start` early."""
        for is_done in self._starts:
            with is_done:
                pass

    def join(self) -> None:
        """Wait for all threads to end, except the calling one: the garbage collector may call this in any thread."""
        self.settle()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    @property
    def is_own(self) -> bool:
        """Whether the calling thread is one of these threads."""
        return threading.current_thread() in self._threads
