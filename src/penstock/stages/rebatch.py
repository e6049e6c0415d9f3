"""rebatch: batches of another size, made of the rows of batches."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.columns import Ragged, Text
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.errors import SpecMismatchError
from penstock.memory import Allocate
from penstock.stages.base.stage import Stage
from penstock.stages.batch import Batch
from penstock.stages.padded_batch import PaddedBatch, padded


def rebatched(node: Node, batch_size: int, *, drop_remainder: bool) -> Stage:
    """Return what makes batches of the rows of unbatched batches: rows of padded batches may differ in shape."""
    if any(None in field.spec.shape for field in node.fields):
        return Rebatch(batch_size, drop_remainder)
    return Batch(batch_size, drop_remainder)


@dataclass(frozen=True, slots=True)
class Rebatch(PaddedBatch):
    """Batches of rows whose shapes may differ, but not within a batch: of rows that were padded before."""

    def group(
        self, number: int, rows: Text | Ragged, lengths: Index, spec: ArraySpec, allocate: Allocate
    ) -> Ragged:
        """Return batches; raise if rows of one batch differ in shape."""
        if isinstance(rows, Text) or None not in spec.shape:
            return Batch.group(self, number, rows, lengths, spec, allocate)
        cure = f"Pad them: .unbatch().padded_batch({self.batch_size})."
        return stacked(
            rows, lengths, allocate, f"{self.describe()}: field {self.names[number]!r}", cure
        )

    def describe(self) -> str:
        """Return the call that made it."""
        rest = ", drop_remainder=True" if self.drop_remainder else ""
        return f"rebatch({self.batch_size}{rest})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["rebatch", self.batch_size, self.drop_remainder]


def stacked(rows: Ragged, lengths: Index, allocate: Allocate, call: str, cure: str) -> Ragged:
    """Return batches of `lengths` rows; raise if rows of one batch differ in shape."""
    firsts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    differs = np.flatnonzero((rows.shapes != rows.shapes[firsts]).any(axis=1))
    if len(differs):
        here, first = (tuple(rows.shapes[at].tolist()) for at in (differs[0], firsts[differs[0]]))
        raise SpecMismatchError(
            f"{call} has rows of shape {first} and {here} in one batch, which can't be stacked. {cure}"
        )
    values = rows.values_
    nothing = values.kind() if isinstance(values, Text) else np.zeros((), values.dtype)
    return padded(rows, lengths, nothing, allocate)
