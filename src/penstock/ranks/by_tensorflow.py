"""TensorFlow: the strategy in scope, TF_CONFIG, and the key-value store of the coordination service."""

import inspect
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

_PATIENCE_MS = 10
_CURE = (
    'Set TF_CONFIG to {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}, '
    "or give the numbers: distribute(rank=..., world=...)."
)


def place() -> tuple[int, int, int] | None:
    """Return rank, world and local replicas under the strategy in scope; None if there is none."""
    distribute = getattr(sys.modules.get("tensorflow"), "distribute", None)
    if distribute is None or not distribute.has_strategy():
        return None
    strategy = distribute.get_strategy()
    if isinstance(strategy, distribute.ParameterServerStrategy):
        raise ValueError(  # noqa: TRY004  # No argument of a call is wrong.
            f"{type(strategy).__name__} has no ranks that share global batches: its workers train each on its own. "
            "Give the numbers of this process: distribute(rank=..., world=...)."
        )
    rank, world = 0, 1
    if isinstance(strategy, distribute.MultiWorkerMirroredStrategy):
        resolver = strategy.cluster_resolver
        cluster = resolver.cluster_spec().as_dict()
        if cluster:
            rank, world = _in_cluster(cluster, resolver.task_type, resolver.task_id)
    return rank, world, max(1, strategy.num_replicas_in_sync // world)


def configured_place() -> tuple[int, int, int] | None:
    """Return rank and world by the environment variable TF_CONFIG; None if it is not set, or names no cluster."""
    text = os.environ.get("TF_CONFIG", "")
    if not text.strip():
        return None
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError(f"TF_CONFIG must be JSON, got {_short(text)} ({error}). {_CURE}") from None
    cluster = config.get("cluster", {}) if isinstance(config, dict) else None
    if type(cluster) is not dict:
        raise ValueError(f"TF_CONFIG must have a cluster of jobs, got {_short(text)}. {_CURE}")
    if not cluster:
        return None
    task = config.get("task")
    kind, number = (task.get("type"), task.get("index")) if isinstance(task, dict) else (None, None)
    if not isinstance(kind, str) or not str(number).isdecimal():
        raise ValueError(
            f"TF_CONFIG must say which task of its cluster this process is, got task {task!r}. {_CURE}"
        )
    if not all(isinstance(tasks, list | dict) for tasks in cluster.values()):
        raise ValueError(f"TF_CONFIG must list the tasks of each job, got {cluster!r}. {_CURE}")
    return *_in_cluster(cluster, kind, int(str(number))), 1


def _in_cluster(cluster: Mapping[str, Any], kind: str | None, number: int) -> tuple[int, int]:
    """Return rank and world of a task: the chief is rank 0, workers come after it."""
    if "ps" in cluster or kind == "ps":
        raise ValueError(
            "a cluster with parameter servers has no ranks that share global batches: its workers train each on its "
            "own. Give the numbers of this process: distribute(rank=..., world=...)."
        )
    if kind == "evaluator":
        raise ValueError(
            f"this process is evaluator {number} of its cluster, which is no data rank: only chief and workers "
            "train. To read all rows in it: distribute(rank=0, world=1)."
        )
    counts = {job: len(cluster.get(job, ())) for job in ("chief", "worker")}
    if kind not in counts or not 0 <= number < counts[kind]:
        raise ValueError(
            f"this process is {kind} {number}, and its cluster has {counts['chief']} chief and "
            f"{counts['worker']} workers. {_CURE}"
        )
    return number + (counts["chief"] if kind == "worker" else 0), sum(counts.values())


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def store() -> "TensorFlowStore | None":
    """Return the store of the coordination service; None if no MultiWorkerMirroredStrategy started one.

    It is there for the whole process, in the scope of the strategy or not.
    """
    eager = sys.modules.get("tensorflow.python.eager.context")
    context: Any = None if eager is None else eager.context_safe()
    service = getattr(context, "coordination_service", None)
    if service is None or sum(job.num_tasks for job in service.coordinated_job_list) < 2:
        return None
    # In older versions, a look at a key without a value waits until it gets one.
    if "timeout_in_ms" not in inspect.signature(context.get_config_key_value).parameters:
        return None
    return TensorFlowStore(context, sys.modules["tensorflow"].errors)


class TensorFlowStore:
    """The store of TensorFlow's coordination service."""

    def __init__(self, context: Any, errors: Any) -> None:
        self._context = context
        self._errors = errors

    def put(self, key: str, value: str) -> None:
        """Set the value of a key."""
        try:
            self._context.set_config_key_value(f"penstock/{key}", value)
        except self._errors.AlreadyExistsError:
            self._context.delete_config_key_value(f"penstock/{key}")
            self._context.set_config_key_value(f"penstock/{key}", value)

    def look(self, key: str) -> str | None:
        """Return the value of a key; None if it has none yet."""
        try:
            found = self._context.get_config_key_value(f"penstock/{key}", _PATIENCE_MS)
        except (self._errors.DeadlineExceededError, self._errors.NotFoundError):
            return None
        return str(found)
