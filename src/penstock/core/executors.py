"""Executors: what runs the work of a stream, in the thread that asks for it or beside it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from penstock.core.parcels import Begun, Parcel

In = TypeVar("In")
Out = TypeVar("Out")


class Executor(ABC):
    """Runs work beside the consumer, if there are threads to run it on."""

    @abstractmethod
    def ordered(
        self,
        function: Callable[[In], Out],
        inputs: Iterable[In],
        nbytes: Callable[[In], int],
        *,
        of: object = None,
    ) -> Iterator[Out]:
        """Yield `function(x)` for each input, in order, some of them ahead of time.

        `of` is the node whose rows they are: the report tells how many of its blocks wait.
        """

    @abstractmethod
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
        """Yield the block that `begin(x)` begins for each input, in order, filled by its job, some ahead of time.

        Where `begin` returns None, the block is `read(x)`.
        """

    @abstractmethod
    def pumped(self, parcels: Iterator[Parcel], *, of: object = None) -> Iterator[Parcel]:
        """Return the same parcels, made on a thread of their own, a few ahead."""

    def when_idle(self, work: Callable[[], bool]) -> None:  # noqa: B027  # Not without threads.
        """Call `work` on a thread that has nothing else to do, again and again until it returns False.

        It must return soon each time, and never raise. It may also never be called.
        """

    @property
    @abstractmethod
    def is_closing(self) -> bool:
        """Whether the stream is closing: a loop over a user's function should then stop before the next row."""


class Inline(Executor):
    """Runs all work in the thread that asks for it."""

    is_closing = False

    def pumped(self, parcels: Iterator[Parcel], *, of: object = None) -> Iterator[Parcel]:
        """Return the parcels as they are."""
        return parcels

    def ordered(
        self,
        function: Callable[[In], Out],
        inputs: Iterable[In],
        nbytes: Callable[[In], int],
        *,
        of: object = None,
    ) -> Iterator[Out]:
        """Yield `function(x)` for each input."""
        source = iter(inputs)
        held: list[In] = []  # Not a variable: it would keep the input alive beside its result.
        while True:
            try:
                held.append(next(source))
            except StopIteration:
                return
            # Not map(): if the function itself raised StopIteration, map() would end silently.
            yield function(held.pop())

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
        """Yield each block, filled."""
        for one in inputs:
            yield filled_here(begin, one, end, read)


def filled_here(
    begin: Callable[[In], Begun | None],
    one: In,
    end: Callable[[Begun], Parcel],
    read: Callable[[In], Parcel],
) -> Parcel:
    """Return a block that is begun and filled in this thread."""
    begun = begin(one)
    if begun is None:
        return read(one)
    begun.job.run()
    return end(begun)
