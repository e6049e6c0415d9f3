"""Keras on TensorFlow: when it must be given a true tf.data.Dataset, and which."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.adapters.keras_pass import Pass
from penstock.adapters.long_batches import can_join
from penstock.adapters.recipe import Recipe
from penstock.adapters.tf_blocks import dataset_of_batches, dataset_of_blocks
from penstock.spec import ArraySpec


def is_plain(epoch_iterator: Any, recipe: Recipe) -> bool:
    """Whether a plain iterable will do: one device, one step at a time. It is then the fastest."""
    if epoch_iterator is None:
        return False
    # Keras weighs the losses of several outputs by the size of a batch if that is the same for all
    # batches, and not at all otherwise. Only the spec of a tf.data.Dataset can tell it.
    has_parts = isinstance(recipe.spec, tuple) and len(recipe.spec) > 1
    if has_parts and not isinstance(recipe.spec[1], ArraySpec):
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
