"""to_jax(): batches as jax Arrays, on one device or spread over many."""

from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError("to_jax needs jax: pip install 'penstock[jax]'") from error

from penstock.adapters.alignment import aligned
from penstock.adapters.epochs import Device, EpochFeed
from penstock.adapters.recipe import Recipe
from penstock.adapters.residency import Residency, choose


def jax_feed(recipe: Recipe, *, sharding: Any, device_memory: int | str | None) -> EpochFeed:
    """Return the batches as JAX takes them: without a copy on the CPU, one ahead elsewhere."""
    recipe.check_batched("to_jax()")
    recipe.check_numeric("jax")
    devices = _devices(sharding)
    is_cpu = all(device.platform == "cpu" for device in devices)

    def put(batch: Any) -> Any:
        # JAX looks at memory on 64 bytes as it is, and copies other memory later, when it may have
        # changed: a batch is only handed over aligned, and is not written to again.
        return jax.device_put(jax.tree.map(aligned, batch) if is_cpu else batch, sharding)

    residency = choose(recipe, device_memory, None if is_cpu else _free_nbytes(devices[0]))
    if len(devices) > 1 and residency.is_resident:
        residency = Residency(
            is_resident=False, why="a batch spread over several devices is not gathered on one"
        )
    device = Device(
        put=put,
        put_all=lambda array: jax.device_put(array, sharding),
        gather=_take,
        is_ahead=not is_cpu,
    )
    return EpochFeed(recipe, device, residency)


def _rows(array: Any, rows: Any) -> Any:
    return array[rows]


_take = jax.jit(_rows)


def _devices(sharding: Any) -> list[Any]:
    if sharding is None:
        return [jax.devices()[0]]
    return sorted(getattr(sharding, "device_set", [sharding]), key=lambda device: device.id)


def _free_nbytes(device: Any) -> int | None:
    """Return what an accelerator has left, if it says so. Unverified on hardware."""
    found = device.memory_stats() or {}
    if "bytes_limit" not in found:
        return None
    return int(found["bytes_limit"]) - int(found.get("bytes_in_use", 0))
