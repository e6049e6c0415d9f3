"""The public way into Keras, for a version that takes no adapter of ours: a PyDataset."""

from typing import Any

import keras

from penstock.core.fingerprint import fingerprint
from penstock.core.nest import unflatten
from penstock.core.rows import Rows, plain_context
from penstock.core.state import State, StateDict
from penstock.errors import StateError
from penstock.feeds.base import Feed
from penstock.feeds.facts import check_batched
from penstock.feeds.keras.backend_dtypes import check_backend_dtypes
from penstock.feeds.keras.preparing import check_parts, preparation
from penstock.feeds.on_device.choice import Residency
from penstock.outlets import Outlets


class PyDatasetFeed(Feed, keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches with random access. Keras asks for them in any order, and for some twice.

    It reads a batch when it is asked for one, so it is slower than the adapter, needs random access, and
    has neither checkpoint nor tensorboard.
    """

    def __init__(self, source: Outlets, *, class_weight: dict[int, float] | None = None) -> None:
        super().__init__(workers=1)
        check_batched(source.node, "to_keras()")
        check_parts(source.node)
        check_backend_dtypes(source.node)
        if not isinstance(source.node, Rows) or source.node.is_endless:
            raise TypeError(
                f"Keras {keras.__version__} takes only data with random access to its batches, and "
                f"{source.node.describe()} has none; install keras>=3.7, or a newer penstock."
            )
        self.source = source
        self.residency = Residency("this version of Keras asks for batches in any order")
        self._node = source.node
        self._prepare = preparation(source.node, class_weight, keras.backend.floatx())
        self._epoch = -1

    @property
    def num_batches(self) -> int:
        """How many batches an epoch has."""
        return self._node.num_rows

    def __getitem__(self, index: int) -> Any:
        context = plain_context(max(0, self._epoch))
        block = context.block(self._node, 1)
        self._node.read(slice(index, index + 1), block, context)
        batch = unflatten(self._node.structure, block.finish().row(0))
        return batch if self._prepare is None else self._prepare(batch)

    def on_epoch_end(self) -> None:
        """Go on to the next epoch; Keras calls it once an epoch, and once before the first."""
        self._epoch += 1

    def resume(self, state: StateDict) -> None:
        """Let the next `fit` begin with the epoch of a state; it must be at the start of one."""
        found = self._state_to_resume(state)
        if found.element:
            raise StateError(
                f"Keras {keras.__version__} can only go on between two epochs, and this state is after "
                f"batch {found.element} of epoch {found.epoch}; install keras>=3.7, or a newer penstock."
            )
        self._epoch = found.epoch - 1

    def skip(self, count: int) -> None:
        """Go past the next `count` batches, which must be those of whole epochs: this Keras can't begin elsewhere."""
        position = State(fingerprint(self._node), max(0, self._epoch + 1))
        self.resume(self._past(position, count).to_dict())

    def _latest(self) -> None:
        """Return None, so that there is no report: batches are read one by one, outside any stream."""

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _standing(self) -> str:
        return f"epoch {max(0, self._epoch)}"
