"""What to_jax and to_torch return: iterate it, and each time it is the next epoch."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.adapters.mapping import Convert
from penstock.adapters.recipe import Recipe
from penstock.adapters.residency import Residency, ResidentEpoch, Traffic, source_arrays
from penstock.errors import StateError
from penstock.nest import flatten
from penstock.plan import Explanation
from penstock.rows import Index
from penstock.stream import Report, Stream

State = dict[str, Any]


class Device:
    """How a framework takes batches: as they are made, or gathered from what it has already."""

    def __init__(
        self,
        *,
        put: Convert,
        put_all: Callable[[Any], Any],
        gather: Callable[[Any, Index], Any],
        is_ahead: bool,
    ) -> None:
        self.put = put
        """A batch of NumPy arrays on the device."""
        self.put_all = put_all
        """A whole array on the device."""
        self.gather = gather
        """Rows of it."""
        self.is_ahead = is_ahead
        """Whether copies run beside the computation, so that one should be under way."""


class EpochFeed:
    """Batches of a framework, epoch after epoch, with a state that can be saved."""

    def __init__(self, recipe: Recipe, device: Device, residency: Residency) -> None:
        self._recipe = recipe
        self._device = device
        self._residency = residency
        self._arrays: list[Any] | None = None
        self._next_epoch = 0
        self._resume: State | None = None
        self._stream: Stream | None = None
        self._state: State | None = None
        self.traffic = Traffic()
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
        if self._residency.is_resident:
            return self._resident(epoch, state)
        return self._streamed(epoch, state)

    def _streamed(self, epoch: int, state: State | None) -> Iterator[Any]:
        put, traffic = self._device.put, self.traffic
        with self._recipe.stream(epoch=epoch, state=state, by_element=True) as stream:
            self._stream = stream
            pending: tuple[State, Any] | None = None
            for batch in stream:
                traffic.to_device_nbytes += sum(leaf.nbytes for leaf in flatten(batch)[0])
                if not self._device.is_ahead:
                    self._state = None
                    yield put(batch)
                    continue
                ready, pending = pending, (stream.state(), put(batch))
                if ready is not None:
                    self._state = ready[0]
                    yield ready[1]
            if pending is not None:
                self._state = pending[0]
                yield pending[1]

    def _resident(self, epoch: int, state: State | None) -> Iterator[Any]:
        if self._arrays is None:
            arrays = source_arrays(self._recipe)
            self._arrays = [self._device.put_all(array) for array in arrays]
            self.traffic.to_device_nbytes += sum(array.nbytes for array in arrays)
        # A stream that is never read from: it checks the state, and has the form of one.
        with self._recipe.stream(epoch=0 if state else epoch, state=state) as stream:
            template = stream.state()
        self._stream = stream
        reading = ResidentEpoch(
            self._recipe,
            self._arrays,
            self._device.gather,
            self.traffic,
            epoch=int(template["epoch"]),
            first=int(template["element"]),
        )
        for batch in reading:
            is_last = reading.number == len(self)
            done = 0 if is_last else reading.number
            self._state = {
                **template,
                "epoch": reading.epoch + is_last,
                "element": done,
                "cursor": done or None,
            }
            yield batch

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
        self._arrays = None
        if self._stream is not None:
            self._stream.close()
