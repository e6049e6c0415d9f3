"""Work that the threads that need its result do together, a piece at a time each."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """Pieces of work, each begun once and in order, done by whichever threads need the result.

    What `begin` returns for a piece is handed to `work`; `finish` is called after the last piece. An error
    in any of the three ends all of the work: every thread that waits for it gets that error. No more than `allowed`
    pieces are begun before `allow_all`, which must come before `complete`.
    """

    def __init__(
        self,
        num_pieces: int,
        begin: Callable[[int], T],
        work: Callable[[T], None],
        finish: Callable[[], None] | None = None,
        *,
        allowed: int | None = None,
    ) -> None:
        """Describe the work; `begin` runs under a lock, for one piece after the other, `work` on many threads."""
        self.num_pieces = num_pieces
        self._allowed = num_pieces if allowed is None else allowed
        self._begin = begin
        self._work = work
        self._finish = finish
        self._lock = threading.RLock()  # Not `with self._changed`: Ctrl-C could leave that locked.
        self._changed = threading.Condition(self._lock)
        self._num_begun = 0
        self._num_done = 0
        self._error: BaseException | None = None

    @property
    def num_begun(self) -> int:
        """How many pieces are done, or under way."""
        return self._num_begun

    @property
    def allows_all(self) -> bool:
        """Whether all pieces may be begun."""
        return self._allowed == self.num_pieces

    def allow_all(self) -> None:
        """Let all pieces be begun."""
        self._allowed = self.num_pieces

    def do_next(self) -> bool:
        """Do the next piece that nobody has begun; return whether there was one that is allowed."""
        try:
            with self._lock:
                if self._num_begun >= self._allowed or self._error is not None:
                    return False
                piece = self._begin(self._num_begun)
                self._num_begun += 1
            self._work(piece)
            with self._lock:
                if self._finish is not None and self._num_done + 1 == self.num_pieces:
                    self._finish()
                self._num_done += 1
                self._changed.notify_all()
        except BaseException as error:
            with self._lock:
                self._error = error
                self._changed.notify_all()
            raise
        return True

    def complete(self) -> None:
        """Do the pieces that nobody has begun, and wait for the others."""
        while self.do_next():
            pass
        with self._lock:
            self._changed.wait_for(
                lambda: self._num_done == self.num_pieces or self._error is not None
            )
            if self._error is not None:
                raise self._error
