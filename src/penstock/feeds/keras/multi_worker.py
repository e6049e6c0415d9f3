"""Keras under MultiWorkerMirroredStrategy, where each process feeds its own rows.

Keras (3.15) fails there in two places. To build a model it reads a batch, and can't use the one that a strategy gives:
`WorkerDataset` gives it one of zeros, and nothing is read. The results of a step it averages over an axis that they do
not have: `mend_keras` replaces that function. Besides, `predict` puts the rows of one worker behind those of another:
`in_row_order` puts them back into the order of the dataset.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_trainer

from penstock.core.arrays import Array
from penstock.feeds.keras import calls as keras_calls
from penstock.feeds.keras.outputs import change_batches
from penstock.feeds.tf.strategies import is_multi_worker, local_replicas

LAST_BROKEN = (3, 16)
"""The last release of Keras that is known to need `mend_keras`; a test tells when one no longer does."""


class WorkerDataset(tf.distribute.DistributedDataset):  # type: ignore[misc]  # TensorFlow has no types
    """The batches of this worker, cut for its replicas."""

    def __init__(self, strategy: Any, dataset: Any, example: Callable[[], Any]) -> None:
        """Make it of a dataset of this worker's rows; `example` gives a batch to build a model with."""
        self._example = example
        replicas = local_replicas(strategy)
        # Each replica takes the next element.
        cut = dataset if replicas == 1 else dataset.flat_map(_into(replicas))
        self._spread = strategy.distribute_datasets_from_function(lambda _: cut)

    def __iter__(self) -> Iterator[Any]:
        if keras_calls.current_call() == "build":
            return iter([self._example()])
        batches: Iterator[Any] = iter(self._spread)
        return batches

    @property
    def element_spec(self) -> Any:
        """The nest of specs of a batch."""
        return self._spread.element_spec


def _into(parts: int) -> Callable[..., Any]:
    """Return a function that makes a dataset of so many parts of one batch; the last of them may be empty."""

    def cut(*batch: Any) -> Any:
        leaves = tf.nest.flatten(batch)
        size = -(-tf.shape(leaves[0])[0] // parts)

        def part(number: Any) -> Any:
            begin = tf.cast(number, tf.int32) * size
            rows = tf.nest.map_structure(lambda leaf: leaf[begin : begin + size], batch)
            return rows if len(batch) > 1 else rows[0]

        return tf.data.Dataset.range(parts).map(part)

    return cut


def mend_keras() -> None:
    """Let Keras average the results of a step over workers, if it is of a release that can't."""
    broken = keras_trainer.reduce_per_replica
    found = re.match(r"(\d+)\.(\d+)", keras.__version__)
    is_known = found is not None and (int(found[1]), int(found[2])) <= LAST_BROKEN
    if not is_known or broken.__module__ == __name__:
        return

    def reduce_per_replica(values: Any, strategy: Any, reduction: str) -> Any:
        if reduction == "concat" or not is_multi_worker(strategy):
            return broken(values, strategy, reduction)
        name = "SUM" if reduction == "sum" else "MEAN"
        return keras.tree.map_structure(lambda v: strategy.reduce(name, v, axis=None), values)

    keras_trainer.reduce_per_replica = reduce_per_replica


def in_row_order(outputs: Any, *, strategy: Any) -> None:
    """Put the rows of each batch of `predict` into the order of the dataset, in place."""
    replicas = local_replicas(strategy)
    world = strategy.num_replicas_in_sync // replicas

    def ordered(batch: Any) -> Any:
        if not batch.shape.rank:
            return batch
        order = np.argsort(rows_as_given(int(tf.shape(batch)[0]), world, replicas))
        return tf.gather(batch, order)

    change_batches(outputs, ordered)


def rows_as_given(num_rows: int, world: int, replicas: int) -> Array:
    """Return the rows of a batch in the order of Keras: of the first replica of each worker, then of the next."""
    parts: list[Array] = []
    for replica in range(replicas):
        for rank in range(world):
            rows = np.arange(rank, num_rows, world)
            size = -(-len(rows) // replicas)
            parts.append(rows[replica * size : (replica + 1) * size])
    return np.concatenate(parts)
