"""Data that stays on the device: copied there once, gathered and shuffled there in every epoch."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.adapters.recipe import Recipe
from penstock.memory import format_nbytes, parse_nbytes
from penstock.plan import Explanation
from penstock.rows import Index, Node, Rows, as_index
from penstock.sources.arrays import Arrays
from penstock.sources.leaves import InMemory
from penstock.stages.batch import BatchedRows
from penstock.stages.stage import StageRows


@dataclass(slots=True)
class Traffic:
    """Bytes that were copied to the device, and row numbers that were sent to gather them by."""

    to_device_nbytes: int = 0
    index_nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Residency:
    """Where a dataset lives during training, and why."""

    is_resident: bool
    why: str
    nbytes: int = 0

    def noted(self, explanation: Explanation) -> Explanation:
        """Return an explanation that says so."""
        where = "resident on the device" if self.is_resident else "streamed to the device"
        return replace(explanation, notes=(*explanation.notes, f"{where}: {self.why}."))


class _Table:
    """The arrays behind a chain that only picks, orders and batches their rows."""

    def __init__(self, leaves: list[InMemory], chain: list[StageRows], batch: BatchedRows) -> None:
        self.leaves = leaves
        self.chain = chain
        self.batch = batch

    @property
    def nbytes(self) -> int:
        return sum(leaf.array.nbytes for leaf in self.leaves)

    def rows(self, number: int, epoch: int) -> Index:
        """Return which rows of the arrays make batch `number`."""
        size, total = self.batch.stage.batch_size, self.batch.input.num_rows
        rows: slice | Index = slice(number * size, min(total, (number + 1) * size))
        for stage in self.chain:
            rows = stage.input_rows(rows, epoch)
        return np.ascontiguousarray(as_index(rows))


def _table(node: Node) -> _Table | None:
    """Return the arrays of a chain without functions; None for any other chain."""
    if not isinstance(node, BatchedRows):
        return None
    chain: list[StageRows] = []
    inner: Rows = node.input
    # A stage that only renumbers rows has the `fill` of all of them.
    while isinstance(inner, StageRows) and type(inner).fill is StageRows.fill:
        chain.append(inner)
        inner = inner.input
    if not isinstance(inner, Arrays):
        return None
    leaves = [leaf for leaf in inner.leaves if isinstance(leaf, InMemory)]
    return _Table(leaves, chain, node) if len(leaves) == len(inner.leaves) else None


def choose(recipe: Recipe, device_memory: int | str | None, free_nbytes: int | None) -> Residency:
    """Return whether the data is to stay on a device, by a declared budget or half of what is free."""
    table = _table(recipe.node)
    if device_memory is not None:
        budget = parse_nbytes(device_memory)
    elif free_nbytes is not None:
        budget = free_nbytes // 2
    else:
        return Residency(is_resident=False, why="the device has no memory of its own")
    if table is None:
        return Residency(
            is_resident=False,
            why="only arrays that are picked, shuffled and batched can stay there",
        )
    sizes = f"its {format_nbytes(table.nbytes)} against {format_nbytes(budget)} of device memory"
    return Residency(table.nbytes <= budget, sizes, table.nbytes)


class ResidentEpoch:
    """One epoch of batches that are gathered on the device."""

    def __init__(
        self,
        recipe: Recipe,
        arrays: list[Any],
        gather: Callable[[Any, Index], Any],
        traffic: Traffic,
        *,
        epoch: int,
        first: int = 0,
    ) -> None:
        table = _table(recipe.node)
        assert table is not None
        self._table = table
        self._recipe = recipe
        self._arrays = arrays
        self._gather = gather
        self._traffic = traffic
        self.epoch = epoch
        self.number = first

    def __iter__(self) -> Iterator[Any]:
        structure = self._recipe.node.structure
        while self.number < self._table.batch.num_rows:
            rows = self._table.rows(self.number, self.epoch)
            self._traffic.index_nbytes += rows.nbytes
            self.number += 1
            yield structure.unflatten([self._gather(array, rows) for array in self._arrays])


def source_arrays(recipe: Recipe) -> list[Any]:
    """Return the arrays that a resident dataset is made of."""
    table = _table(recipe.node)
    assert table is not None
    return [leaf.array for leaf in table.leaves]
