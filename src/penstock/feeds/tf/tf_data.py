"""A true tf.data.Dataset over batches of ours: blocks of many batches go in, single batches come out.

A Python call a batch costs TensorFlow more than a training step of a small model; a call a block
costs nothing. So whole blocks are handed over, without a copy, and `rebatch` cuts them up in C++.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.feeds.facts import batch_size
from penstock.feeds.leafwise import Convert
from penstock.feeds.long_batches import can_join
from penstock.feeds.on_device.resident import INDEX_DTYPE, Resident
from penstock.feeds.passes import Epoch, Pass
from penstock.feeds.tf.arrays import tensor_spec


def streamed_dataset(
    node: Node, spec: Any, open_pass: Callable[[], Pass], tf: Any, *, is_continued: bool = False
) -> Any:
    """Return a tf.data.Dataset; each of its iterators opens a pass when it is first read from.

    `is_continued` says that a pass goes on from epoch to epoch.
    """

    def blocks() -> Iterator[Any]:
        yield from open_pass().blocks()

    def batches() -> Iterator[Any]:
        yield from open_pass()

    if not can_join(node):
        return _quiet(_generated(batches, spec, tf), tf)
    size = batch_size(node)
    assert size is not None
    is_whole = all(field.spec.is_fixed for field in node.fields)
    if is_whole or not is_continued:
        long = _generated(blocks, _long(spec), tf)
        return _quiet(long.rebatch(size, drop_remainder=is_whole), tf)
    # Each epoch is cut up by itself: the batch that is cut short at its end is not filled up from the next one.
    epochs = _Epochs(open_pass)
    numbers = _generated(epochs.numbers, ArraySpec((), np.int64), tf)
    return _quiet(
        numbers.flat_map(
            lambda number: _generated(epochs.blocks, _long(spec), tf, number).rebatch(size)
        ),
        tf,
    )


class _Epochs:
    """The epochs of passes, by number: tf.data takes them apart one after the other, and can only name numbers."""

    def __init__(self, open_pass: Callable[[], Pass]) -> None:
        self._open_pass = open_pass
        self._opened = itertools.count()
        self._current: dict[int, tuple[Pass, Epoch]] = {}

    def numbers(self) -> Iterator[int]:
        """Yield the number of a new pass, once for each of its epochs."""
        number, reading = next(self._opened), self._open_pass()
        try:
            for stream in reading.epochs():
                self._current[number] = (reading, stream)
                yield number
        finally:
            self._current.pop(number, None)

    def blocks(self, number: Any) -> Iterator[Any]:
        """Yield the long batches of the epoch that a pass is in."""
        reading, stream = self._current[int(number)]
        return reading.blocks_of(stream)


def resident_dataset(
    node: Node,
    data: Resident,
    open_pass: Callable[[], Pass],
    tf: Any,
    *,
    device: str | None = None,
    finish: Convert | None = None,
    is_continued: bool = False,
) -> Any:
    """Return a tf.data.Dataset that gathers batches on the device, by row numbers from a pass."""

    def gather(rows: Any) -> Any:
        batch = data.gather(rows)
        return batch if finish is None else finish(batch)

    spec = ArraySpec((None,), INDEX_DTYPE)
    numbers = streamed_dataset(node, spec, open_pass, tf, is_continued=is_continued)
    if device is None:
        return numbers.map(gather)
    # Unverified on hardware: what follows a copy to a device is run by tf.data on that device, too.
    with tf.device(device):
        return numbers.apply(tf.data.experimental.copy_to_device(device)).map(gather)


def _generated(generator: Callable[..., Iterator[Any]], spec: Any, tf: Any, *arguments: Any) -> Any:
    """Return the dataset of what a generator yields."""
    leaves, structure = flatten(spec)
    signature = structure.unflatten([tensor_spec(leaf, tf) for leaf in leaves])
    return tf.data.Dataset.from_generator(
        generator, args=arguments or None, output_signature=signature
    )


def _long(spec: Any) -> Any:
    """Return the spec of many batches as one."""
    leaves, structure = flatten(spec)
    return structure.unflatten([ArraySpec((None, *leaf.shape[1:]), leaf.dtype) for leaf in leaves])


def _quiet(dataset: Any, tf: Any) -> Any:
    """Return it without optimizations that help only pipelines written in tf.data, and cost time each epoch."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)
