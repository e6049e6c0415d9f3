"""The first rows of a chain, read without a stream: on the calling thread, and hardly more than is shown."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.core.fingerprint import walk
from penstock.core.nest import field_names
from penstock.core.rows import Context, Flow, Node, Rows, plain_context
from penstock.core.spec import dtype_name
from penstock.memory import default_budget
from penstock.reports.peek import Peek, field_of

Row = tuple[Any, ...]


def peek(node: Node, num_rows: int, memory: int | None) -> Peek:
    """Return the first rows of epoch 0; of batches, the first rows of the first batch."""
    budget = default_budget() if memory is None else memory
    wanted = 1 if node.is_batched else num_rows
    most = max(1, min(wanted, budget // max(1, 2 * node.row_nbytes)))
    context = plain_context()
    try:
        found = list(_read(node, most, context))
    finally:
        context.resources.close()
    notes = []
    if most < min(wanted, node.num_rows or wanted):
        notes.append(f"the memory budget has room for {most} at a time.")
    if any(isinstance(one, Flow) and one.order_key() is not None for one in walk(node)):
        notes.append(
            "rows that can only be read forward are shown in their order: a shuffle would read a window."
        )
    shapes = [field.spec.shape for field in node.fields]
    title = _title(node, len(found))
    if node.is_batched and found:
        count, is_row = _batch(found[0])
        shapes = [shape[1:] if row else shape for shape, row in zip(shapes, is_row, strict=True)]
        found = [_row_of(found[0], number, is_row) for number in range(min(num_rows, count))]
        of = "" if node.num_rows is None or node.is_endless else f" of {node.num_rows}"
        title = f"the first {len(found)} of {count} rows of batch 0{of}"
    names = field_names(node.structure)
    fields = [
        field_of(name, dtype_name(field.spec.dtype), shape, [row[number] for row in found])
        for number, (name, field, shape) in enumerate(zip(names, node.fields, shapes, strict=True))
    ]
    return Peek(node.describe(), title, tuple(fields), tuple(found), tuple(notes))


def _read(node: Node, num_rows: int, context: Context) -> Iterator[Row]:
    """Yield the leaves of the first rows."""
    if isinstance(node, Rows):
        size = min(num_rows, node.num_rows)
        if not size:
            return
        block = context.block(node, size)
        node.read(slice(0, size), block, context)
        block.finish()
        yield from (_kept(block.row(number)) for number in range(size))
        return
    assert isinstance(node, Flow)
    parcels = node.parcels(None, context)
    try:
        for parcel in parcels:
            for number in range(min(parcel.size, num_rows)):
                yield _kept(parcel.block.row(number))
            num_rows -= parcel.size
            if num_rows <= 0:
                return
    finally:
        getattr(parcels, "close", lambda: None)()


def _kept(leaves: Sequence[Any]) -> Row:
    """Return copies: a view would keep all of its block."""
    return tuple(leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves)


def _batch(batch: Row) -> tuple[int, list[bool]]:
    """Return how many rows a batch has, and which of its leaves have one for each."""
    lengths = [len(leaf) if isinstance(leaf, np.ndarray) and leaf.ndim else None for leaf in batch]
    known = [length for length in lengths if length is not None]
    count = known[0] if known else 1
    return count, [length == count for length in lengths]


def _row_of(batch: Row, number: int, is_row: Sequence[bool]) -> Row:
    return tuple(leaf[number] if row else leaf for leaf, row in zip(batch, is_row, strict=True))


def _title(node: Node, shown: int) -> str:
    rows = "row" if shown == 1 else "rows"
    if not shown:
        return "no rows"
    if node.num_rows is None or node.is_endless:
        return f"the first {shown} {rows}"
    return (
        f"all {shown} {rows}"
        if shown == node.num_rows
        else f"the first {shown} of {node.num_rows} rows"
    )
