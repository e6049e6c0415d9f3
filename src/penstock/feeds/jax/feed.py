"""to_jax(): batches as jax Arrays, on one device or spread over many."""

from typing import Any

try:
    import jax  # noqa: F401  # so that its absence is noticed here
except ImportError as error:
    raise ImportError("to_jax needs jax: pip install 'penstock[jax]'") from error

from penstock.feeds.base import EpochFeed
from penstock.feeds.dtypes import byte_orders, check_dtypes
from penstock.feeds.facts import check_batched, named_specs
from penstock.feeds.jax.device import JaxDevice
from penstock.feeds.jax.narrowing import has_dtype, narrowing, warn_of_narrowing
from penstock.feeds.jax.spreading import Spreader
from penstock.feeds.leafwise import chained, leafwise
from penstock.feeds.on_device.choice import Residency, choose
from penstock.outlets import Outlets


class JaxFeed(EpochFeed):
    """Batches of jax Arrays. Each `iter` is the next epoch."""


def jax_feed(source: Outlets, *, sharding: Any, device_memory: int | str | None) -> JaxFeed:
    """Return the batches as JAX takes them: without a copy on the CPU, one batch ahead elsewhere."""
    check_batched(source.node, "to_jax()")
    check_dtypes(source.node, "jax", has_dtype)
    specs = named_specs(source.node)
    warn_of_narrowing(specs)
    device = JaxDevice(sharding)
    narrow = leafwise(source.node.structure, [narrowing(name, spec) for name, spec in specs])
    is_nest = isinstance(sharding, tuple | dict)
    is_spread = is_nest or len(device.devices) > 1
    place = Spreader(source.node, sharding).put if is_spread else device.put
    put = chained(byte_orders(source.node), narrow, place)
    assert put is not None
    if is_spread:
        residency = Residency("a batch spread over several devices is not gathered on one")
    else:
        residency = choose(source, device, put, device_memory)
    return JaxFeed(source, put, residency, is_ahead=not device.is_cpu)
