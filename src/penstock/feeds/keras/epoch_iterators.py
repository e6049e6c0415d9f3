"""Who reads a feed: the epoch iterators of Keras, and the pass that each of them reads from now.

Keras does not tell an adapter when it is done. A pass is closed at the first of these: its last batch; the end of
the epoch, unless the pass goes on in the next one; the start of another pass by the same reader; an error in the
epoch (TensorFlow, JAX); and the end of `fit`, `evaluate` or `predict`, which is when its list of callbacks dies. On
PyTorch, after an error, that is when the error is let go of: its frames keep the list.
"""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from penstock.feeds.keras.calls import Role
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
        self._pass: Pass | None = None
        self._lives: weakref.WeakSet[Any] = weakref.WeakSet()
        self.live_as_long_as(owner)
        if type(owner).__name__ != "TorchEpochIterator":  # which enters it at each step
            # On TensorFlow and JAX an epoch is read inside of this. The reader refers to its owner weakly.
            owner.catch_stop_iteration = self._watch

    @contextlib.contextmanager
    def _watch(self) -> Iterator[None]:
        """Do what Keras does with the end of the data, and close the pass after an error."""
        owner = self.owner
        try:
            with type(owner).catch_stop_iteration(owner):
                del owner
                yield
        except BaseException:
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
        owner = self.owner
        if owner is not None:
            owner._epoch_iterator = None  # noqa: SLF001  # as its reset() does
            owner._current_iterator = None  # noqa: SLF001
