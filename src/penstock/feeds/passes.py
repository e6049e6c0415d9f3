"""A pass: one run over a dataset by a framework that reads ahead, for one epoch or epochs without end."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.state import State
from penstock.engine.stream import Stream, open_stream
from penstock.errors import RangeError
from penstock.feeds.base import located
from penstock.feeds.facts import has_random_access, num_batches
from penstock.feeds.leafwise import Convert
from penstock.feeds.long_batches import join
from penstock.feeds.on_device.resident import Resident, ResidentStream
from penstock.feeds.on_device.traffic import Traffic
from penstock.outlets import Outlets

Epoch = Stream | ResidentStream
NO_BATCHES = "the dataset has no batches; check take, skip, filter and the files."


class Pass:
    """Batches in the order they are read, and the state after any of them.

    Keras and tf.data read ahead of the training, by as much as they like, so a state is asked for by the
    number of batches trained on. With random access the state follows from that number; else the states
    after the batches handed out are noted until `forget` is called.
    """

    def __init__(
        self,
        source: Outlets,
        prepare: Convert | None,
        begin: State,
        *,
        is_continued: bool = False,
        is_recorded: bool = False,
        data: Resident | None = None,
        by_number: bool = False,
        stream: Stream | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """Open it, unless its `stream` is open.

        Rows of `data` are gathered on the device, or, with `by_number`, only their numbers are yielded. `traffic` is
        told of each epoch that begins.
        """
        self._source = source
        self._prepare = prepare
        self._begin = begin
        self._data = data
        self._by_number = by_number
        self._traffic = traffic
        self._has_random_access = has_random_access(source.node)
        self._total = num_batches(source.node)
        self.is_continued = is_continued
        self._is_recorded = is_recorded and not self._has_random_access
        self._skipped = begin.element
        """Batches of the epoch being read that lie before the first one of the pass."""
        self.stream: Epoch | None = self._open(begin, stream)
        self.epoch = begin.epoch
        self._states: deque[tuple[int, State]] = deque()
        self.handed = 0
        """Batches handed out; counted only where there is no random access, or no last batch."""
        self._was_closed = False
        self.is_ended = False
        """Whether the last batch was handed out."""
        self.on_last: Callable[[int], None] | None = None
        """Called with the number of batches, just before the last one is handed out."""
        self.latest: Epoch = self.stream
        """The stream read from last."""
        self.must_have_batches = False
        """Whether an epoch without any is an error, as for Keras, which fails in some way of its own, or is silent."""

    def _open(self, begin: State, stream: Stream | None = None) -> Epoch:
        if self._traffic is not None:
            self._traffic.begin_epoch()
        if stream is not None:
            return stream
        if self._data is None:
            return open_stream(self._source.node, self._source.options, state=begin.to_dict())
        return ResidentStream(self._source, self._data, begin, by_number=self._by_number)

    @property
    def num_batches(self) -> int | None:
        """How many batches are left from where it starts; None where that is unknown or infinite."""
        if self._total is None or self.is_continued:
            return None
        return self._total - self._begin.element

    def __iter__(self) -> Iterator[Any]:
        for stream in self._epochs():
            try:
                yield from self._epoch(stream)
            except RangeError as error:
                raise located(error, stream) from None

    def _epochs(self) -> Iterator[Epoch]:
        """Yield the stream of each epoch, which is closed when the next one is asked for."""
        while True:
            stream = self.stream
            assert stream is not None
            with stream:
                yield stream
            self.stream = None
            if not self.is_continued:
                self.is_ended = True
                return
            self._next_epoch()

    def blocks(self) -> Iterator[Any]:
        """Yield long batches, each of many batches, for a framework that cuts them up again by their size."""
        for stream in self._epochs():
            for long in self._long_batches(stream):
                yield long if self._prepare is None else self._prepare(long)
                del long

    def _long_batches(self, stream: Epoch) -> Iterator[Any]:
        if isinstance(stream, ResidentStream):
            yield from stream.numbers()
            return
        structure = self._source.node.structure
        for block, size in stream.blocks():
            yield structure.unflatten(join(block, size))
            del block

    def _next_epoch(self) -> None:
        self.epoch += 1
        self._skipped = 0
        self.stream = self.latest = self._open(State(self._begin.fingerprint, self.epoch))

    def _epoch(self, stream: Epoch) -> Iterator[Any]:
        prepare = self._prepare
        known = self._known_remaining()
        if known is None:
            yield from self._unknown(stream)
            return
        # The last batch is yielded separately: the stream is closed before, since Keras asks for no more.
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

    def _known_remaining(self) -> int | None:
        """Return how many batches are to come; None if that is unknown, or if there is no random access."""
        if self._total is None or not self._has_random_access:
            return None
        return self._total - self._skipped

    def _unknown(self, stream: Epoch) -> Iterator[Any]:
        """Yield batches one behind the stream, so as to know which is the last."""
        missing = object()
        current = next(stream, missing)
        if current is missing and self.must_have_batches and not (self.handed or self._skipped):
            raise ValueError(NO_BATCHES)
        while current is not missing:
            state = stream.position if self._is_recorded else None
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
        num_rows = self._source.node.num_rows
        if num_rows is not None and not self.is_continued:
            # The pass ends with its epoch, however many batches are asked for.
            count = min(count, num_rows - self._begin.element)
        if count <= 0:
            return self._begin
        if self._has_random_access:
            assert num_rows is not None
            return self._begin.after(count, num_rows)
        for number, state in reversed(self._states):
            if number <= count:
                return state
        raise LookupError(f"the state after {count} batches was not noted.")

    def forget(self, count: int) -> None:
        """Drop noted states that are older than the one after `count` batches."""
        while len(self._states) > 1 and self._states[1][0] <= count:
            self._states.popleft()

    @property
    def is_closed(self) -> bool:
        """Whether nothing is read any more: it came to its end, or was closed."""
        return self._was_closed or self.stream is None

    @property
    def has_read_all(self) -> bool:
        """Whether a whole epoch was handed out, from its first batch to its last."""
        num_whole = self.epoch - self._begin.epoch + self.is_ended - (self._begin.element > 0)
        return num_whole > 0

    def close(self) -> None:
        """End it, wherever it stands."""
        self._was_closed = True
        if self.stream is not None:
            self.stream.close()
