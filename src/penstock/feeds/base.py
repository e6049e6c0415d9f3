"""What to_jax and to_torch return: iterate it, and each time it is the next epoch."""

from collections.abc import Iterator
from typing import Any

from penstock.engine.plan import Explanation
from penstock.engine.stream import Report, Stream
from penstock.errors import StateError
from penstock.feeds.leafwise import Convert
from penstock.feeds.on_device.choice import Residency
from penstock.feeds.on_device.tables import Resident, ResidentStream
from penstock.feeds.on_device.traffic import Traffic, counting
from penstock.feeds.recipe import Recipe

State = dict[str, Any]


class EpochFeed:
    """Batches of a framework, epoch after epoch, with a state that can be saved."""

    def __init__(
        self,
        recipe: Recipe,
        put: Convert,
        residency: Residency,
        traffic: Traffic,
        *,
        is_ahead: bool,
    ) -> None:
        """Make it of what puts a batch on the device; `is_ahead` if that runs beside the computation."""
        self._recipe = recipe
        self._put = put
        self._residency = residency
        self._is_ahead = is_ahead
        self._next_epoch = 0
        self._resume: State | None = None
        self._stream: Stream | ResidentStream | None = None
        self._state: State | None = None
        self.traffic = traffic
        """Bytes copied to the device so far."""

    def __len__(self) -> int:
        count = self._recipe.num_batches
        if count is None:
            raise TypeError("the number of batches is unknown or infinite.")
        return count

    def __iter__(self) -> Iterator[Any]:
        state, self._resume = self._resume, None
        epoch = self._next_epoch if state is None else int(state["epoch"])
        self._next_epoch = epoch + 1
        if self._residency.data is not None:
            return self._resident(self._residency.data, epoch, state)
        return self._streamed(epoch, state)

    def _streamed(self, epoch: int, state: State | None) -> Iterator[Any]:
        put, count = self._put, counting(self.traffic, self._recipe.node.structure)
        with self._recipe.stream(epoch=epoch, state=state, by_element=True) as stream:
            self._stream = stream
            pending: tuple[State, Any] | None = None
            for batch in stream:
                if not self._is_ahead:
                    self._state = None
                    yield put(count(batch))
                    continue
                ready, pending = pending, (stream.state(), put(count(batch)))
                if ready is not None:
                    self._state = ready[0]
                    yield ready[1]
            if pending is not None:
                self._state = pending[0]
                yield pending[1]

    def _resident(self, data: Resident, epoch: int, state: State | None) -> Iterator[Any]:
        self._state = None
        first = 0 if state else epoch
        with ResidentStream(self._recipe, data, epoch=first, state=state) as stream:
            self._stream = stream
            yield from stream

    def state(self) -> State:
        """Return where the consumer stands, as a small dict that JSON can hold."""
        if self._state is not None:
            return self._state
        if self._stream is not None:
            return self._stream.state()
        with self._recipe.stream(epoch=self._next_epoch) as stream:
            return stream.state()

    def resume(self, state: State) -> None:
        """Let the next iteration go on from a state."""
        if not {"epoch", "cursor"} <= set(state):
            raise StateError(f"state must be a dict made by state(), got {state!r:.80}.")
        self._resume = state

    def report(self) -> Report | None:
        """Return what the epoch read last has done; None before the first."""
        return None if self._stream is None else self._stream.report()

    def explain(self) -> Explanation:
        """Return what reading will do, and where the data will be."""
        return self._residency.noted(self._recipe.explain())

    def close(self) -> None:
        """End what is still being read, and let go of what is on the device."""
        if self._stream is not None:
            self._stream.close()
        self._residency.close()
