"""to_jax(): batches as jax Arrays, on one device or spread over many."""

from typing import Any

try:
    import jax  # noqa: F401  # so that its absence is told of here
except ImportError as error:
    raise ImportError("to_jax needs jax: pip install 'penstock[jax]'") from error

from penstock.feeds.base import EpochFeed
from penstock.feeds.jax.device import JaxDevice
from penstock.feeds.on_device.choice import Residency, choose
from penstock.feeds.on_device.traffic import Traffic
from penstock.feeds.recipe import Recipe


def jax_feed(recipe: Recipe, *, sharding: Any, device_memory: int | str | None) -> EpochFeed:
    """Return the batches as JAX takes them: without a copy on the CPU, one ahead elsewhere."""
    recipe.check_batched("to_jax()")
    recipe.check_numeric("jax")
    device, traffic = JaxDevice(sharding), Traffic()
    if len(device.devices) > 1:
        residency = Residency("a batch spread over several devices is not gathered on one")
    else:
        residency = choose(recipe, device, device.put, traffic, device_memory)
    return EpochFeed(recipe, device.put, residency, traffic, is_ahead=not device.is_cpu)
