"""bucket_by_sequence_length: the declaration."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.nest import field_names
from penstock.core.rows import Flow, Node, Rows
from penstock.stages.base.segment import as_flow
from penstock.stages.batch import Batch
from penstock.stages.bucket_by_sequence_length.buckets import Buckets
from penstock.stages.bucket_by_sequence_length.flow import BucketedFlow
from penstock.stages.bucket_by_sequence_length.lengths import measured_field, rows_of
from penstock.stages.padded_batch import find_pads


@dataclass(frozen=True, slots=True)
class BucketBySequenceLength(Buckets):
    """Batches of rows whose lengths lie between two boundaries."""

    def build(self, node: Node) -> Node:
        """Return the rows in padded batches."""
        rows = rows_of(node)
        targets = _targets(self.shapes, rows, no_padding=self.no_padding)
        pads, names = find_pads(self.pad, rows, targets), tuple(field_names(rows.structure))
        made = replace(self, pads=pads, targets=targets, names=names)
        return Batch.build(made, node)

    def check(self, node: Node) -> None:
        """Raise if no field has the name."""
        if self.name is not None:
            measured_field(node, self.name)

    def of_rows(self, rows: Rows) -> Node:
        """Return a flow: which rows make a batch is known only when they come."""
        return self.of_flow(as_flow(rows))

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows in padded batches."""
        return BucketedFlow(self, flow)


def _targets(shapes: Any, node: Node, *, no_padding: bool) -> tuple[tuple[int | None, ...], ...]:
    """Return the shape that rows of each field are padded to."""
    own = tuple(field.spec.shape for field in node.fields)
    if shapes is None:
        return own
    if no_padding:
        raise ValueError(
            "bucket_by_sequence_length takes padded_shapes or no_padding=True, not both."
        )
    try:
        given = node.structure.flatten_up_to(shapes)
        found = tuple(tuple(_size(size) for size in _shape(one)) for one in given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"padded_shapes must be a nest of shapes like a row {node.spec}, got {shapes!r}: {error}"
        ) from None
    for name, target, shape in zip(field_names(node.structure), found, own, strict=True):
        is_fitting = len(target) == len(shape) and all(
            want is None or size is None or want >= size
            for want, size in zip(target, shape, strict=True)
        )
        if not is_fitting:
            raise ValueError(
                f"padded_shapes for field {name!r} must have as many sizes as {shape}, none of them smaller, got "
                f"{target}."
            )
    # None for a size that all rows share is that size.
    return tuple(
        tuple(size if want is None else want for want, size in zip(target, shape, strict=True))
        for target, shape in zip(found, own, strict=True)
    )


def _shape(value: Any) -> Sequence[Any]:
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is no shape")
    return list(value)


def _size(value: Any) -> int | None:
    if value is None or value == -1:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 0:
        raise ValueError(f"{value!r} is no size")
    return int(value)
