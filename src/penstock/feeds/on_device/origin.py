"""Which rows of which node make a batch, for chains that only pick, order and batch them."""

from collections.abc import Sequence

import numpy as np

from penstock.core.arrays import Index, spans
from penstock.core.fingerprint import walk
from penstock.core.rows import Node, Rows, as_index
from penstock.core.spec import ArraySpec
from penstock.stages.base.grouping import batch_lengths
from penstock.stages.base.stage import StageRows
from penstock.stages.batch import Batch, BatchedRows
from penstock.stages.repeat import RepeatedRows


class Origin:
    """Rows that are the same in every epoch, and the stages that make batches of them."""

    def __init__(self, rows: Rows, above: Sequence[StageRows], below: Sequence[StageRows]) -> None:
        self.rows = rows
        """The rows that are to stay on a device."""
        self._above = above
        """The stages from the end of the chain down to `batch`, which is the last of them."""
        *_, batch = above
        assert isinstance(batch, BatchedRows)
        self._batch = batch
        self._below = below
        self.batch_size = batch.stage.batch_size

    def batches(self, first: int, last: int, epoch: int) -> tuple[Index, Index]:
        """Return the rows of batches `first` to `last`, one after the other, and how many each has."""
        numbers = np.arange(first, last)
        numbers, epochs = _traced(self._above[:-1], numbers, np.full(len(numbers), epoch))
        lengths = batch_lengths(numbers, self.batch_size, self._batch.input.num_rows)
        rows = spans(numbers * self.batch_size, lengths)
        return _traced(self._below, rows, np.repeat(epochs, lengths))[0], lengths


def _traced(stages: Sequence[StageRows], rows: Index, epochs: Index) -> tuple[Index, Index]:
    """Return the numbers that rows have in the input of the last of some stages, and the epoch of each there."""
    for stage in stages:
        if isinstance(stage, RepeatedRows):
            passes, rows = np.divmod(rows, stage.input.num_rows)
            epochs = epochs * stage.stage.epoch(1, 0) + passes
            continue
        found = np.empty_like(rows)
        for epoch in np.unique(epochs).tolist():
            slots = np.flatnonzero(epochs == epoch)
            found[slots] = as_index(stage.input_rows(rows[slots], epoch))
        rows = found
    return rows, epochs


def origin_of(node: Node) -> Origin | str:
    """Return where the batches of a chain come from, or why they can't be gathered by row number."""
    if not isinstance(node, Rows):
        return f"{node.describe()} gives rows that can only be read forward"
    called = [each for each in walk(node) if each.calls_functions]
    if called:
        return f"{called[0].describe()} calls a function, which may give something else each time"
    above, inner = _picking(node)
    if not isinstance(inner, BatchedRows) or type(inner.stage) is not Batch:
        return f"{inner.describe()} does more than pick, order and batch rows"
    below, last = _picking(inner.input)
    # The fewest rows that are the same in every epoch: behind a shard, only those of the shard.
    candidates = [
        (each.num_rows, -depth)
        for depth, each in enumerate([*below, last])
        if not each.follows_epoch and not each.is_endless
    ]
    if not candidates:
        return f"{last.describe()} gives other rows in each epoch"
    depth = -min(candidates)[1]
    rows = [*below, last][depth]
    if rows.is_batched or not all(_is_number(field.spec) for field in rows.fields):
        return "only rows of numbers, all of one shape, can be gathered there"
    return Origin(rows, [*above, inner], below[:depth])


def _picking(node: Rows) -> tuple[list[StageRows], Rows]:
    """Return the last stages of a chain that only pick rows of their input, and the node before them."""
    stages: list[StageRows] = []
    while isinstance(node, StageRows) and _picks(node):
        stages.append(node)
        node = node.input
    return stages, node


def _picks(node: StageRows) -> bool:
    kind = type(node)
    is_plain = kind.fill is StageRows.fill
    return is_plain or kind.input_rows is not StageRows.input_rows or kind is RepeatedRows


def _is_number(spec: ArraySpec) -> bool:
    # The 8-bit floats are missing: not every framework can gather them.
    is_known = not spec.is_text and spec.is_fixed
    dtype = spec.numpy_dtype
    is_numpys = dtype.kind in "biufc" and dtype.type.__module__ == "numpy"
    return is_known and (is_numpys or dtype.name == "bfloat16")
