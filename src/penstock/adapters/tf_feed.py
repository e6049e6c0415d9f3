"""to_tf(): a true tf.data.Dataset, for every strategy and every tf.data method."""

import itertools
from typing import Any

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError("to_tf needs tensorflow: pip install 'penstock[tensorflow]'") from error

from penstock.adapters.keras_pass import Pass, State
from penstock.adapters.keras_tf import tf_dataset
from penstock.adapters.recipe import Recipe
from penstock.stream import Report


class _Epochs:
    """Opens the next epoch whenever TensorFlow iterates the dataset, and remembers the last."""

    def __init__(self, recipe: Recipe, state: State | None) -> None:
        self.recipe = recipe
        self.resume = state
        self.numbers = itertools.count(0 if state is None else int(state["epoch"]))
        self.last: Pass | None = None

    def open(self) -> Pass:
        state, self.resume = self.resume, None
        epoch = next(self.numbers)
        self.last = Pass(
            self.recipe, None, epoch=0 if state else epoch, state=state, is_recorded=True
        )
        return self.last

    def state(self, num_batches: int) -> State:
        """Return the state after so many batches of the iteration that was started last."""
        if self.last is None:
            raise ValueError("there is no state before the dataset was iterated.")
        return self.last.state_after(num_batches)

    def report(self) -> Report | None:
        return None if self.last is None else self.last.latest.report()

    def close(self) -> None:
        if self.last is not None:
            self.last.close()


def tf_feed(recipe: Recipe, *, device: str | None, state: State | None) -> Any:
    """Return a tf.data.Dataset; each iteration of it is the next epoch.

    It has three methods more: `state(n)`, after the first n batches of the iteration started last
    (TensorFlow reads ahead, so only its consumer knows n), `report()` and `close()`.
    """
    recipe.check_batched("to_tf()")
    epochs = _Epochs(recipe, state)
    dataset = tf_dataset(recipe, recipe.spec, epochs.open, tf)
    if recipe.num_batches is not None and state is None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(recipe.num_batches))
    elif recipe.node.is_endless:
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
    if device is not None:
        dataset = dataset.apply(tf.data.experimental.copy_to_device(device))
    dataset = dataset.prefetch(2)
    dataset.state, dataset.report, dataset.close = epochs.state, epochs.report, epochs.close
    return dataset
