"""A true tf.data.Dataset over batches of ours: blocks of many batches go in, single batches come out.

A Python call a batch costs TensorFlow more than a training step of a small model; a call a block
costs nothing. So whole blocks are handed over, without a copy, and `rebatch` cuts them up in C++.
"""

from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.feeds.facts import batch_size
from penstock.feeds.leafwise import Convert
from penstock.feeds.long_batches import can_join
from penstock.feeds.on_device.resident import INDEX_DTYPE, Resident
from penstock.feeds.passes import Pass
from penstock.feeds.tf.arrays import tensor_spec


def streamed_dataset(node: Node, spec: Any, open_pass: Callable[[], Pass], tf: Any) -> Any:
    """Return a tf.data.Dataset; each of its iterators opens a pass when it is first read from."""

    def blocks() -> Iterator[Any]:
        yield from open_pass().blocks()

    def batches() -> Iterator[Any]:
        yield from open_pass()

    if not can_join(node):
        return _of_batches(batches, spec, tf=tf)
    size = batch_size(node)
    assert size is not None
    is_whole = all(field.spec.is_fixed for field in node.fields)
    return _of_blocks(blocks, spec, size, is_whole=is_whole, tf=tf)


def resident_dataset(
    node: Node,
    data: Resident,
    open_pass: Callable[[], Pass],
    tf: Any,
    *,
    device: str | None = None,
    finish: Convert | None = None,
) -> Any:
    """Return a tf.data.Dataset that gathers batches on the device, by row numbers from a pass."""

    def gather(rows: Any) -> Any:
        batch = data.gather(rows)
        return batch if finish is None else finish(batch)

    numbers = streamed_dataset(node, ArraySpec((None,), INDEX_DTYPE), open_pass, tf)
    if device is None:
        return numbers.map(gather)
    # Unverified on hardware: what follows a copy to a device is run by tf.data on that device, too.
    with tf.device(device):
        return numbers.apply(tf.data.experimental.copy_to_device(device)).map(gather)


def _of_blocks(
    blocks: Callable[[], Iterator[Any]], spec: Any, batch_size: int, *, is_whole: bool, tf: Any
) -> Any:
    """Return the dataset of batches that are cut from long batches, of any number of rows."""
    dataset = tf.data.Dataset.from_generator(
        blocks, output_signature=_signature(spec, tf, is_block=True)
    )
    return _quiet(dataset.rebatch(batch_size, drop_remainder=is_whole), tf)


def _of_batches(batches: Callable[[], Iterator[Any]], spec: Any, *, tf: Any) -> Any:
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
    """Return it without optimizations that help only pipelines written in tf.data, and cost time each epoch."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
