"""Ranks on PyTorch and JAX, where Keras adds nothing up over processes, as strategies of TensorFlow do.

In `fit`, PyTorch is helped to (`ranks_on_torch.py`), and JAX has keras.distribution. In `evaluate` and `predict` each
rank reads all rows, as one process would: it has the figures of all of them, in the order of the dataset.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import keras

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.share import Share
from penstock.errors import SpecMismatchError, warn_user
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


def even_batches(batches: Iterator[Any], share: Share) -> Iterator[Any]:
    """Yield batches for `fit` on JAX, which makes one array of those of all ranks, and compares nothing.

    Raises:
        SpecMismatchError: A batch does not have as many rows as those of the other ranks, or can't be spread.
    """
    has_short = share.uneven == "pad" and not share.static
    devices = _local_devices()
    for batch in batches:
        rows = {len(leaf) for leaf in flatten(batch)[0]}
        size = max(rows)
        if len(rows) > 1 or not (
            size == share.local_size or (has_short and size < share.local_size)
        ):
            raise SpecMismatchError(
                f"a batch has {' and '.join(map(str, sorted(rows)))} rows, and each of {share.world} ranks gives "
                f"{share.local_size}: functions on batches must keep the number of rows."
            )
        if size % devices:
            cure = "fill it up to a whole one: static=True in distribute"
            if size == share.local_size:
                step = devices * share.world
                above = -(-share.batch_size // step) * step
                cure = f"the global batch must divide by {step}: batch({above})"
            raise SpecMismatchError(
                f"a batch of this rank has {size} rows, and keras.distribution spreads them over {devices} devices "
                f"here; {cure}."
            )
        yield batch


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
