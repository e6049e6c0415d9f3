"""The public way into Keras, for a version that takes no adapter of ours: a PyDataset."""

from typing import Any

import keras

from penstock.core.nest import unflatten
from penstock.core.rows import Rows, plain_context
from penstock.feeds.keras.batches import check_parts, preparation
from penstock.feeds.on_device.choice import Residency
from penstock.feeds.recipe import Recipe


class PyDatasetFeed(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Batches by number. Keras asks for them in any order, and for some twice.

    It reads a batch when it is asked for one, so it is slower than the adapter, needs rows that can be
    had by number, and has no checkpoint.
    """

    residency = Residency("this version of Keras asks for batches in any order")

    def __init__(self, recipe: Recipe, *, class_weight: dict[int, float] | None = None) -> None:
        super().__init__(workers=1)
        recipe.check_batched("to_keras()")
        check_parts(recipe.spec)
        if not isinstance(recipe.node, Rows) or recipe.node.is_endless:
            raise TypeError(
                f"Keras {keras.__version__} takes only data whose batches can be had by number, and "
                f"{recipe.node.describe()} can't; install keras>=3.7, or a newer penstock."
            )
        self._node = recipe.node
        self._prepare = preparation(recipe, class_weight, keras.backend.floatx())
        self._epoch = -1

    @property
    def num_batches(self) -> int:
        """How many batches an epoch has."""
        return self._node.num_rows

    def __len__(self) -> int:
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
