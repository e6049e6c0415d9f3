"""Where data lives during training: on the device if it fits there, else in memory or on storage."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from penstock.engine.plan import Explanation
from penstock.feeds.leafwise import Convert
from penstock.feeds.on_device.device import Device
from penstock.feeds.on_device.origin import origin_of
from penstock.feeds.on_device.resident import INDEX_DTYPE, Resident, promised_nbytes
from penstock.feeds.on_device.traffic import Traffic
from penstock.memory import format_nbytes, parse_nbytes
from penstock.outlets import Outlets
from penstock.reports.figures import DeviceTraffic


@dataclass(frozen=True, slots=True)
class Residency:
    """Where a dataset lives during training, and why."""

    why: str
    data: Resident | None = None
    """What stays on the device; None if batches are streamed to it."""
    left_nbytes: int | None = None
    """Bytes that are left of a declared budget."""
    is_in_memory: bool = False
    traffic: Traffic = field(default_factory=Traffic)
    """Bytes copied to the device so far; of a CPU, bytes that were handed over."""
    is_shared: bool = False
    """Whether the device is the CPU, which uses batches where they are."""

    def noted(self, explanation: Explanation) -> Explanation:
        """Return the explanation with a note on where the data lives, and why."""
        where = "resident on" if self.data is not None else "streamed to"
        if self.data is None and self.is_in_memory:
            where = "kept in memory and streamed to"
        note = f"{where} the device: {self.why}."
        return replace(explanation, notes=(*explanation.notes, note))

    def measured(self) -> DeviceTraffic:
        """Return what was copied to the device, for a report."""
        traffic = self.traffic
        if self.data is not None:
            epoch, every, data = traffic.epoch_nbytes, traffic.to_device_nbytes, self.data.nbytes
            return DeviceTraffic(epoch, every, data, traffic.index_nbytes, is_resident=True)
        data = max(traffic.most_nbytes, traffic.epoch_nbytes)
        if self.is_shared:
            return DeviceTraffic(0, 0, data, is_shared=True)
        return DeviceTraffic(traffic.epoch_nbytes, traffic.to_device_nbytes, data)

    def close(self) -> None:
        """Let go of what is on the device."""
        if self.data is not None:
            self.data.close()


def choose(
    source: Outlets,
    device: Device,
    put: Convert,
    device_memory: int | str | None,
    traffic: Traffic | None = None,
) -> Residency:
    """Return where the data lives: on the device if it fits the declared budget, or half of what is free."""
    counters = Traffic() if traffic is None else traffic
    declared = None if device_memory is None else parse_nbytes(device_memory, least=0)
    budget = _share(device) if declared is None else declared
    origin = origin_of(source.node)
    is_in_memory = not isinstance(origin, str) and not origin.rows.grains
    streamed = partial(
        Residency,
        left_nbytes=declared,
        is_in_memory=is_in_memory,
        traffic=counters,
        is_shared=device.is_cpu,
    )
    if budget is None:
        return streamed("the device has no memory of its own")
    if isinstance(origin, str):
        return streamed(origin)
    if origin.rows.num_rows > np.iinfo(INDEX_DTYPE).max:
        return streamed("it has more rows than can be numbered there, 2**31")
    data = Resident(origin, source.options, put, device, counters)
    why = f"its {format_nbytes(data.nbytes)} against {format_nbytes(budget)} of device memory"
    if data.nbytes > budget:
        return streamed(why)
    left = None if declared is None else declared - data.nbytes
    return Residency(why, data, left, traffic=counters)


def _share(device: Device) -> int | None:
    """Return half of what is free and not promised to another feed; None on a CPU."""
    free = device.free_nbytes()
    return None if free is None else max(0, free - promised_nbytes(type(device))) // 2
