"""What every feed has, and the feed for frameworks that iterate over it: each `iter` is the next epoch."""

import contextlib
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from penstock.core.arguments import whole_number
from penstock.core.askers import asking_keras
from penstock.core.fingerprint import fingerprint
from penstock.core.state import State, StateDict
from penstock.engine.plan import Explanation
from penstock.engine.stream import Stream, open_stream
from penstock.errors import RangeError
from penstock.feeds.facts import has_random_access, num_batches
from penstock.feeds.leafwise import Convert
from penstock.feeds.on_device.choice import Residency
from penstock.feeds.on_device.resident import Resident, ResidentStream
from penstock.feeds.on_device.traffic import Traffic, counting
from penstock.feeds.skipping import state_past
from penstock.outlets import Outlets
from penstock.reports.report import Report

_MOST_HELD = 2  # Batches that a training loop has fetched and not trained on: one ahead, and one that failed.
_MOST_SKIPPED = 1 << 52  # Epochs are counted in 53 bits.
S = TypeVar("S", bound=Stream | ResidentStream)


class Feed(ABC):
    """The batches of a dataset as one framework takes them, epoch after epoch."""

    source: Outlets
    """The dataset that it reads."""
    residency: Residency
    """Where the data lives during training, and why."""

    @property
    def traffic(self) -> Traffic:
        """Bytes copied to the device so far."""
        return self.residency.traffic

    def __len__(self) -> int:
        count = num_batches(self.source.node)
        if count is None:
            raise TypeError(
                "the number of batches is unknown or infinite: iterate, or give the framework a number of steps."
            )
        return count

    def __bool__(self) -> bool:
        """Return True: else Python would ask `len`, which raises if the number of batches is unknown."""
        return True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.source.node.describe()}: {self._standing()}>"

    @abstractmethod
    def _standing(self) -> str:
        """Return where it stands, in words."""

    @abstractmethod
    def resume(self, state: StateDict) -> None:
        """Let the next epoch that is read go on from a state of this dataset."""

    def report(self) -> Report | None:
        """Return what the epoch read last has done, and what went to the device; None before the first.

        It is the same kind of value as `stream.report()` gives.
        """
        latest = self._latest()
        return (
            None if latest is None else replace(latest.report(), device=self.residency.measured())
        )

    @abstractmethod
    def _latest(self) -> Stream | ResidentStream | None:
        """Return what was read from last; None before the first epoch."""

    @abstractmethod
    def close(self) -> None:
        """End what is still being read, and processes that wait for more; let go of what is on the device."""

    def explain(self) -> Explanation:
        """Return what reading will do, and where the data will be."""
        return self.residency.noted(self.source.explain())

    def _state_to_resume(self, state: StateDict) -> State:
        """Return a state, after checking that it is one of this dataset."""
        found = State.from_dict(state)
        found.check(fingerprint(self.source.node))
        found.check_place(self.source.node)
        return found

    def _past(self, position: State, count: int) -> State:
        """Return the state `count` batches after a position."""
        number = whole_number("count", count, least=0, most=_MOST_SKIPPED)
        return state_past(self.source, position, number)


def standing(position: State, total: int | None) -> str:
    """Return where a feed stands, in words: 'epoch 2, after batch 12 of 313'."""
    of = "" if total is None else f" of {total}"
    return f"epoch {position.epoch}, after batch {position.element}{of}"


def located(error: RangeError, stream: Stream | ResidentStream) -> RangeError:
    """Return the error of a number that does not fit, with the batch that it is in: the one that was read last."""
    at = stream.position
    which = f"batch {at.element - 1} of epoch {at.epoch}"
    if not at.element:
        which = f"the last batch of epoch {at.epoch - 1}"
    return RangeError(f"{which}: {error}")


class EpochFeed(Feed):
    """Batches to iterate over: each `iter` is the next epoch. It has a state that can be saved.

    An epoch begins when its first batch is asked for: iterators that nobody reads from, as some frameworks make them to
    see whether they can, are none.
    """

    def __init__(
        self, source: Outlets, put: Convert, residency: Residency, *, is_ahead: bool
    ) -> None:
        """Make a feed; `put` puts a batch on the device, and `is_ahead` says that it runs beside the computation."""
        self.source = source
        self.residency = residency
        self._put = put
        self._is_ahead = is_ahead
        self._next_epoch = 0
        self._resumed: State | None = None
        self._stream: Stream | ResidentStream | None = None
        """What was read from last."""
        self._open: set[Stream | ResidentStream] = set()
        """What is being read from: by more than one iterator, if there are several."""
        self._left: Stream | ResidentStream | None = None
        """What is read from no more, since its reader goes on elsewhere: where `skip` says."""
        self._position: State | None = None
        """Where the iterator made last stands, if its stream does not tell: it has none yet, or is a batch ahead."""
        self._recent: deque[State] | None = None
        """The last places where the consumer stood, where they do not follow from the number of a batch."""
        if not has_random_access(source.node):
            self._recent = deque(maxlen=_MOST_HELD + 1)

    def __iter__(self) -> Iterator[Any]:
        if self.residency.data is not None:
            return self._resident(self.residency.data)
        return self._streamed()

    def _begin(self) -> State:
        """Return where an iteration begins; its first batch is asked for."""
        begin = self._next()
        self.traffic.begin_epoch()
        self._resumed = None
        self._next_epoch = begin.epoch + 1
        self._position = begin
        return begin

    def _next(self) -> State:
        """Return where the next iteration begins."""
        if self._resumed is not None:
            return self._resumed
        return State(fingerprint(self.source.node), self._next_epoch)

    def _streamed(self) -> Iterator[Any]:
        node, options = self.source.node, self.source.options
        put, count = self._put, counting(self.traffic, node.structure)
        begin: State | None = self._begin()
        while begin is not None:
            with self._reading(
                open_stream(node, options, state=begin.to_dict(), by_element=True), begin
            ) as stream:
                pending: tuple[State, Any] | None = None

                def placed(batch: Any, stream: Stream = stream) -> Any:
                    try:
                        return put(count(batch))
                    except RangeError as error:
                        raise located(error, stream) from None

                for batch in stream:
                    if not self._is_ahead:
                        if self._recent is not None:
                            self._recent.append(stream.position)
                        yield placed(batch)
                    else:
                        ready, pending = pending, (stream.position, placed(batch))
                        if ready is not None:
                            self._note(stream, ready[0])
                            yield ready[1]
                    if self._left is stream:
                        pending = None
                        break
                if pending is not None:
                    self._note(stream, pending[0])
                    yield pending[1]
            begin = self._goes_on(stream, begin)

    def _resident(self, data: Resident) -> Iterator[Any]:
        begin: State | None = self._begin()
        while begin is not None:
            with self._reading(ResidentStream(self.source, data, begin), begin) as stream:
                for batch in stream:
                    yield batch
                    if self._left is stream:
                        break
            begin = self._goes_on(stream, begin)

    def _goes_on(self, stream: Stream | ResidentStream, begin: State) -> State | None:
        """Return where an iteration goes on after a stream, if `skip` has left the stream for a place in its epoch."""
        if self._left is not stream:
            return None
        self._left = None
        if self._resumed is None or self._resumed.epoch != begin.epoch:
            return None
        return self._begin()

    @contextlib.contextmanager
    def _reading(
        self, stream: S, begin: State, *, is_exiting: Callable[[], bool] = sys.is_finalizing
    ) -> Iterator[S]:
        """Read from a stream, and close it however that ends.

        What is still open when the interpreter ends is thrown away after the names of modules are, so that nothing can
        be called; its threads have ended by then. (`is_exiting` is an argument since it is such a name.)
        """
        self._stream = stream
        self._open.add(stream)
        # With a batch under way, the stream stands after it, and the consumer before.
        self._position = begin if self._is_ahead and isinstance(stream, Stream) else None
        if self._recent is not None:
            self._recent.append(begin)
        try:
            yield stream
        finally:
            try:
                if not is_exiting():
                    stream.close()
            finally:
                self._open.discard(stream)

    def _note(self, stream: Stream, position: State) -> None:
        if stream is self._stream:
            self._position = position
            if self._recent is not None:
                self._recent.append(position)

    @property
    def position(self) -> State:
        """Where the consumer stands."""
        if self._resumed is not None:
            return self._resumed
        if self._position is not None:
            return self._position
        if self._stream is not None:
            return self._stream.position
        return self._next()

    def _position_before(self, count: int) -> State:
        """Return where the consumer stood before the last `count` batches that it has taken."""
        position = self.position
        if not count or self._resumed is not None:
            return position
        if self._recent is not None:
            return self._recent[-1 - count] if count < len(self._recent) else self._recent[0]
        total = self.source.node.num_rows or 1
        back = position.epoch * total + position.element - count
        return State(position.fingerprint, 0).after(max(0, back), total)

    def _standing(self) -> str:
        return standing(self.position, num_batches(self.source.node))

    def state(self) -> StateDict:
        """Return where the consumer stands, as a small dict that JSON can hold."""
        return self.position.to_dict()

    def resume(self, state: StateDict) -> None:
        """Let the next iteration go on from a state of this dataset."""
        self._resumed = self._state_to_resume(state)

    @property  # type: ignore[misc]  # It can't be set, and nobody does.
    def __class__(self) -> type:
        """Its class. Keras asks for it when it is given a feed for another framework: the moment to refuse that."""
        asking = asking_keras()
        if asking:
            feed = "to_keras()" if asking == "keras" else "to_tf()"
            raise TypeError(
                f"{asking} can't read a {type(self).__name__}: give it the feed that is made for it, on "
                f"whichever backend.\n  right: model.fit(ds.{feed})"
            )
        return type(self)

    def skip(self, count: int) -> None:
        """Go past the next `count` batches from where it stands, into the next epochs if there are not so many.

        An iteration under way goes on there, or ends with its epoch; so does the next one after a loop that was left.
        With random access it costs the same for any count; else (`filter`, generators) the batches are read, and
        dropped. The state is exact at once.
        """
        self._resumed = self._past(self.position, count)
        self._left = self._stream if self._stream in self._open else None

    def _latest(self) -> Stream | ResidentStream | None:
        return self._stream

    def close(self) -> None:
        """End what is still being read, and processes that wait for more; let go of what is on the device."""
        for stream in list(self._open):
            stream.close()
        self.residency.close()
        self.source.close()
