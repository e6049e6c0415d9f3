"""Who reads a feed: the epoch iterators of Keras, and the pass that each of them reads from now.

Keras does not tell an adapter when it is done. A pass is closed at the first of these: its last batch; the end of
the epoch, unless the pass goes on in the next one; the start of another pass by the same reader; an error in the
epoch; and the end of `fit`, `evaluate` or `predict`, which is when its list of callbacks dies. After an error between
two epochs of a pass that goes on (`steps_per_epoch`) that is when the error is let go of: its frames keep the list.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from penstock.feeds.keras import calls as keras_calls
from penstock.feeds.keras.calls import Role
from penstock.feeds.keras.head_start import HeadStart
from penstock.feeds.passes import Pass


class Reader:
    """One epoch iterator of Keras, and the pass that it reads from."""

    def __init__(self, owner: Any, role: Role, before: Any) -> None:
        """Note a reader; `before` is where the feed stood when it was made."""
        self._owner = weakref.ref(owner)
        self.role = role
        self.before = before
        self.is_over = False
        """Whether the call of Keras that it belongs to has ended."""
        self.on_outputs: Callable[[Any], None] | None = None
        """Called with the outputs of `predict`, a nest of lists of batches, once it has all of them."""
        self.head_start: HeadStart | None = None
        """What the model is built beside; the epoch takes it, and closes it if it begins elsewhere."""
        self._pass: Pass | None = None
        self._lives: weakref.WeakSet[Any] = weakref.WeakSet()
        self.live_as_long_as(owner)
        if type(owner).__name__ == "TorchEpochIterator":
            kind: Any = type(owner)
            owner.__class__ = _with_steps(kind)
            owner.steps_of = self._steps
        else:
            # On TensorFlow and JAX an epoch is read inside of this, on PyTorch only a step. The reader refers to its
            # owner weakly.
            owner.catch_stop_iteration = self._watch

    @contextlib.contextmanager
    def _watch(self) -> Iterator[None]:
        """Do what Keras does with the end of the data, and close the pass after an error."""
        owner = self.owner
        try:
            with type(owner).catch_stop_iteration(owner):
                del owner
                yield
            if self.on_outputs is not None:
                self.on_outputs(keras_calls.outputs_of_predict())
        except BaseException:
            self.close()
            raise

    def _steps(self, owner: Any) -> Iterator[Any]:
        """Yield the steps of an epoch, and close the pass if the loop over them is left before the last one.

        Nothing but the loop refers to this generator: an error that leaves the loop ends it, before it reaches the
        caller of `fit`.
        """
        try:
            while (step := next(owner, None)) is not None:
                yield step
        except BaseException:
            # A callback may take back that training stops, and the pass is that of the next epoch, too.
            if not (self.role.is_continued and keras_calls.is_stopped()):
                self.close()
            raise

    @property
    def owner(self) -> Any:
        """The epoch iterator; None if it is gone."""
        return self._owner()

    def live_as_long_as(self, life: Any) -> None:
        """End this reader, at the latest, when `life` is gone."""
        if life is not None and life not in self._lives:
            self._lives.add(life)
            weakref.finalize(life, self.end)

    def reads(self, reading: Pass) -> None:
        """Note what it reads from now on; what it read from before is closed."""
        self.close()
        self._pass = reading

    def set_num_batches(self, count: int) -> None:
        """Tell Keras how many batches there are, now that it is known, so that it stops there and does not warn."""
        owner = self.owner
        if owner is not None:
            owner._num_batches = count  # noqa: SLF001  # Keras' own count

    def close(self) -> None:
        """Close the pass that it reads from, wherever that stands."""
        reading, self._pass = self._pass, None
        if reading is not None:
            reading.close()

    def end(self) -> None:
        """Close the pass, and let go of what the epoch iterator holds: it refers to itself, through its generator."""
        self.is_over = True
        self.close()
        if self.head_start is not None:
            self.head_start.close()
        owner = self.owner
        if owner is not None:
            owner._epoch_iterator = None  # noqa: SLF001  # as its reset() does
            owner._current_iterator = None  # noqa: SLF001


@cache
def _with_steps(kind: Any) -> Any:
    """Return a class of epoch iterators, derived from this one, that are looped over by way of `steps_of`."""

    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807  # as a class statement would have it
        kind.__iter__(self)
        steps: Iterator[Any] = self.steps_of(self)
        return steps

    return type(kind.__name__, (kind,), {"__iter__": __iter__, "__module__": kind.__module__})
