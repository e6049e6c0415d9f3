"""What is known of the batches of buckets before they are made, and how their rows are padded."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import Index
from penstock.core.columns import Ragged, Text
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.memory import Allocate
from penstock.stages.batch import Batch
from penstock.stages.bucket_by_sequence_length.lengths import measured_field, rows_of
from penstock.stages.padded_batch import PaddedBatch, pad_to_json, padded
from penstock.stages.rebatch import stacked


@dataclass(frozen=True, slots=True)
class Buckets(PaddedBatch):
    """Batches of rows whose lengths lie between two boundaries; `batch_size` is the most rows that one has.

    The input has the lengths as its last field (see `Lengths`), or `name` is the field whose first axis they are.
    """

    moves_rows: ClassVar[bool] = True
    name: str | None = None
    boundaries: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    """The rows of a batch of each bucket: one more than there are boundaries."""
    to_boundary: bool = False
    shapes: Any = None
    """The nest of shapes that rows are padded to."""
    targets: tuple[tuple[int | None, ...], ...] = ()
    """The shape that rows of each field are padded to, found when the stage is built; None is the longest."""
    no_padding: bool = False

    def bucket_size(self, bucket: int) -> int:
        """Return how many rows a batch of a bucket has."""
        return min(self.sizes[bucket], self.batch_size)

    def num_batches(self, num_rows: int | None) -> int | None:
        """Return None: how many batches there are depends on the lengths."""
        return 0 if num_rows == 0 else None

    def is_whole(self, num_rows: int | None) -> bool:  # As batch has it.
        """Whether all batches have the same number of rows."""
        return self.drop_remainder and len(set(self.sizes)) == 1

    def rest(self, num_rows: int | None) -> int | None:  # As batch has it.
        """Return None: any batch may be short."""
        return None

    def fields(self, node: Node) -> tuple[Field, ...]:
        """Return the fields of a batch."""
        rows = rows_of(node)
        return tuple(self._field(number, field, node) for number, field in enumerate(rows.fields))

    def structure(self, node: Node) -> Structure:
        """Return the nest of a batch: that of a row."""
        return rows_of(node).structure

    def _field(self, number: int, field: Field, node: Node) -> Field:
        target = self.targets[number]
        if field.spec.is_fixed and target == field.spec.shape:
            return Batch.field(self, field, node.num_rows)
        # Else open, so that batches get their room when they are padded, and rows are not read right into it.
        is_known = self.is_whole(node.num_rows) and None in target
        spec = ArraySpec((self.batch_size if is_known else None, *target), field.spec.dtype)
        sizes = [self.bucket_size(bucket) for bucket in range(len(self.sizes))]
        rows = [self._row_nbytes(number, field, bucket, node) for bucket in range(len(sizes))]
        most = max(size * nbytes for size, nbytes in zip(sizes, rows, strict=True)) + 16
        tops: tuple[int, ...] = ()
        if field.tops:
            tops = tuple(most << power for power in range(len(field.tops)))
        return Field(spec, estimate=most, tops=tops)

    def _row_nbytes(self, number: int, field: Field, bucket: int, node: Node) -> int:
        """Return the most bytes of a padded row of a bucket; a guess if nothing bounds it."""
        longest = field.tops[0] if field.tops else field.nbytes
        dtype = field.spec.dtype
        if not isinstance(dtype, np.dtype):
            return longest
        shape = [
            self._longest(bucket) if size is None and self.to_boundary else size
            for size in self.targets[number]
        ]
        width = dtype.itemsize * int(np.prod([size for size in shape if size is not None]))
        if None not in shape:
            return width
        is_measured = self.name is not None and measured_field(node, self.name) == number
        is_bound = is_measured and shape[0] is None and None not in shape[1:]
        if not is_bound or bucket == len(self.boundaries):
            return longest
        bound = width * self._longest(bucket)
        return min(bound, longest) if field.tops else bound

    def _longest(self, bucket: int) -> int:
        """Return the longest length of a bucket but the last."""
        last = len(self.boundaries) - 1
        return max(0, self.boundaries[min(bucket, last)] - 1) if last >= 0 else 0

    def open_nbytes(self, node: Node) -> int:
        """Return the bytes of all rows that may wait in buckets at once; estimated if their sizes are not known."""
        sizes = [self.bucket_size(bucket) for bucket in range(len(self.sizes))]
        num_rows = sum(sizes)
        if node.num_rows is not None:
            num_rows = min(num_rows, node.num_rows)
        total = 0
        for number, field in enumerate(rows_of(node).fields):
            nbytes = field.most_nbytes(num_rows)
            if field.storage_shape is None and not field.tops:
                rows = [self._row_nbytes(number, field, b, node) for b in range(len(sizes))]
                nbytes = max(nbytes, sum(s * r for s, r in zip(sizes, rows, strict=True)))
            total += nbytes + 24 * num_rows
        return total

    def group_in(
        self,
        buckets: Index,
        number: int,
        rows: Text | Ragged,
        lengths: Index,
        spec: ArraySpec,
        allocate: Allocate,
    ) -> Ragged:
        """Return batches of rows of field `number`, padded as those of their buckets are."""
        call = f"{self.describe()}: field {self.names[number]!r}"
        if isinstance(rows, Text) or self.pads[number] is None:
            return Batch.group(self, number, rows, lengths, spec, allocate)
        if self.no_padding:
            cure = "Leave no_padding=True out, which pads them, or give boundaries that keep them apart."
            return stacked(rows, lengths, allocate, call, cure)
        shapes = np.full((len(buckets), len(spec.shape)), -1, np.int64)
        for axis, size in enumerate(self.targets[number]):
            if size is not None:
                shapes[:, axis] = size
            elif self.to_boundary:
                shapes[:, axis] = [self._longest(bucket) for bucket in buckets.tolist()]
        return padded(rows, lengths, self.pads[number], allocate, targets=shapes, call=call)

    def describe(self) -> str:
        """Return the call that made it."""
        by = repr(self.name) if self.name is not None else "lengths"
        words = [by, str(list(self.boundaries)), str(list(self.sizes))]
        words += [] if self.shapes is None else [f"padded_shapes={self.shapes!r}"]
        words += [] if self.pad is None else [f"padding_values={self.pad!r}"]
        words += ["pad_to_bucket_boundary=True"] if self.to_boundary else []
        words += ["no_padding=True"] if self.no_padding else []
        words += ["drop_remainder=True"] if self.drop_remainder else []
        return f"bucket_by_sequence_length({', '.join(words)})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return [
            "bucket_by_sequence_length",
            self.name,
            list(self.boundaries),
            [self.bucket_size(bucket) for bucket in range(len(self.sizes))],
            self.drop_remainder,
            [pad_to_json(pad) for pad in self.pads],
            [list(target) for target in self.targets],
            self.to_boundary,
            self.no_padding,
        ]
