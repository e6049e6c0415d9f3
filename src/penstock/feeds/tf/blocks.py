"""A true tf.data.Dataset over batches of ours: blocks of many batches go in, single batches come out.

A Python call a batch costs TensorFlow more than a training step of a small model; a call a block
costs nothing. So whole blocks are handed over, without a copy, and `rebatch` cuts them up in C++.
"""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.nest import flatten
from penstock.core.spec import ArraySpec
from penstock.feeds.tf.arrays import tensor_spec


def dataset_of_blocks(
    blocks: Callable[[], Iterator[Any]], spec: Any, batch_size: int, *, is_whole: bool, tf: Any
) -> Any:
    """Return the dataset of batches of long batches, which have any number of rows."""
    dataset = tf.data.Dataset.from_generator(
        blocks, output_signature=_signature(spec, tf, is_block=True)
    )
    return _quiet(dataset.rebatch(batch_size, drop_remainder=is_whole), tf)


def dataset_of_batches(batches: Callable[[], Iterator[Any]], spec: Any, *, tf: Any) -> Any:
    """Return the dataset of batches that are handed over one at a time."""
    dataset = tf.data.Dataset.from_generator(
        batches, output_signature=_signature(spec, tf, is_block=False)
    )
    return _quiet(dataset, tf)


def _signature(spec: Any, tf: Any, *, is_block: bool) -> Any:
    leaves, structure = flatten(spec)
    shapes = [(None, *leaf.shape[1:]) if is_block else leaf.shape for leaf in leaves]
    return structure.unflatten(
        [
            tensor_spec(ArraySpec(shape, leaf.dtype), tf)
            for shape, leaf in zip(shapes, leaves, strict=True)
        ]
    )


def _quiet(dataset: Any, tf: Any) -> Any:
    """Return it without what helps only pipelines written in tf.data, and costs at each epoch."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
