"""A true tf.data.Dataset over batches of ours: blocks of many batches go in, single batches come out.

A Python call a batch costs TensorFlow more than a training step of a small model; a call a block
costs nothing. So whole blocks are handed over, without a copy, and `rebatch` cuts them up in C++.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.errors import StreamClosedError
from penstock.feeds.facts import batch_size
from penstock.feeds.leafwise import Convert
from penstock.feeds.long_batches import can_join
from penstock.feeds.on_device.resident import INDEX_DTYPE, Resident
from penstock.feeds.passes import Pass
from penstock.feeds.tf.arrays import tensor_spec


def streamed_dataset(
    node: Node,
    spec: Any,
    open_pass: Callable[[], Pass],
    tf: Any,
    *,
    is_continued: bool = False,
    is_shared: bool = False,
    is_cut: bool = False,
    blanks: Callable[[], Iterator[Any] | None] = lambda: None,
) -> Any:
    """Return a tf.data.Dataset; each of its iterators opens a pass when it is first read from.

    `is_continued` says that a pass goes on from epoch to epoch; `is_shared` that several workers, each of which has all
    rows, are to share them; and `is_cut` that the last batches of a pass may have fewer rows than those of the node.
    What `blanks` returns, unless it is None, are batches that an iterator gives instead of a pass.
    """
    finish = partial(_quiet, tf=tf, is_shared=is_shared)

    def elements(read: Callable[[Pass], Iterator[Any]]) -> Iterator[Any]:
        instead = blanks()
        if instead is not None:
            yield from instead  # A batch is a long batch of one.
            return
        reading = open_pass()
        yield from _until_closed(reading, read(reading))

    blocks, batches = partial(elements, Pass.blocks), partial(elements, iter)

    if not can_join(node):
        return finish(_generated(batches, spec, tf))
    size = batch_size(node)
    assert size is not None
    is_whole = not is_cut and all(field.spec.is_fixed for field in node.fields)

    def cut(*long: Any) -> Any:
        whole = long if type(spec) is tuple else long[0]  # tf.data unpacks tuples.
        return tf.data.Dataset.from_tensors(whole).rebatch(size)

    long = _generated(blocks, _long(spec), tf)
    if is_continued and not is_whole:
        # Each block by itself, which is a little slower: else a batch that is cut short would be filled up from the
        # next epoch.
        return finish(long.flat_map(cut))
    return finish(long.rebatch(size, drop_remainder=is_whole))


def _until_closed(reading: Pass, elements: Iterator[Any]) -> Iterator[Any]:
    """Yield elements; end where the pass was closed: TensorFlow reads ahead, on threads that go on for a while."""
    try:
        yield from elements
    except StreamClosedError:
        if not reading.is_closed:
            raise


def resident_dataset(
    node: Node,
    data: Resident,
    open_pass: Callable[[], Pass],
    tf: Any,
    *,
    device: str | None = None,
    finish: Convert | None = None,
    is_continued: bool = False,
    is_shared: bool = False,
) -> Any:
    """Return a tf.data.Dataset that gathers batches on the device, by row numbers from a pass."""

    def gather(rows: Any) -> Any:
        batch = data.gather(rows)
        return batch if finish is None else finish(batch)

    spec = ArraySpec((None,), INDEX_DTYPE)
    numbers = streamed_dataset(
        node, spec, open_pass, tf, is_continued=is_continued, is_shared=is_shared
    )
    if device is None:
        return numbers.map(gather)
    # Unverified on hardware: what follows a copy to a device is run by tf.data on that device, too.
    with tf.device(device):
        return numbers.apply(tf.data.experimental.copy_to_device(device)).map(gather)


def _generated(generator: Callable[[], Iterator[Any]], spec: Any, tf: Any) -> Any:
    """Return the dataset of what a generator yields."""
    leaves, structure = flatten(spec)
    signature = structure.unflatten([tensor_spec(leaf, tf) for leaf in leaves])
    return tf.data.Dataset.from_generator(generator, output_signature=signature)


def _long(spec: Any) -> Any:
    """Return the spec of many batches as one."""
    leaves, structure = flatten(spec)
    return structure.unflatten([ArraySpec((None, *leaf.shape[1:]), leaf.dtype) for leaf in leaves])


def _quiet(dataset: Any, *, tf: Any, is_shared: bool) -> Any:
    """Return it without optimizations that help only pipelines written in tf.data, such as more prefetching."""
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    # One that does nothing here: without any, TensorFlow (2.21) frees the dataset while an iterator of a strategy reads
    # it, and crashes when that iterator is let go of half-way. (It has none for floats of 8 bits.)
    kinds = {leaf.dtype.name for leaf in tf.nest.flatten(dataset.element_spec)}
    if not any(name.startswith("float8") for name in kinds):
        options.experimental_optimization.noop_elimination = True
    # With DATA each of several workers keeps its share of every batch, where OFF would leave all rows to all of them.
    policies = tf.data.experimental.AutoShardPolicy
    policy = policies.DATA if is_shared else policies.OFF
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)
