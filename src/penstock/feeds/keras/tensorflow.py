"""Keras on TensorFlow: when it must be given a true tf.data.Dataset, and which."""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.spec import ArraySpec
from penstock.feeds.leafwise import Convert
from penstock.feeds.long_batches import can_join
from penstock.feeds.on_device.tables import INDEX_DTYPE, Resident
from penstock.feeds.passes import Pass
from penstock.feeds.recipe import Recipe
from penstock.feeds.tf.blocks import dataset_of_batches, dataset_of_blocks


def is_plain(epoch_iterator: Any, recipe: Recipe) -> bool:
    """Whether a plain iterable will do: one device, one step at a time. It is then the fastest."""
    if epoch_iterator is None:
        return False
    # Keras weighs the losses of several outputs by the size of a batch if that is the same for all
    # batches, and not at all otherwise. Only the spec of a tf.data.Dataset can tell it.
    has_parts = isinstance(recipe.spec, tuple) and len(recipe.spec) > 1
    if has_parts and not isinstance(recipe.spec[1], ArraySpec):
        return False
    return is_on_one_device(epoch_iterator) and epoch_iterator.steps_per_execution == 1


def is_on_one_device(epoch_iterator: Any) -> bool:
    """Whether there is no strategy that would cut batches up."""
    if epoch_iterator is None:
        return False
    strategy = getattr(epoch_iterator, "_distribute_strategy", None)
    return strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy"


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


def resident_dataset(
    recipe: Recipe,
    data: Resident,
    open_pass: Callable[[], Pass],
    tf: Any,
    *,
    device: str | None = None,
    finish: Convert | None = None,
) -> Any:
    """Return a tf.data.Dataset that gathers batches of what is on the device, by numbers from a pass."""

    def gather(rows: Any) -> Any:
        batch = data.gather(rows)
        return batch if finish is None else finish(batch)

    numbers = tf_dataset(recipe, ArraySpec((None,), INDEX_DTYPE), open_pass, tf)
    if device is None:
        return numbers.map(gather)
    # Unverified on hardware: tf.data runs what follows a copy to a device there, too.
    with tf.device(device):
        return numbers.apply(tf.data.experimental.copy_to_device(device)).map(gather)
