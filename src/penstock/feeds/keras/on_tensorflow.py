"""Keras on TensorFlow: when it must be given a true tf.data.Dataset."""

from typing import Any

from penstock.core.spec import ArraySpec


def is_plain(epoch_iterator: Any, spec: Any) -> bool:
    """Whether a plain iterable will do: one device, one step at a time. It is then the fastest."""
    if epoch_iterator is None:
        return False
    # Keras weighs the losses of several outputs by the size of a batch if that is the same for all
    # batches, and not at all otherwise. Only the spec of a tf.data.Dataset can tell Keras.
    has_parts = isinstance(spec, tuple) and len(spec) > 1
    if has_parts and not isinstance(spec[1], ArraySpec):
        return False
    return is_on_one_device(epoch_iterator) and epoch_iterator.steps_per_execution == 1


def is_on_one_device(epoch_iterator: Any) -> bool:
    """Whether there is no strategy that would cut batches up."""
    if epoch_iterator is None:
        return False
    strategy = getattr(epoch_iterator, "_distribute_strategy", None)
    return strategy is None or type(strategy).__name__ == "_DefaultDistributionStrategy"
