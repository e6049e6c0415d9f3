"""Keras on TensorFlow: when it must be given a true tf.data.Dataset, and which."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.adapters.keras_pass import Pass
from penstock.adapters.long_batches import can_join
from penstock.adapters.recipe import Recipe
from penstock.adapters.tf_blocks import dataset_of_batches, dataset_of_blocks


def is_plain(epoch_iterator: Any) -> bool:
    """Whether a plain iterable will do: one device, one step at a time. It is then the fastest."""
    if epoch_iterator is None:
        return False
    strategy = getattr(epoch_iterator, "_distribute_strategy", None)
    is_default = strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy"
    return is_default and epoch_iterator.steps_per_execution == 1


def tf_dataset(recipe: Recipe, spec: Any, open_pass: Callable[[], Pass], tf: Any) -> Any:
    """Return a tf.data.Dataset, each of whose iterators is a pass once it is read from."""

    def blocks() -> Iterator[Any]:
        yield from open_pass().blocks()

    def batches() -> Iterator[Any]:
        yield from open_pass()

    if not can_join(recipe):
        return dataset_of_batches(batches, spec, tf=tf)
    assert recipe.batch_size is not None
    is_whole = all(field.spec.is_fixed for field in recipe.node.fields)
    return dataset_of_blocks(blocks, spec, recipe.batch_size, is_whole=is_whole, tf=tf)
