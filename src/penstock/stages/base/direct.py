"""Blocks that one native call fills: rows of arrays in memory, which arithmetic finds."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.parcels import Begun, Parcel
from penstock.core.route import Route
from penstock.core.rows import Context, Node, Rows


class Direct:
    """Begins blocks of the rows of a node: their memory and views are made at once, their rows come later."""

    def __init__(self, rows: Rows, route: Route, context: Context) -> None:
        self._rows = rows
        self._route = route
        self._context = context
        self._sized = (-1, 0)
        nodes = list(_route_nodes(rows))
        orders = [node for node in nodes if node.order_key() is not None]
        sources = [node for node in nodes if node.ends_routes or not node.inputs]
        # Time is measured for all sources together, and for all orders.
        self._shares = [
            (
                node,
                1 / len(sources) if node in sources else 0.0,
                1 / len(orders) if node in orders else 0.0,
            )
            for node in nodes
        ]

    def begin(self, span: tuple[int, int]) -> Begun:
        """Return the block of rows `span[0]` to `span[1]`, and the job that fills it."""
        start, stop = span
        size = stop - start
        layout = self._context.layout(self._rows, size)
        memory = self._context.allocate(layout.nbytes)
        batch_size = self._route.batch_size
        job = _native.Job(
            self._route.parts(start, stop), memory, layout.columns, batch_size or size
        )
        lengths = None
        if batch_size is not None and job.num_rows < size * batch_size:
            lengths = _lengths(size, batch_size, job.num_rows)
        block = layout.finished(memory, lengths)
        return Begun(Parcel(block, size, partial(advance, start)), job)

    def nbytes(self, span: tuple[int, int]) -> int:
        """Return the bytes of the block of rows `span[0]` to `span[1]`; nothing else is taken."""
        size = span[1] - span[0]
        if size != self._sized[0]:  # Most blocks have as many rows as the one before.
            self._sized = size, self._rows.block_nbytes(size)
        return self._sized[1]

    def end(self, begun: Begun) -> Parcel:
        """Count the time that a block took; return it."""
        job, parcel = begun.job, begun.parcel
        clock = self._context.clock
        thread, began, took, ordered, gathered = job.times
        add, num_rows = clock.add, job.num_rows
        for node, of_gather, of_order in self._shares:
            seconds = of_gather * gathered + of_order * ordered
            add(node, seconds, parcel.size if node.is_batched else num_rows)
        clock.note(self._rows, thread, began, took)
        return parcel


def _route_nodes(node: Node) -> Iterator[Rows]:
    """Yield the nodes that a route leads through, from its end on."""
    assert isinstance(node, Rows)
    if not node.ends_routes:
        for child in node.inputs:
            yield from _route_nodes(child)
    yield node


def _lengths(num_batches: int, batch_size: int, num_rows: int) -> Index:
    """Return how long each batch is, if the last one is cut short."""
    lengths = np.full(num_batches, batch_size, np.int64)
    lengths[-1] -= num_batches * batch_size - num_rows
    return lengths


def advance(start: int, offset: int) -> int:
    """Return the cursor after `offset` rows of a parcel that begins with row `start`."""
    return start + offset
