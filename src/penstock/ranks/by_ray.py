"""Ray Train: the worker that this process is, and the key-value store of the Ray cluster."""

import sys
from typing import Any

_PATIENCE_SECONDS = 0.5


def place() -> tuple[int, int, int] | None:
    """Return rank, world and replicas of this worker; None outside a training function."""
    get_context = getattr(sys.modules.get("ray.train"), "get_context", None)
    if get_context is None:
        return None
    try:
        context = get_context()
        return context.get_world_rank(), context.get_world_size(), 1
    except RuntimeError:  # The driver, or another process that does not train.
        return None


def store() -> "RayStore | None":
    """Return the store of the cluster; None outside a training function, or if there is one worker."""
    found = place()
    if found is None or found[1] == 1:
        return None
    execution = sys.modules.get("ray.train.v2._internal.execution.context")
    kept = sys.modules.get("ray.experimental.internal_kv")
    if execution is None or kept is None:
        return None
    # Each group of workers that Ray starts has such an actor of its own: neither another run on the cluster nor this
    # one before it was restarted has the same.
    actor = execution.get_train_context().get_synchronization_actor()
    return RayStore(kept.internal_kv_get_gcs_client(), actor._actor_id.hex())  # noqa: SLF001  # There is no public way.


class RayStore:
    """The store of a Ray cluster, for one group of workers."""

    def __init__(self, client: Any, group: str) -> None:
        self._client = client
        self._group = group

    def put(self, key: str, value: str) -> None:
        """Set the value of a key."""
        self._client.internal_kv_put(
            self._key(key),
            value.encode(),
            True,  # noqa: FBT003  # To overwrite; it has no name.
            b"penstock",
            timeout=_PATIENCE_SECONDS,
        )

    def look(self, key: str) -> str | None:
        """Return the value of a key; None if it has none yet."""
        found = self._client.internal_kv_get(self._key(key), b"penstock", timeout=_PATIENCE_SECONDS)
        return None if found is None else found.decode()

    def _key(self, key: str) -> bytes:
        return f"{self._group}/{key}".encode()
