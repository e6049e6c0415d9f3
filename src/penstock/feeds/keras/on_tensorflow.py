"""Keras on TensorFlow: when it must be given a true tf.data.Dataset, and what its strategies can't do."""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras

from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.feeds.keras.calls import Role
from penstock.feeds.keras.epoch_iterators import Reader


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


def strategy_of(epoch_iterator: Any) -> Any:
    """Return the strategy of tf.distribute that an epoch iterator of Keras spreads batches with; None if none."""
    strategy = getattr(epoch_iterator, "_distribute_strategy", None)
    is_default = type(strategy).__name__ == "_DefaultDistributionStrategy"
    return None if is_default else strategy


def is_on_one_device(epoch_iterator: Any) -> bool:
    """Whether there is no strategy that would cut batches up."""
    return epoch_iterator is not None and strategy_of(epoch_iterator) is None


def check_strategy(epoch_iterator: Any, role: Role | None, node: Node) -> None:
    """Raise, before anything is read, if the strategy can't be fed with this dataset."""
    from penstock.feeds.tf.strategies import check_share, is_multi_worker, name_of

    strategy = strategy_of(epoch_iterator)
    if strategy is None:
        return
    name = name_of(strategy)
    # In `predict` workers would mix up the rows of several steps.
    is_refused = is_multi_worker(strategy) or role is None or role.call == "fit"
    if epoch_iterator.steps_per_execution > 1 and is_refused:
        raise ValueError(
            f"Keras can't run several steps at once under {name}, got steps_per_execution="
            f"{epoch_iterator.steps_per_execution}; leave it out of compile()."
        )
    if node.share is not None:
        check_share(node.share, strategy)
        if role is None or role.call == "fit":
            _check_gradients(strategy.num_replicas_in_sync)
    elif is_multi_worker(strategy):
        raise ValueError(
            f"under {name} every worker would be given all rows; say how they are shared:\n"
            "  wrong: ds.batch(60).to_keras()\n"
            '  right: ds.batch(60).distribute(uneven="pad").to_keras()'
        )


def _check_gradients(replicas: int) -> None:
    """Raise if this Keras adds up the gradients of several replicas, and takes no mean of them."""
    from keras.src.losses import loss

    if replicas > 1 and not hasattr(loss, "scale_loss_for_distribution"):
        raise ValueError(
            f"Keras {keras.__version__} would take steps {replicas} times as long as on one device: it adds up the "
            "gradients of replicas where their mean is due. Install keras>=3.8."
        )


def for_strategy(
    dataset: Any, epoch_iterator: Any, reader: Reader | None, example: Callable[[], Any]
) -> Any:
    """Return a tf.data.Dataset as the strategy of Keras, if there is one, takes it."""
    from penstock.feeds.tf.strategies import is_multi_worker

    strategy = strategy_of(epoch_iterator)
    if not is_multi_worker(strategy):
        return dataset
    from penstock.feeds.keras.multi_worker import WorkerDataset, in_row_order, mend_keras

    mend_keras()
    if reader is not None and reader.role.call == "predict":
        reader.on_outputs = partial(in_row_order, strategy=strategy)
    return WorkerDataset(strategy, dataset, example)
