"""What every feed has, and the feed for frameworks that iterate over it: each `iter` is the next epoch."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeVar

from penstock.core.fingerprint import fingerprint
from penstock.core.state import State, StateDict
from penstock.engine.plan import Explanation
from penstock.engine.stream import Report, Stream, open_stream
from penstock.errors import RangeError
from penstock.feeds.facts import num_batches
from penstock.feeds.leafwise import Convert
from penstock.feeds.on_device.choice import Residency
from penstock.feeds.on_device.resident import Resident, ResidentStream
from penstock.feeds.on_device.traffic import Traffic, counting
from penstock.outlets import Outlets

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

    @abstractmethod
    def report(self) -> Report | None:
        """Return what the epoch read last has done; None before the first."""

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
    """Batches to iterate over: each `iter` is the next epoch. It has a state that can be saved."""

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
        self._position: State | None = None
        """Where the iterator made last stands, if its stream does not tell: it has none yet, or is a batch ahead."""

    def __iter__(self) -> Iterator[Any]:
        begin, self._resumed = self._resumed, None
        if begin is None:
            begin = State(fingerprint(self.source.node), self._next_epoch)
        self._next_epoch = begin.epoch + 1
        self._position = begin
        if self.residency.data is not None:
            return self._resident(self.residency.data, begin)
        return self._streamed(begin)

    def _streamed(self, begin: State) -> Iterator[Any]:
        node, options = self.source.node, self.source.options
        put, count = self._put, counting(self.traffic, node.structure)
        with self._reading(
            open_stream(node, options, state=begin.to_dict(), by_element=True), begin
        ) as stream:
            pending: tuple[State, Any] | None = None

            def placed(batch: Any) -> Any:
                try:
                    return put(count(batch))
                except RangeError as error:
                    raise located(error, stream) from None

            for batch in stream:
                if not self._is_ahead:
                    yield placed(batch)
                    continue
                ready, pending = pending, (stream.position, placed(batch))
                if ready is not None:
                    self._note(stream, ready[0])
                    yield ready[1]
            if pending is not None:
                self._note(stream, pending[0])
                yield pending[1]

    def _resident(self, data: Resident, begin: State) -> Iterator[Any]:
        with self._reading(ResidentStream(self.source, data, begin), begin) as stream:
            yield from stream

    @contextlib.contextmanager
    def _reading(self, stream: S, begin: State) -> Iterator[S]:
        """Read from a stream, and close it however that ends."""
        self._stream = stream
        self._open.add(stream)
        # With a batch under way, the stream stands after it, and the consumer before.
        self._position = begin if self._is_ahead and isinstance(stream, Stream) else None
        try:
            with stream:
                yield stream
        finally:
            self._open.discard(stream)

    def _note(self, stream: Stream, position: State) -> None:
        if stream is self._stream:
            self._position = position

    @property
    def position(self) -> State:
        """Where the consumer stands."""
        if self._resumed is not None:
            return self._resumed
        if self._position is not None:
            return self._position
        if self._stream is not None:
            return self._stream.position
        return State(fingerprint(self.source.node), self._next_epoch)

    def _standing(self) -> str:
        return standing(self.position, num_batches(self.source.node))

    def state(self) -> StateDict:
        """Return where the consumer stands, as a small dict that JSON can hold."""
        return self.position.to_dict()

    def resume(self, state: StateDict) -> None:
        """Let the next iteration go on from a state of this dataset."""
        self._resumed = self._state_to_resume(state)

    def report(self) -> Report | None:
        """Return what the epoch read last has done; None before the first."""
        return None if self._stream is None else self._stream.report()

    def close(self) -> None:
        """End what is still being read, and processes that wait for more; let go of what is on the device."""
        for stream in list(self._open):
            stream.close()
        self.residency.close()
        self.source.close()
