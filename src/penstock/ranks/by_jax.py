"""jax.distributed: what `jax.distributed.initialize` was told, and the key-value store of its coordinator."""

import sys
from typing import Any

_PATIENCE_MS = 10


def place() -> tuple[int, int, int] | None:
    """Return rank, world and replicas; None if jax.distributed is not initialised.

    `jax.process_index()` is not asked: it would initialise the devices, and find one process if it is asked too early.
    """
    state = _initialised()
    return state and (state.process_id, state.num_processes, 1)


def store() -> "JaxStore | None":
    """Return the store of the coordinator; None if jax.distributed is not initialised, or has one process."""
    state = _initialised()
    return None if state is None or state.num_processes == 1 else JaxStore(state.client)


def _initialised() -> Any:
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return None if getattr(state, "client", None) is None else state


class JaxStore:
    """The store of JAX's coordinator."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, value: str) -> None:
        """Set the value of a key."""
        self._client.key_value_set(f"penstock/{key}", value, allow_overwrite=True)

    def look(self, key: str) -> str | None:
        """Return the value of a key; None if it has none yet."""
        # `key_value_try_get` says at once that there is none, but waits for ever for a coordinator that hangs.
        try:
            found = self._client.blocking_key_value_get(f"penstock/{key}", _PATIENCE_MS)
        except RuntimeError as error:
            if "DEADLINE_EXCEEDED" in str(error):
                return None
            raise
        return str(found)
