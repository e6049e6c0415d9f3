"""Batches spread over devices by a sharding: those of this process, or of several that train together.

JAX takes what each process gives for its part of a global array, and compares nothing: if one gives fewer rows than
another, they train on different things. So the size of a global batch is known from `distribute`, and all else refused.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.share import Share
from penstock.core.spec import ArraySpec
from penstock.errors import SpecMismatchError
from penstock.feeds.alignment import aligned
from penstock.feeds.facts import batch_size, named_specs
from penstock.stages.base.stage import StageNode
from penstock.stages.batch import BatchedFlow, BatchedRows
from penstock.stages.map import Map

_WHOLE = "distribute(rank=0, world=1)"


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one field of a batch goes."""

    name: str
    sharding: Any
    has_rows: bool
    """Whether its first axis is that of the rows of a batch."""
    rows: dict[Any, tuple[int, int]]
    """Which rows each device gets, of as many rows as there are devices; empty if there is one device."""

    @property
    def parts(self) -> int:
        """Into how many parts its first axis is cut."""
        return max(1, len(set(self.rows.values())))

    @property
    def is_global(self) -> bool:
        """Whether other processes have devices of it."""
        return bool(self.rows) and not self.sharding.is_fully_addressable


class Spreader:
    """Puts batches on the devices of a sharding; a batch of several processes becomes one of global arrays."""

    def __init__(self, node: Node, sharding: Any) -> None:
        """Find where each field goes; raise if that can't be: by the sizes of batches, or by the ranks."""
        self._share = node.share
        self._is_weighted = node.weighs_rows
        self._whole = batch_size(node) if node.share is None else node.share.local_size
        self._places = [
            _placement(name, spec, one, self._whole)
            for (name, spec), one in zip(
                named_specs(node), _each_field(sharding, node.spec, ""), strict=True
            )
        ]
        self._of_global = [place for place in self._places if place.is_global and place.has_rows]
        for place in self._places:
            if place.is_global:
                _check_ranks(place, self._share)
            self._check_whole(place)
        self._check_last(_last_size(node))

    def put(self, batch: Any) -> Any:
        """Return a batch on its devices."""
        leaves, structure = flatten(batch)
        if self._of_global:
            self._check_rows(leaves)
        put = [self._put(*pair) for pair in zip(self._places, leaves, strict=True)]
        return structure.unflatten(put)

    def _put(self, place: Placement, leaf: Any) -> Any:
        # JAX copies memory that is not aligned later, when it may have changed.
        values = aligned(leaf)
        shape = values.shape
        if place.is_global and place.has_rows and self._share is not None:
            shape = (shape[0] * self._share.world, *shape[1:])
        if shape and shape[0] % place.parts:
            raise SpecMismatchError(self._short(place, shape[0]))
        if not place.is_global:
            return jax.device_put(values, place.sharding)
        return jax.make_array_from_process_local_data(place.sharding, values, shape)

    def _check_rows(self, leaves: Sequence[Any]) -> None:
        """Raise unless every rank has as many rows of this batch, so that its global size is known."""
        share = self._share
        assert share is not None  # Without ranks nothing is global.
        assert self._whole is not None
        has_short = share.uneven == "pad" and not share.static
        first: int | None = None
        for place, leaf in zip(self._places, leaves, strict=True):
            if not place.has_rows:
                continue
            rows = len(leaf)
            first = rows if first is None else first
            if rows != first or not (rows == self._whole or (has_short and rows < self._whole)):
                raise SpecMismatchError(
                    f"field {place.name!r} of a batch has {rows} rows, and each of {share.world} ranks gives "
                    f"{first if rows != first else self._whole}: functions on batches must keep the number of rows, "
                    "or ranks would train on different batches."
                )

    def _check_whole(self, place: Placement) -> None:
        """Raise, before anything is read, if batches can't be cut into the parts of a sharding."""
        if place.parts == 1 or self._whole is None or not place.has_rows:
            return
        share, size, step = self._share, self._whole, place.parts
        if share is not None:
            size = share.batch_size
            step = math.lcm(step, share.world) if place.is_global else step * share.world
        if size % step:
            below, above = size // step * step, -(-size // step) * step
            near = f"batch({below}) or batch({above})" if below else f"batch({above})"
            raise ValueError(
                f"the sharding cuts field {place.name!r} into {place.parts} parts, so that batches must divide by "
                f"{step}, got {size} rows: {near} would do."
            )

    def _check_last(self, last: int) -> None:
        """Raise, before anything is read, if a short last batch can't be cut into the parts of a sharding."""
        share = self._share
        if share is not None:
            last = share.filled(last) if share.uneven == "pad" else 0
        for place in self._places:
            size = last
            if share is not None and not place.is_global:
                size = last // share.world
            if place.has_rows and size % place.parts:
                raise ValueError(self._short(place, size))

    def _short(self, place: Placement, size: int) -> str:
        cure = "fill it up to a whole one: static=True in distribute"
        if not self._is_weighted:
            fill = '.distribute(uneven="pad", static=True)'
            cure = f"leave it out: batch(..., drop_remainder=True), or fill it up, weighed: {fill}"
        return (
            f"a batch has {size} rows, and the sharding cuts field {place.name!r} into {place.parts} parts, which "
            f"must be alike; {cure}."
        )


def _each_field(sharding: Any, spec: Any, name: str) -> Iterator[Any]:
    """Yield the sharding of each field: `sharding` may be one for all, or a nest of them like a batch."""
    if sharding is None or isinstance(sharding, jax.sharding.Sharding | jax.Device):
        yield from (sharding for _ in flatten(spec)[0])
        return
    is_tuple = isinstance(sharding, tuple) and isinstance(spec, tuple)
    if is_tuple and len(sharding) == len(spec):
        for number, (one, part) in enumerate(zip(sharding, spec, strict=True)):
            yield from _each_field(one, part, f"{name}[{number}]")
        return
    if isinstance(sharding, dict) and isinstance(spec, dict) and sharding.keys() == spec.keys():
        for key in flatten({key: key for key in spec})[0]:  # in the order of fields
            yield from _each_field(sharding[key], spec[key], f"{name}[{key!r}]")
        return
    raise TypeError(
        "sharding must be a jax.Device, a jax.sharding.Sharding, or a nest of them like a batch, got "
        f"{sharding!r}, where a batch{name} is {spec!r}."
    )


def _placement(name: str, spec: ArraySpec, sharding: Any, whole: int | None) -> Placement:
    has_rows = bool(spec.shape) and (spec.shape[0] is None or spec.shape[0] == whole)
    if not isinstance(sharding, jax.sharding.Sharding):
        return Placement(name, sharding, has_rows, {})
    number = len(sharding.device_set)
    # The number of devices divides by that of the parts, however the rows are cut.
    shape = [number if size is None else size for size in spec.shape]
    if has_rows:
        shape[0] = number
    try:
        sharding.shard_shape(tuple(shape))
        found = sharding.devices_indices_map(tuple(shape))
    except (ValueError, IndexError) as error:
        why = "it has fewer axes" if isinstance(error, IndexError) else error
        raise ValueError(
            f"field {name!r} is {spec}, and can't be spread by {sharding}: {why}.\n"
            "Each field may have a sharding of its own: to_jax(sharding=...) takes a nest of them like a batch."
        ) from error
    rows = {
        device: index[0].indices(shape[0])[:2] if index else (0, 1)
        for device, index in found.items()
    }
    return Placement(name, sharding, has_rows, rows)


def _last_size(node: Node) -> int:
    """Return the rows of a last global batch that is short; 0 if there is none, or nobody knows."""
    at = node
    while isinstance(at, StageNode):
        if at.declared is not None:
            at = at.declared
        elif isinstance(at, BatchedRows | BatchedFlow):
            return at.stage.rest(at.inputs[0].num_rows) or 0
        elif isinstance(at.stage, Map):
            at = at.inputs[0]
        else:
            break
    return 0


def _check_ranks(place: Placement, share: Share | None) -> None:
    """Raise unless the ranks of the dataset are just the processes that the sharding gives different rows."""
    if share is None:
        raise ValueError(
            f"the sharding of field {place.name!r} spans several processes, and the dataset is not distributed:\n"
            "  wrong: ds.batch(64).to_jax(sharding=sharding)\n"
            "  right: ds.batch(64).distribute().to_jax(sharding=sharding)\n"
            f"If every process is to read all rows: .{_WHOLE}."
        )
    if share.world == 1:
        return  # Every process has whole batches, and puts what its devices need.
    held: dict[int, set[tuple[int, int]]] = {}
    for device, rows in place.rows.items():
        held.setdefault(device.process_index, set()).add(rows)
    # Processes with the same rows are one rank. Ranks are counted as processes are.
    groups: list[set[tuple[int, int]]] = []
    for process in sorted(held):
        if held[process] not in groups:
            groups.append(held[process])
    if not place.has_rows:
        if len(groups) == 1:
            return  # The same on all of them.
        raise ValueError(
            f"field {place.name!r} does not have the {share.local_size} rows of this rank's part of a batch, so that "
            "its sharding must not cut its first axis: functions on batches must keep the number of rows, and what is "
            "the same on all ranks goes to all devices, by jax.sharding.PartitionSpec()."
        )
    total = sum(map(len, groups))
    is_even = total == len(groups) * len(groups[0]) == place.parts
    here = held.get(jax.process_index())
    if here is None or not is_even:
        raise ValueError(
            f"the sharding of field {place.name!r} gives the processes no equal parts of the rows, so that they can't "
            f"be {share.world} ranks: write .{_WHOLE}, and every process reads all rows."
        )
    rank = groups.index(here)
    if (rank, len(groups)) != (share.rank, share.world):
        raise ValueError(
            f"by the sharding of field {place.name!r} this process is rank {rank} of {len(groups)}: processes with the "
            f"same rows are one rank. The dataset was given rank {share.rank} of {share.world}; write "
            f".distribute(rank={rank}, world={len(groups)})."
        )
