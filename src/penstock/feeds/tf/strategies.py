"""What strategies of tf.distribute do to a dataset of ours: who cuts its batches, and into how many parts.

`experimental_distribute_dataset` cuts every batch into one part a replica, of all workers. That is right for a dataset
that every worker reads whole: auto-sharding then leaves each worker its own parts. The batches of a distributed dataset
have only the rows of their worker, so they may be cut for the replicas of that worker, and no further. TensorFlow has
no option for that; but it asks a dataset for its cardinality before it cuts, and how it cuts can be set then.
"""

import sys
from types import FrameType
from typing import Any

import tensorflow as tf

from penstock.core.share import Share

_INPUT = "tensorflow.python.distribute.input_lib"


def is_multi_worker(strategy: Any) -> bool:
    """Whether a strategy trains in several processes: MultiWorkerMirroredStrategy with a TF_CONFIG."""
    is_collective = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return is_collective and bool(strategy.extended._in_multi_worker_mode())  # noqa: SLF001  # as Keras asks


def name_of(strategy: Any) -> str:
    """Return what its users call a strategy."""
    name = type(strategy).__name__
    return "MultiWorkerMirroredStrategy" if name.startswith("CollectiveAllReduce") else name


def local_replicas(strategy: Any) -> int:
    """Return how many devices of this process take part."""
    return len(strategy.extended.worker_devices)


def check_share(share: Share, strategy: Any) -> None:
    """Raise if a dataset was distributed over other ranks or devices than a strategy has."""
    name, replicas = name_of(strategy), local_replicas(strategy)
    if is_multi_worker(strategy):
        context = strategy.extended._make_input_context()  # noqa: SLF001  # what distribute_datasets_from_function gives
        rank, world = context.input_pipeline_id, context.num_input_pipelines
        if (share.rank, share.world) != (rank, world):
            raise ValueError(
                f"the dataset was distributed as rank {share.rank} of {share.world}, and for {name} this process is "
                f"worker {rank} of {world}, so that rows would be lost or repeated; leave rank and world out: "
                "distribute() finds them."
            )
    is_whole = share.uneven != "pad" or share.static
    if share.replicas % replicas and (share.local_size % replicas or not is_whole):
        raise ValueError(
            f"the dataset was distributed for {share.replicas} device{'s' * (share.replicas > 1)} of this process, and "
            f"{name} has {replicas}, so that rows would be weighed wrongly; call distribute() in its scope, "
            "without rank and world:\n"
            "  with strategy.scope():\n"
            '      feed = ds.batch(60).distribute(uneven="pad").to_keras()'
        )


def keep_to_this_worker(share: Share) -> None:
    """Let the strategy that asks for the cardinality, if one does, cut batches only for replicas of this process."""
    asking = _asking()
    if asking is None:
        return
    check_share(share, asking._strategy)  # noqa: SLF001  # there is no public way, as the module says
    replicas = local_replicas(asking._strategy)  # noqa: SLF001
    asking._num_replicas_in_sync = replicas  # noqa: SLF001
    if asking._input_context is not None:  # noqa: SLF001
        asking._input_context = tf.distribute.InputContext(1, 0, replicas)  # noqa: SLF001


def _asking() -> Any:
    """Return the tf.distribute.DistributedDataset that is just being made of a dataset of ours; None if none is."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to a frame
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("penstock."):
        frame = frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == _INPUT:
        found = frame.f_locals.get("self")
        if hasattr(found, "_original_dataset") and hasattr(found, "_num_replicas_in_sync"):
            return found
        frame = frame.f_back
    return None
