"""padded_batch: rows whose shapes differ, stacked after padding them to the longest of the batch."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows, spans, starts_of, typed
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed, Ragged, Text, merge
from penstock.core.fields import Field
from penstock.core.nest import Structure, field_names, flatten, tuple_of, unflatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import SpecMismatchError
from penstock.memory import Allocate
from penstock.stages.base.grouping import Grouping
from penstock.stages.base.pending import Pending
from penstock.stages.batch import Batch


@dataclass(frozen=True, slots=True)
class PaddedBatch(Batch):
    """Batches of rows padded with `pad`: a value for all fields that need it, or a nest of values."""

    pad: Any = None
    pads: tuple[Any, ...] = ()
    """The value for each field, found when the stage is built."""
    lengths: bool = False
    """Whether batches come with the sizes that rows had before they were padded."""
    names: tuple[str, ...] = field(default=(), kw_only=True)
    """The names of the fields, for messages, found when the stage is built."""

    def build(self, node: Node) -> Node:
        """Return the rows in padded batches."""
        # Not super(): without arguments it fails here, since a dataclass with slots is a new class.
        names = tuple(field_names(node.structure))
        return Batch.build(replace(self, pads=find_pads(self.pad, node), names=names), node)

    def check(self, node: Node) -> None:
        """Raise if lengths are asked for, and no field has rows of different lengths."""
        if self.lengths and not any(None in field.spec.shape for field in node.fields):
            raise ValueError(
                f"{self.describe()} needs a field whose shape differs from row to row, got {node.spec}; "
                "leave lengths=True out."
            )

    def fields(self, node: Node) -> tuple[Field, ...]:
        """Return the fields of a batch, and after them those of the lengths."""
        fields = Batch.fields(self, node)
        if not self.lengths:
            return fields
        sizes = [axes for field in node.fields if (axes := _open_axes(field.spec))]
        made = [Field(ArraySpec((len(a),) if len(a) > 1 else (), np.int64)) for a in sizes]
        return fields + tuple(self.field(field, node.num_rows) for field in made)

    def tops(self, field: Field, size: int) -> tuple[int, ...]:
        """Return the bytes of the 1, 2, 4, ... largest batches: rows are padded to the largest of their batch."""
        if None not in field.spec.shape:
            return Batch.tops(self, field, size)
        return tuple(size * nbytes for nbytes in field.tops)

    def portions(self, pending: Pending, count: int, nbytes: int) -> Iterator[int]:
        """Yield how many of the next `count` batches are made at once: about `nbytes` of them, with their padding."""
        if not count:
            return
        rows = pending.varying_nbytes(count * self.batch_size).reshape(count, self.batch_size)
        ends = np.cumsum(rows.max(axis=1) * self.batch_size)
        done = before = 0
        while done < count:
            stop = max(done + 1, int(np.searchsorted(ends, before + nbytes, side="right")))
            yield stop - done
            done, before = stop, int(ends[stop - 1])

    def structure(self, node: Node) -> Structure:
        """Return the nest of a batch, or of the pair (batch, lengths)."""
        if not self.lengths:
            return node.structure
        nothing: Any = ()
        marks = [None if _open_axes(field.spec) else nothing for field in node.fields]
        return tuple_of([node.structure, flatten(unflatten(node.structure, marks))[1]])

    def finish(self, grouping: Grouping, out: Block) -> None:
        """Make padded batches, and batches of the sizes of their rows."""
        sizes: list[Index] = []

        def note(
            number: int, rows: Text | Ragged, lengths: Index, spec: ArraySpec, allocate: Allocate
        ) -> Ragged:
            if isinstance(rows, Ragged) and (axes := _open_axes(spec)):
                sizes.append(rows.shapes[:, axes if len(axes) > 1 else axes[0]])
            return self.group(number, rows, lengths, spec, allocate)

        grouping.finish(note if self.lengths else self.group)
        lengths, size = grouping.lengths, grouping.batch_size
        slots = spans(np.arange(len(lengths)) * size, lengths)
        for values, sink in zip(sizes, out.sinks[len(grouping.fields) :], strict=True):
            if isinstance(sink, Pieces):  # The batch got its room when its rows were there.
                sink.put(np.split(values, np.cumsum(lengths)[:-1]))
                continue
            assert isinstance(sink, Fixed)
            batches = np.zeros((len(lengths) * size, *values.shape[1:]), np.int64)
            batches[slots] = values
            sink.put(batches.reshape(len(lengths), size, *values.shape[1:]))
            if sink.lengths is not None:
                sink.put_lengths(lengths)

    def group(
        self, number: int, rows: Text | Ragged, lengths: Index, spec: ArraySpec, allocate: Allocate
    ) -> Ragged:
        """Return padded batches; text without dimensions needs no padding."""
        if None not in spec.shape:
            return Batch.group(self, number, rows, lengths, spec, allocate)
        assert isinstance(rows, Ragged)
        return padded(rows, lengths, self.pads[number], allocate)

    def describe(self) -> str:
        """Return the call that made it."""
        rest = ", drop_remainder=True" if self.drop_remainder else ""
        rest += f", padding_values={self.pad!r}" if self.pad is not None else ""
        rest += ", lengths=True" if self.lengths else ""
        return f"padded_batch({self.batch_size}{rest})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return [
            "padded_batch",
            self.batch_size,
            self.drop_remainder,
            [pad_to_json(pad) for pad in self.pads],
            self.lengths,
        ]


def pad_to_json(pad: Any) -> Any:
    """Return the padding of one field as JSON, in a form that does not depend on the version of NumPy."""
    if pad is None or isinstance(pad, str):
        return pad
    return pad.hex() if isinstance(pad, bytes) else np.asarray(pad).tobytes().hex()


def _open_axes(spec: ArraySpec) -> list[int]:
    return [axis for axis, size in enumerate(spec.shape) if size is None]


def padded(
    rows: Ragged,
    lengths: Index,
    pad: Any,
    allocate: Allocate,
    *,
    targets: Index | None = None,
    call: str = "",
) -> Ragged:
    """Return batches of `lengths` rows, each padded at its end to the largest shape of its batch.

    `targets` is the shape that the rows of each batch are padded to instead, -1 where it is that of the largest; `call`
    says in an error who wanted that.
    """
    firsts = np.cumsum(lengths) - lengths
    largest = np.maximum.reduceat(rows.shapes, firsts, axis=0)
    if targets is not None:
        bad = np.flatnonzero(((targets >= 0) & (largest > targets)).any(axis=1))
        if len(bad):
            size = tuple(largest[bad[0]].tolist())
            shown = tuple(None if one < 0 else one for one in targets[bad[0]].tolist())
            raise SpecMismatchError(
                f"{call} has a row of shape {size}, larger than {shown}, which rows are padded to."
            )
        largest = np.maximum(largest, targets)
    shapes = np.concatenate([lengths[:, None], largest], axis=1)
    sizes = shapes.prod(axis=1)
    places = np.repeat(np.arange(len(lengths)), lengths)
    within = np.arange(len(rows)) - firsts[places]
    room = shapes[places, 1:]
    if isinstance(rows.values_, Text):
        # Pad the numbers of the texts instead of the texts: the padding is one more text, the last.
        texts = merge([rows.values_, Text.of([pad], rows.values_.kind, allocate)], allocate)
        assert isinstance(texts, Text)
        numbers = Ragged(np.arange(len(texts)), rows.starts, rows.shapes)
        starts = starts_of(sizes, 1, aligned=False)
        index = np.full(int(sizes.sum()), len(texts) - 1)
        _copy_rows(numbers, index, starts[places] + within * room.prod(axis=1), room)
        return Ragged(texts.take(index, allocate), starts, shapes)
    dtype = rows.values_.dtype
    starts = starts_of(sizes, dtype.itemsize, aligned=True)
    total = int(starts[-1] + sizes[-1])
    memory = typed(allocate(total * dtype.itemsize), 0, (total,), dtype)
    memory[:] = pad
    _copy_rows(rows, memory, starts[places] + within * room.prod(axis=1), room)
    return Ragged(memory, starts, shapes)


def _copy_rows(rows: Ragged, out: Array, targets: Index, room: Index) -> None:
    """Copy row i to `out[targets[i]:]`, which has the shape `room[i]`."""
    values = rows.values_
    assert not isinstance(values, Text)
    if not out.size:
        return
    if bool((room[:, 1:] == rows.shapes[:, 1:]).all()):
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


def find_pads(
    pad: Any, node: Node, targets: Sequence[tuple[int | None, ...]] | None = None
) -> tuple[Any, ...]:
    """Return the value that each field is padded with; None for those that are not.

    Those are padded whose shape is open, or not the one of `targets`.
    """
    shapes = [field.spec.shape for field in node.fields]
    is_padded = [None in shape for shape in shapes]
    if targets is not None:
        is_padded = [
            shape != target or None in shape for shape, target in zip(shapes, targets, strict=True)
        ]
    values, structure = flatten(pad)
    if structure != node.structure:
        if len(values) != 1 or structure != flatten(0)[1]:
            raise ValueError(
                f"padding_values must be one value, or a nest like a row {node.spec}, got {pad!r}."
            )
        values = list(itertools.repeat(values[0], len(node.fields)))
    names = field_names(node.structure)
    return tuple(
        _pad(value, field, name) if needs else None
        for value, field, name, needs in zip(values, node.fields, names, is_padded, strict=True)
    )


def _pad(value: Any, field: Field, name: str) -> Any:
    dtype = field.spec.dtype
    if not isinstance(dtype, np.dtype):
        if value is None:
            return dtype()
        if not isinstance(value, dtype):
            raise TypeError(
                f"padding_values for field {name!r} must be {dtype.__name__}, got {value!r}."
            )
        return value
    if value is None:
        return np.array("NaT", dtype) if dtype.kind in "mM" else np.zeros((), dtype)
    given = np.asarray(value)
    made = given.astype(dtype, casting="unsafe")
    if not np.array_equal(made, given, equal_nan=dtype.kind in "fc"):
        raise ValueError(
            f"padding_values for field {name!r} must be a value of {dtype_name(dtype)}, got {value!r}."
        )
    return made
