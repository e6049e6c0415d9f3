"""Tables of jax Arrays: written in place by donating the old array, gathered in one call."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from penstock.feeds.alignment import aligned
from penstock.feeds.on_device.device import Device


class JaxDevice(Device):
    """The first device of a sharding, or JAX's own choice."""

    def __init__(self, sharding: Any = None) -> None:
        self.sharding = sharding
        self.devices = _devices(sharding)
        self.is_cpu = all(device.platform == "cpu" for device in self.devices)
        placed = sharding if isinstance(sharding, jax.sharding.Sharding) else None
        self._take = jax.jit(_rows, out_shardings=placed) if placed is not None else jax.jit(_rows)

    def put(self, batch: Any) -> Any:
        """Return a batch on the device."""
        # JAX uses memory that starts on 64 bytes without a copy. It copies other memory later, when that
        # may have changed. So a batch is handed over aligned, and is not written to again.
        return jax.device_put(jax.tree.map(aligned, batch) if self.is_cpu else batch, self.sharding)

    def free_nbytes(self) -> int | None:
        """Return what an accelerator has left, if it says so. Unverified on hardware."""
        if self.is_cpu:
            return None
        found = self.devices[0].memory_stats() or {}
        if "bytes_limit" not in found:
            return None
        return int(found["bytes_limit"]) - int(found.get("bytes_in_use", 0))

    def allocate(self, num_rows: int, like: Any) -> Any:
        """Return an array of zeros."""
        return jnp.zeros((num_rows, *like.shape[1:]), like.dtype, device=self.sharding)

    def write(self, table: Any, start: int, leaf: Any) -> Any:
        """Return the array with new rows, in the memory that it had."""
        return _write(table, start, leaf).block_until_ready()

    def gather(self, tables: Sequence[Any], rows: Any) -> list[Any]:
        """Return these rows of each table."""
        taken: list[Any] = self._take(tables, rows)
        return taken

    def nbytes(self, leaf: Any) -> int:
        """Return its bytes."""
        return int(leaf.nbytes)


def _rows(tables: Sequence[Any], rows: Any) -> list[Any]:
    return [table[rows] for table in tables]


@partial(jax.jit, donate_argnums=0)
def _write(table: Any, start: Any, leaf: Any) -> Any:
    return jax.lax.dynamic_update_slice_in_dim(table, leaf, start, 0)


def _devices(sharding: Any) -> list[Any]:
    """Return the devices of a sharding, or of a nest of them."""
    found: set[Any] = set()
    for one in jax.tree.leaves(sharding):
        if not isinstance(one, jax.sharding.Sharding | jax.Device):
            raise TypeError(
                f"sharding must be a jax.Device, a jax.sharding.Sharding, or a nest of them, got {one!r}."
            )
        found |= {one} if isinstance(one, jax.Device) else one.device_set
    # Not jax.devices(), the first of which is that of another process where there are several.
    return sorted(found, key=lambda device: device.id) or jax.local_devices()[:1]
