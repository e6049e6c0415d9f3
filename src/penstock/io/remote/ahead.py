"""Fetching several things at once over a network, where each is mostly waited for."""

import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import Generic, TypeVar

from penstock.core.crew import Crew
from penstock.errors import StreamClosedError

Item = TypeVar("Item")
Found = TypeVar("Found")

_LOOK_SECONDS = 0.1  # How often whoever waits looks whether its stream closes.
_GRACE_SECONDS = 1.0  # How long fetches that nobody wants any more are waited for.
_numbers = itertools.count()


class Ahead(Generic[Item, Found]):
    """What is fetched for each of several items, in their order, by daemon threads of its own.

    When the stream closes, no fetch begins any more, and one that does not return keeps nobody from going on.
    """

    def __init__(
        self,
        fetch: Callable[[Item], Found],
        items: Sequence[Item],
        *,
        at_once: int,
        is_closing: Callable[[], bool],
    ) -> None:
        self._fetch = fetch
        self._items = items
        self._is_closing = is_closing
        self._is_over = False
        self._next = itertools.count()  # Its `next` is one call in C: threads take turns.
        self._found: list[queue.SimpleQueue[tuple[Found | None, BaseException | None]]] = [
            queue.SimpleQueue() for _ in items
        ]
        self._crew = Crew()
        self._names = [f"penstock-fetch-{next(_numbers)}" for _ in range(min(at_once, len(items)))]

    def __iter__(self) -> Iterator[Found]:
        """Yield what was fetched for each item, or raise its error."""
        try:
            self._crew.start(self._names, self._work)
            for one in self._found:
                yield self._taken(one)
        finally:
            self._is_over = True
            self._crew.join(monotonic() + _GRACE_SECONDS)

    def _taken(self, one: "queue.SimpleQueue[tuple[Found | None, BaseException | None]]") -> Found:
        while True:
            try:
                found, error = one.get(timeout=_LOOK_SECONDS)
                break
            except queue.Empty:
                if self._is_closing():
                    raise StreamClosedError("the stream was closed.") from None
        if error is not None:
            try:
                raise error
            finally:
                del error  # The traceback refers to this frame.
        return found  # type: ignore[return-value]  # It is there if there is no error.

    def _work(self) -> None:
        while not (self._is_over or self._is_closing()):
            number = next(self._next)
            if number >= len(self._items):
                return
            try:
                self._found[number].put((self._fetch(self._items[number]), None))
            except BaseException as error:  # noqa: BLE001  # It is whoever waits who must see it.
                self._found[number].put((None, error))
