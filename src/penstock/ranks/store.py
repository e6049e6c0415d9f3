"""The key-value store that all ranks of a training share: that of the engine which runs it."""

from contextlib import suppress
from typing import Protocol

from penstock.ranks import by_jax, by_ray, by_tensorflow, by_torch


class Store(Protocol):
    """Texts by key that every rank can see. Either method may raise anything, if the store is gone."""

    def put(self, key: str, value: str) -> None:
        """Set the value of a key, whether it has one or not."""
        ...

    def look(self, key: str) -> str | None:
        """Return the value of a key; None if it has none yet. It does not wait for one."""
        ...


def find_store() -> Store | None:
    """Return the store of an engine that is initialised for several processes; None if there is none."""
    for store in (by_torch.store, by_jax.store, by_tensorflow.store, by_ray.store):
        found: Store | None = None
        # Some are parts of engines that are not public, and may move. Training then goes on without a comparison.
        with suppress(Exception):
            found = store()
        if found is not None:
            return found
    return None
