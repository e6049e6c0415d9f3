"""Threads that Ctrl-C can't lose: it strikes the main thread alone, so another one starts them."""

import _thread
import threading
from collections.abc import Callable


class Crew:
    """Some threads: started when asked to, waited for when they were told to end."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._starts: list[_thread.LockType] = []

    def __len__(self) -> int:
        """How many there ever were."""
        return len(self._threads)

    def start(self, names: list[str], target: Callable[[], None]) -> None:
        """Start a thread for each name.

        Not by `Thread.start` in this thread: it waits for an event, which an exception out of a signal
        handler can leave locked, and the new thread then waits for it for ever.
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
            except BaseException as error:  # noqa: BLE001  # There may be no room for a thread.
                errors.append(error)
            finally:
                is_done.release()

        _thread.start_new_thread(start, ())
        # If Ctrl-C strikes right here, they do start, and find that they have been told to end.
        self._starts.append(is_done)
        with is_done:
            pass
        if errors:
            raise errors.pop()

    def settle(self) -> None:
        """Wait until those that were asked for have started, or could not: Ctrl-C may have left `start` early."""
        for is_done in self._starts:
            with is_done:
                pass

    def join(self) -> None:
        """Wait for the end of all; not of the one that asks: the garbage collector may do so in any."""
        self.settle()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    @property
    def is_own(self) -> bool:
        """Whether this is called by one of them."""
        return threading.current_thread() in self._threads
