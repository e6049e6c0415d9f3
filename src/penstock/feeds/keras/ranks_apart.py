"""Ranks on PyTorch and JAX, where Keras adds nothing up over processes, as strategies of TensorFlow do.

In `fit`, PyTorch is helped to (`ranks_on_torch.py`), and JAX has keras.distribution. In `evaluate` and `predict` each
rank reads all rows, as one process would: it has the figures of all of them, in the order of the dataset.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras
import numpy as np

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.share import Share
from penstock.errors import SpecMismatchError, warn_user
from penstock.feeds.keras.outputs import change_batches
from penstock.outlets import Outlets
from penstock.stages.distribute import Distribute


def is_apart(node: Node) -> bool:
    """Whether this is one of several ranks that Keras does not know of."""
    is_rank = node.share is not None and node.share.world > 1
    return is_rank and keras.backend.backend() != "tensorflow"


def shared_in_fit(node: Node) -> Any:
    """Return what makes ranks train one model on PyTorch; None elsewhere."""
    if keras.backend.backend() != "torch" or not is_apart(node):
        return None
    from penstock.feeds.keras.ranks_on_torch import TorchRanks

    assert node.share is not None
    return TorchRanks(node.share)


def warn_of_training_apart(node: Node) -> None:
    """Warn if ranks are about to train on JAX, each a model of its own."""
    if keras.backend.backend() != "jax" or not is_apart(node):
        return
    if keras.distribution.distribution() is None:
        assert node.share is not None
        warn_user(
            f"the dataset is one of {node.share.world} ranks, and no keras.distribution is set: each trains a model of "
            "its own. Call keras.distribution.set_distribution(keras.distribution.DataParallel("
            "auto_shard_dataset=False)) before the model is made."
        )


def even_batches(batches: Iterator[Any], share: Share | None) -> Iterator[Any]:
    """Return batches for JAX, which makes one array of those of all ranks, and compares nothing.

    Raises:
        SpecMismatchError: A batch does not have as many rows as those of the other ranks, or can't be spread.
    """
    devices = _local_devices()
    is_one = share is None or share.world == 1
    return batches if is_one and devices == 1 else _checked(batches, share, devices)


def _checked(batches: Iterator[Any], share: Share | None, devices: int) -> Iterator[Any]:
    for batch in batches:
        rows = {len(leaf) for leaf in flatten(batch)[0]}
        if share is not None and share.world > 1:
            _check_rows(rows, share)
        size = max(rows)
        if size % devices:
            raise SpecMismatchError(
                f"a batch of this process has {size} rows, and keras.distribution spreads them over {devices} devices "
                f"here; {_cure(size, devices, share)}."
            )
        yield batch


def _check_rows(rows: set[int], share: Share) -> None:
    has_short = share.uneven == "pad" and not share.static
    size = max(rows)
    if len(rows) > 1 or not (size == share.local_size or (has_short and size < share.local_size)):
        raise SpecMismatchError(
            f"a batch has {' and '.join(map(str, sorted(rows)))} rows, and each of {share.world} ranks gives "
            f"{share.local_size}: functions on batches must keep the number of rows."
        )


def _cure(size: int, devices: int, share: Share | None) -> str:
    if share is None or share.world == 1:
        # All rows are read here, also if this is one of several ranks that evaluate.
        return (
            "batches must divide by that, in evaluate and predict, too, or be left out: by drop_remainder=True in "
            'batch, or uneven="drop" in distribute'
        )
    if size < share.local_size:
        return "fill it up to a whole one: static=True in distribute"
    step = devices * share.world
    above = -(-share.batch_size // step) * step
    return f"the global batch must divide by {step}: batch({above})"


def take_own_outputs(reader: Any) -> None:
    """Let `predict` on JAX give the outputs of this process' rows, where arrays are those of several processes.

    Keras (3.15) fails there: it asks for the rows of all, and those of others are not here.
    """
    import jax

    if jax.process_count() == 1 or reader is None or reader.role.call != "predict":
        return
    if reader.owner.steps_per_execution > 1:
        raise ValueError(
            "predict can't run several steps at once in several processes of JAX, got steps_per_execution="
            f"{reader.owner.steps_per_execution}; leave it out of compile()."
        )
    reader.on_outputs = lambda outputs: change_batches(outputs, _own_rows)


def _own_rows(batch: Any) -> Any:
    """Return the rows of a global array that this process gave: its devices have them, in their order."""
    if not batch.ndim or batch.is_fully_addressable:
        return batch
    if batch.is_fully_replicated:
        import jax

        size = len(batch) // jax.process_count()
        start = size * jax.process_index()
        return np.asarray(batch.addressable_data(0))[start : start + size]
    parts = {shard.index[0].start or 0: shard.data for shard in batch.addressable_shards}
    return np.concatenate([np.asarray(parts[start]) for start in sorted(parts)])


def _local_devices() -> int:
    """Return how many devices of this process share its rows."""
    distribution = keras.distribution.distribution()
    if not isinstance(distribution, keras.distribution.DataParallel):
        return 1
    import jax

    here = {f"{device.platform}:{device.id}" for device in jax.local_devices()}
    return max(1, len(here & set(distribution.device_mesh.devices.ravel().tolist())))


def all_rows(source: Outlets) -> Outlets:
    """Return the dataset itself, or the one that this is a rank's part of, with what follows `distribute`.

    It has the batches that all ranks have together: one that `distribute` leaves out is left out here, too.
    """
    if source.node.share is None:
        return source
    return Outlets(_whole(source.node), source.options)


def _whole(node: Node) -> Node:
    stage = getattr(node, "stage", None)
    if node.declared is not None and isinstance(stage, Distribute):
        stage = replace(stage, rank=0, world=1, replicas=1, static=False, is_found=False)
        return stage.build(node.declared)
    return node.rebuilt([_whole(one) for one in node.inputs])
