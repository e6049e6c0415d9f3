"""to_tf(): a true tf.data.Dataset, for every strategy and every tf.data method."""

import itertools
from typing import Any

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError("to_tf needs tensorflow: pip install 'penstock[tensorflow]'") from error

from penstock.engine.plan import Explanation
from penstock.engine.stream import Report
from penstock.feeds.keras.tensorflow import resident_dataset, tf_dataset
from penstock.feeds.on_device.choice import choose
from penstock.feeds.on_device.tables import State
from penstock.feeds.on_device.traffic import Traffic, counting
from penstock.feeds.passes import Pass
from penstock.feeds.recipe import Recipe
from penstock.feeds.tf.device import TfDevice


class _Epochs:
    """Opens the next epoch whenever TensorFlow iterates the dataset, and remembers the last."""

    def __init__(
        self, recipe: Recipe, state: State | None, device: TfDevice, device_memory: int | str | None
    ) -> None:
        self.recipe = recipe
        self.resume = state
        self.numbers = itertools.count(0 if state is None else int(state["epoch"]))
        self.last: Pass | None = None
        self.traffic = Traffic()
        self.residency = choose(recipe, device, device.put, self.traffic, device_memory)

    def open(self) -> Pass:
        state, self.resume = self.resume, None
        epoch = next(self.numbers)
        data = self.residency.data
        count = counting(self.traffic, self.recipe.node.structure) if data is None else None
        self.last = Pass(
            self.recipe,
            count,
            epoch=0 if state else epoch,
            state=state,
            is_recorded=True,
            data=data,
            by_number=True,
        )
        return self.last

    def state(self, num_batches: int) -> State:
        """Return the state after so many batches of the iteration that was started last."""
        if self.last is None:
            raise ValueError("there is no state before the dataset was iterated.")
        return self.last.state_after(num_batches)

    def report(self) -> Report | None:
        return None if self.last is None else self.last.latest.report()

    def explain(self) -> Explanation:
        return self.residency.noted(self.recipe.explain())

    def close(self) -> None:
        if self.last is not None:
            self.last.close()
        self.residency.close()


def tf_feed(
    recipe: Recipe, *, device: str | None, state: State | None, device_memory: int | str | None
) -> Any:
    """Return a tf.data.Dataset; each iteration of it is the next epoch.

    It has a few methods more: `state(n)`, after the first n batches of the iteration started last
    (TensorFlow reads ahead, so only its consumer knows n), `report()`, `explain()` and `close()`;
    and the counters of `traffic`.
    """
    recipe.check_batched("to_tf()")
    target = TfDevice(device)
    epochs = _Epochs(recipe, state, target, device_memory)
    data = epochs.residency.data
    if data is None:
        dataset = tf_dataset(recipe, recipe.spec, epochs.open, tf)
    else:
        where = None if target.is_cpu else target.name
        dataset = resident_dataset(recipe, data, epochs.open, tf, device=where)
    if recipe.num_batches is not None and state is None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(recipe.num_batches))
    elif recipe.node.is_endless:
        dataset = dataset.apply(
            tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        )
    if device is not None and data is None:
        dataset = dataset.apply(tf.data.experimental.copy_to_device(device))
    dataset = dataset.prefetch(2)
    dataset.state, dataset.report, dataset.close = epochs.state, epochs.report, epochs.close
    dataset.explain, dataset.traffic = epochs.explain, epochs.traffic
    return dataset
