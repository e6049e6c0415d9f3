"""torch.distributed: the default process group, and the store that it was made with."""

import sys
from typing import Any


def place() -> tuple[int, int, int] | None:
    """Return rank, world and replicas of the default process group; None if there is none."""
    distributed = _initialised()
    return distributed and (distributed.get_rank(), distributed.get_world_size(), 1)


def store() -> "TorchStore | None":
    """Return the store of the default process group; None if there is none, or only one process."""
    distributed = _initialised()
    if distributed is None or distributed.get_world_size() == 1:
        return None
    shared = distributed.distributed_c10d._get_default_store()  # noqa: SLF001  # There is no public way.
    return TorchStore(distributed.PrefixStore("penstock/", shared))


def _initialised() -> Any:
    distributed = sys.modules.get("torch.distributed")
    # Builds without torch.distributed have no such function, and neither does a module that is still being imported.
    is_initialized = getattr(distributed, "is_initialized", None)
    return distributed if is_initialized is not None and is_initialized() else None


class TorchStore:
    """A store of torch. It is asked whether there is a key first: `get` would wait for it for half an hour."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared

    def put(self, key: str, value: str) -> None:
        """Set the value of a key."""
        self._shared.set(key, value)

    def look(self, key: str) -> str | None:
        """Return the value of a key; None if it has none yet."""
        return self._shared.get(key).decode() if self._shared.check([key]) else None
