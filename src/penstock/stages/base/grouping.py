"""How rows become batches: a block of batches seen as a block of rows, to read rows into."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from penstock.core.arrays import Index, spans, starts_of
from penstock.core.blocks import Block, Pieces, Sink
from penstock.core.columns import Fixed, Ragged, Text, column_of
from penstock.core.fields import Field, allocate_block
from penstock.core.rows import Context, Node
from penstock.core.spec import ArraySpec
from penstock.memory import Allocate

LARGE_NBYTES = 1 << 26
"""A batch that would take more gets its room when its rows are there, if nobody knows how many there are."""
_FEW_NBYTES = 1 << 18  # What is planned for such a batch.


def batch_field(
    field: Field,
    batch_size: int,
    *,
    is_whole: bool,
    num_rows: int | None = None,
    tops: tuple[int, ...] = (),
) -> Field:
    """Return the field of a batch of rows of `field`; `is_whole` if no batch is cut short.

    `num_rows` is the number of all rows: a batch is never larger. If it is not known, and a batch is large, it may
    have few rows all the same.
    """
    spec = ArraySpec((batch_size if is_whole else None, *field.spec.shape), field.spec.dtype)
    most = longest_batch(batch_size, num_rows)
    nbytes = most * field.nbytes + 16
    if num_rows is None and nbytes > LARGE_NBYTES:
        row = field.nbytes if field.planned is None else field.planned
        few = min(nbytes, max(_FEW_NBYTES, 2 * row))
        return Field(spec, estimate=few, planned=few)
    return Field(
        spec, most if field.spec.is_fixed and not is_whole else None, estimate=nbytes, tops=tops
    )


def longest_batch(batch_size: int, num_rows: int | None) -> int:
    """Return how many rows the longest batch has, of `num_rows` in all."""
    return batch_size if num_rows is None else min(batch_size, max(1, num_rows))


GroupRows = Callable[[int, Text | Ragged, Index, ArraySpec, Allocate], Ragged]
"""Makes batches of the rows of field i, of the given lengths: (i, rows, lengths, spec, allocate)."""


class Grouping:
    """Rows to be read straight into the memory of the batches they belong to.

    `lengths` are the numbers of rows of the batches. Rows of fixed size need no copy: the batches of a
    column are its groups. Text and ragged rows are read as rows, and made into batches by `finish`.
    """

    def __init__(
        self, node: Node, out: Block, lengths: Index, batch_size: int, context: Context
    ) -> None:
        self.fields = node.fields
        self.out = out
        self.lengths = lengths
        self.batch_size = batch_size
        self.slots: Index | None = None
        self.num_values = self.room = 0
        """Values of ragged rows, and the values of the batches that they are in, which may be padded."""
        if bool((lengths[:-1] != batch_size).any()):
            self.slots = spans(np.arange(len(lengths)) * batch_size, lengths)
        self.beside: list[tuple[Fixed, Fixed]] = []
        sinks: list[Sink] = []
        for field, sink in zip(node.fields, out.sinks, strict=True):
            if isinstance(sink, Pieces) and field.storage_shape is not None:
                # The rows are batches themselves, some cut short, and will be padded: read them unpadded.
                rows = int(lengths.sum())
                sinks += allocate_block([field], rows, context.allocate, aligned=False).sinks
            elif isinstance(sink, Pieces):
                sinks.append(Pieces(field.spec, sink.allocate, aligned=False))
            else:
                sinks.append(self._rows_of(field, sink, context))
        self.rows = Block(sinks, int(lengths.sum()), out.leases)

    def _rows_of(self, field: Field, sink: Fixed, context: Context) -> Fixed:
        """Return a column to read rows into: the memory of the batches itself, if the layout allows it."""
        if sink.lengths is not None:
            sink.put_lengths(self.lengths)
        if len(sink.grouped) == 1:
            slots = self.slots
            if sink.slots is not None:
                slots = spans(sink.slots * self.batch_size, self.lengths)
            return Fixed(sink.grouped[0], slots)
        # Batches of batches have two kinds of gaps, which one stride can't express: read the rows into
        # memory of their own, and copy them in `finish`.
        num_rows = len(self.lengths) * self.batch_size
        block = allocate_block([field], num_rows, context.allocate, aligned=False)
        beside = block.sinks[0]
        assert isinstance(beside, Fixed)
        self.beside.append((sink, beside))
        return Fixed(beside.grouped, self.slots)

    def finish(self, group: GroupRows) -> None:
        """Put rows that could not be read in place into their batches."""
        for batches, beside in self.beside:
            flat = beside.rows
            batches.put(flat.reshape(len(self.lengths), self.batch_size, *flat.shape[1:]))
        for number, (rows, sink) in enumerate(zip(self.rows.sinks, self.out.sinks, strict=True)):
            if not isinstance(sink, Pieces):
                continue
            spec = self.fields[number].spec
            if isinstance(rows, Pieces):
                column = rows.finish()
            elif rows.lengths is None:
                flat = rows.rows[: self.rows.num_rows].reshape(-1)
                sizes = np.full(self.rows.num_rows, math.prod(spec.fixed_shape))
                shapes = np.tile(np.array(spec.fixed_shape, np.int64), (len(sizes), 1))
                column = Ragged(flat, starts_of(sizes, 1, aligned=False), shapes)
            else:
                values = [rows.value(row) for row in range(self.rows.num_rows)]
                column = column_of(values, spec, sink.allocate, aligned=False)
            made = group(number, column, self.lengths, spec, sink.allocate)
            if isinstance(column, Ragged) and None in spec.shape:
                self.num_values += int(column.shapes.prod(axis=1).sum())
                self.room += int(made.shapes.prod(axis=1).sum())
            sink.add(made)


def group(column: Text | Ragged, lengths: Index, spec: ArraySpec) -> Ragged:
    """Return batches of `lengths` rows; the rows of the column lie packed, each in the shape of `spec`."""
    inner = np.array(spec.fixed_shape, np.int64)
    shapes = np.empty((len(lengths), 1 + len(inner)), np.int64)
    shapes[:, 0] = lengths
    shapes[:, 1:] = inner
    starts = starts_of(lengths * int(inner.prod()), 1, aligned=False)
    return Ragged(column if isinstance(column, Text) else column.values_, starts, shapes)


def batch_lengths(batches: Index, batch_size: int, num_rows: int) -> Index:
    """Return how many rows each of these batches has, if all batches together have `num_rows`."""
    return np.minimum(batch_size, num_rows - batches * batch_size)


def check_batchable(fields: Sequence[Field], names: Sequence[str], call: str) -> None:
    """Raise if rows differ in shape, so that they can't be stacked."""
    for field, name in zip(fields, names, strict=True):
        if None in field.spec.shape:
            text = f"{call} can't stack rows whose shapes differ: field {name!r} is {field.spec}."
            raise ValueError("\n".join([text, *_cures(field.spec, call)]))


def _cures(spec: ArraySpec, call: str) -> Iterator[str]:
    """Yield what brings rows to one shape."""
    if spec.dtype == np.uint8 and spec.shape[:2] == (None, None) and spec.shape[2:] in ((1,), (3,)):
        yield "  bring images to one size: ps.from_files(..., size=(224, 224)), ps.ImageFeature((224, 224))"
    if call.startswith("batch("):
        yield f"  pad them: .padded_{call}"
    else:
        yield "  bring them to one shape: .map(...)"
    yield "  or, for batches of batches: batch(..., drop_remainder=True)"
