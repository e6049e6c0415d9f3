"""One reading of a dataset by Keras, from a state on: one epoch, or epochs without end."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from penstock.engine.stream import Stream
from penstock.feeds.leafwise import Convert
from penstock.feeds.long_batches import join
from penstock.feeds.on_device.tables import Resident, ResidentStream, State
from penstock.feeds.recipe import Recipe

Epoch = Stream | ResidentStream


class Pass:
    """Batches in the order they are read, and the state after any of them.

    Keras reads ahead of what it trains on, by as much as it likes, so that a state is asked for by
    how many batches were trained on. Where batches can be had by number it follows from the number;
    elsewhere the states of what was handed out are kept until `forget` is called.
    """

    def __init__(
        self,
        recipe: Recipe,
        prepare: Convert | None,
        *,
        epoch: int,
        state: State | None = None,
        is_continued: bool = False,
        is_recorded: bool = False,
        data: Resident | None = None,
        by_number: bool = False,
    ) -> None:
        """Open it; rows of `data` are gathered on the device, or only numbered, for tf.data to do so."""
        self._recipe = recipe
        self._prepare = prepare
        self._data = data
        self._by_number = by_number
        self.is_continued = is_continued
        self._is_recorded = is_recorded and not recipe.is_addressable
        self.first = self._open(epoch, state)
        self.stream: Epoch | None = self.first
        self._begin = self.first.state()
        self.epoch = int(self._begin["epoch"])
        self._states: deque[tuple[int, State]] = deque()
        self.handed = 0
        """Batches handed out."""
        self.is_ended = False
        """Whether the last batch was handed out."""
        self.on_last: Callable[[int], None] | None = None
        """Called with the number of batches, just before the last one is handed out."""
        self.latest: Epoch = self.first
        """The stream read from last."""

    def _open(self, epoch: int, state: State | None = None) -> Epoch:
        if self._data is None:
            return self._recipe.stream(epoch=epoch, state=state)
        return ResidentStream(
            self._recipe, self._data, epoch=epoch, state=state, by_number=self._by_number
        )

    @property
    def num_batches(self) -> int | None:
        """How many batches are left from where it starts; None where that is unknown or infinite."""
        total = self._recipe.num_batches
        if total is None or self.is_continued:
            return None
        return total - int(self._begin["element"])

    def __iter__(self) -> Iterator[Any]:
        while True:
            stream = self.stream
            assert stream is not None
            with stream:
                yield from self._epoch(stream)
            self.stream = None
            if not self.is_continued:
                return
            self._next_epoch()

    def blocks(self) -> Iterator[Any]:
        """Yield long batches of many at a time: for whoever cuts them up again by their size."""
        while True:
            stream = self.stream
            assert stream is not None
            with stream:
                for long in self._long_batches(stream):
                    yield long if self._prepare is None else self._prepare(long)
                    del long
            self.stream = None
            if not self.is_continued:
                return
            self._next_epoch()

    def _long_batches(self, stream: Epoch) -> Iterator[Any]:
        if isinstance(stream, ResidentStream):
            yield from stream.numbers()
            return
        structure = self._recipe.node.structure
        for block, size in stream.blocks():
            yield structure.unflatten(join(block, size))
            del block

    def _next_epoch(self) -> None:
        self.epoch += 1
        self.stream = self.latest = self._open(self.epoch)

    def _epoch(self, stream: Epoch) -> Iterator[Any]:
        prepare = self._prepare
        known = self._known_remaining(stream)
        if known is None:
            yield from self._unknown(stream)
            return
        # The last batch is apart, so that the stream is closed without Keras asking for one more.
        batches: Iterator[Any] = itertools.islice(stream, max(0, known - 1))
        if prepare is not None:
            batches = map(prepare, batches)
        yield from batches
        if known:
            last = next(stream)
            if prepare is not None:
                last = prepare(last)
            self._ends(stream, known)
            yield last

    def _known_remaining(self, stream: Epoch) -> int | None:
        """Return how many batches there are to come, where the state follows from a number."""
        total = self._recipe.num_batches
        if total is None or not self._recipe.is_addressable:
            return None
        return total - (int(self._begin["element"]) if stream is self.first else 0)

    def _unknown(self, stream: Epoch) -> Iterator[Any]:
        """Yield batches one behind the stream, so as to know which is the last."""
        missing = object()
        current = next(stream, missing)
        while current is not missing:
            state = stream.state() if self._is_recorded else None
            following = next(stream, missing)
            if state is not None:
                self._states.append((self.handed + 1, state))
            if following is missing:
                self._ends(stream, self.handed + 1)
            self.handed += 1
            yield current if self._prepare is None else self._prepare(current)
            current = following

    def _ends(self, stream: Epoch, count: int) -> None:
        stream.close()
        if not self.is_continued:
            self.is_ended = True
            if self.on_last is not None:
                self.on_last(count)

    def state_after(self, count: int) -> State:
        """Return the state after the first `count` batches of this pass."""
        if count <= 0:
            return self._begin
        if self._recipe.is_addressable:
            return self._numbered(count)
        for number, state in reversed(self._states):
            if number <= count:
                return state
        raise LookupError(f"the state after {count} batches was not kept.")

    def _numbered(self, count: int) -> State:
        total = self._recipe.node.num_rows
        assert total is not None
        epochs, element = divmod(int(self._begin["element"]) + count, total)
        if epochs > 1 and not self.is_continued:
            epochs, element = 1, 0
        return {
            **self._begin,
            "epoch": int(self._begin["epoch"]) + epochs,
            "element": element,
            "cursor": element or None,
        }

    def forget(self, count: int) -> None:
        """Drop the states before that after `count` batches."""
        while len(self._states) > 1 and self._states[1][0] <= count:
            self._states.popleft()

    def close(self) -> None:
        """End it, wherever it stands."""
        if self.stream is not None:
            self.stream.close()
