"""padded_batch: rows whose shapes differ, stacked after padding them to the longest of the batch."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock import _native
from penstock.columns import Array, Index, Ragged, Text, merge, raw_rows, starts_of, typed
from penstock.fields import Field
from penstock.memory import Allocate
from penstock.nest import field_names, flatten
from penstock.rows import Flow, Node, Rows
from penstock.spec import ArraySpec, dtype_name
from penstock.stages.batch import Batch, BatchedFlow, BatchedRows


@dataclass(frozen=True, slots=True)
class PaddedBatch(Batch):
    """Batches of rows padded with `pad`: a value for all fields that need it, or a nest of values."""

    pad: Any = None
    pads: tuple[Any, ...] = ()
    """The value for each field, found when the stage is put behind a node."""

    def build(self, node: Node) -> Node:
        """Return the rows in padded batches."""
        stage = replace(self, pads=_pads(self.pad, node))
        if isinstance(node, Rows):
            return BatchedRows(stage, node)
        assert isinstance(node, Flow)
        return BatchedFlow(stage, node)

    def group(
        self, number: int, rows: Text | Ragged, lengths: Index, spec: ArraySpec, allocate: Allocate
    ) -> Ragged:
        """Return padded batches; text without dimensions needs no padding."""
        if None not in spec.shape:
            # The zero-argument form of super() is lost when slots make a new class.
            return Batch.group(self, number, rows, lengths, spec, allocate)
        assert isinstance(rows, Ragged)
        return padded(rows, lengths, spec, self.pads[number], allocate)

    def describe(self) -> str:
        """Return the call."""
        rest = ", drop_remainder=True" if self.drop_remainder else ""
        rest += f", pad={self.pad!r}" if self.pad is not None else ""
        return f"padded_batch({self.batch_size}{rest})"


def padded(rows: Ragged, lengths: Index, spec: ArraySpec, pad: Any, allocate: Allocate) -> Ragged:
    """Return batches of `lengths` rows, each padded at its end to the largest shape of its batch."""
    firsts = np.cumsum(lengths) - lengths
    shapes = np.concatenate(
        [lengths[:, None], np.maximum.reduceat(rows.shapes, firsts, axis=0)], axis=1
    )
    sizes = shapes.prod(axis=1)
    places = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(rows)) - firsts[places]
    room = shapes[places, 1:]
    if isinstance(rows.values_, Text):
        # Pad the numbers of the texts, with that of one more text: the padding.
        texts = merge([rows.values_, Text.of([pad], rows.values_.kind, allocate)], allocate)
        assert isinstance(texts, Text)
        numbers = Ragged(np.arange(len(texts)), rows.starts, rows.shapes)
        starts = starts_of(sizes, 1, aligned=False)
        index = np.full(int(sizes.sum()), len(texts) - 1)
        _copy_rows(numbers, index, starts[places] + within * room.prod(axis=1), room, spec)
        return Ragged(texts.take(index, allocate), starts, shapes)
    dtype = rows.values_.dtype
    starts = starts_of(sizes, dtype.itemsize, aligned=True)
    total = int(starts[-1] + sizes[-1])
    memory = typed(allocate(total * dtype.itemsize), 0, (total,), dtype)
    memory[:] = pad
    _copy_rows(rows, memory, starts[places] + within * room.prod(axis=1), room, spec)
    return Ragged(memory, starts, shapes)


def _copy_rows(rows: Ragged, out: Array, targets: Index, room: Index, spec: ArraySpec) -> None:
    """Copy row i to `out[targets[i]:]`, which has the shape `room[i]`."""
    values = rows.values_
    assert not isinstance(values, Text)
    if not out.size:
        return
    if None not in spec.shape[1:]:
        # Only the first axis is padded: each row stays in one piece.
        width = values.dtype.itemsize
        sizes = rows.shapes.prod(axis=1) * width
        source = raw_rows(values, 0)
        _native.gather_spans(source, rows.starts * width, sizes, raw_rows(out, 0), targets * width)
        return
    for row, (target, shape) in enumerate(zip(targets.tolist(), room.tolist(), strict=True)):
        place = out[target : target + int(np.prod(shape))].reshape(shape)
        value = rows.value(row)
        place[tuple(slice(size) for size in value.shape)] = value


def _pads(pad: Any, node: Node) -> tuple[Any, ...]:
    values, structure = flatten(pad)
    if structure != node.structure:
        if len(values) != 1 or structure != flatten(0)[1]:
            raise ValueError(
                f"pad must be one value, or a nest like a row {node.spec}, got {pad!r}."
            )
        values = list(itertools.repeat(values[0], len(node.fields)))
    names = field_names(node.structure)
    return tuple(
        _pad(value, field, name) if None in field.spec.shape else None
        for value, field, name in zip(values, node.fields, names, strict=True)
    )


def _pad(value: Any, field: Field, name: str) -> Any:
    dtype = field.spec.dtype
    if not isinstance(dtype, np.dtype):
        if value is None:
            return dtype()
        if not isinstance(value, dtype):
            raise TypeError(f"pad for field {name!r} must be {dtype.__name__}, got {value!r}.")
        return value
    if value is None:
        return np.array("NaT", dtype) if dtype.kind in "mM" else np.zeros((), dtype)
    given = np.asarray(value)
    made = given.astype(dtype, casting="unsafe")
    if not np.array_equal(made, given, equal_nan=dtype.kind in "fc"):
        raise ValueError(
            f"pad for field {name!r} must be a value of {dtype_name(dtype)}, got {value!r}."
        )
    return made
