"""What zip, concatenate and mix share: reading rows of several inputs into one block."""

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, raw_rows
from penstock.core.blocks import Block, Sink
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.nest import field_names
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.route import Route
from penstock.core.rows import Context, Flow, Node, Rows, RowSet, count
from penstock.errors import SpecMismatchError


def over(node: Any, inputs: Sequence[Rows]) -> Rows:
    """Return the same combination of inputs that differ in what they load, not in their rows."""
    made: Rows = copy.copy(node)
    made.nodes = made.inputs = tuple(inputs)  # type: ignore[attr-defined]
    return made


def merged_fields(nodes: Sequence[Node], call: str) -> tuple[Field, ...]:
    """Return fields that the rows of every node fit into; raise if there are none."""
    first = nodes[0]
    fields = list(first.fields)
    for number, node in enumerate(nodes[1:], start=1):
        if node.structure != first.structure:
            raise SpecMismatchError(
                f"{call} needs rows of one structure, got {first.spec} and, in input {number}, {node.spec}."
            )
        for place, (mine, theirs) in enumerate(zip(fields, node.fields, strict=True)):
            spec = mine.spec.merged(theirs.spec)
            if spec is None:
                name = field_names(first.structure)[place]
                raise SpecMismatchError(
                    f"{call} needs rows of one spec, got {mine.spec} for field {name!r} and, "
                    f"in input {number}, {theirs.spec}."
                )
            fields[place] = Field(
                spec,
                _most(mine, theirs, is_fixed=spec.is_fixed),
                max(mine.nbytes, theirs.nbytes),
                planned=_planned(mine, theirs),
                tops=_tops(mine, theirs),
            )
    return tuple(fields)


def _planned(mine: Field, theirs: Field) -> int | None:
    known = [field.planned for field in (mine, theirs) if field.planned is not None]
    return max(mine.most_nbytes(1), theirs.most_nbytes(1)) if known else None


def _tops(mine: Field, theirs: Field) -> tuple[int, ...]:
    """Return the bytes of the 1, 2, 4, ... largest rows of both together; nothing if one does not know its sizes."""
    if not all(field.tops or field.storage_shape is not None for field in (mine, theirs)):
        return ()
    count = 1 + max(len(mine.tops), len(theirs.tops))
    both = [
        (mine.most_nbytes(1 << power), theirs.most_nbytes(1 << power)) for power in range(count)
    ]
    return (max(both[0]), *(sum(pair) for pair in both[1:])) if mine.tops or theirs.tops else ()


def _most(mine: Field, theirs: Field, *, is_fixed: bool) -> int | None:
    shapes = [mine.storage_shape, theirs.storage_shape]
    known = [shape for shape in shapes if shape is not None]
    if is_fixed or len(known) < 2 or known[0][1:] != known[1][1:]:
        return None
    return max(shape[0] for shape in known)


def read_part(
    node: Rows, rows: RowSet, out: Block, fields: Sequence[Field], context: Context
) -> None:
    """Read rows of one input into a block for rows of all inputs, whose fields may be wider."""
    if all(
        mine.storage_shape == theirs.storage_shape
        for mine, theirs in zip(node.fields, fields, strict=True)
    ):
        node.read(rows, out, context)
        return
    size = count(rows)
    block = context.block(node, size)
    node.read(rows, block, context)
    transfer(block.finish(), np.arange(size), out)


def read_parts(
    node: Rows, nodes: Sequence[Rows], owners: Index, numbers: Index, out: Block, context: Context
) -> None:
    """Read row `numbers[j]` of input `owners[j]` into place j of a block of `node`, for each j.

    There may be hundreds of inputs, with a few rows of each in a block: rows that lie in memory are copied from there,
    without a read for each input.
    """
    if len(owners) and (owners == owners[0]).all():
        read_part(nodes[int(owners[0])], numbers, out, node.fields, context)
        return
    # NumPy sorts numbers of 16 bits several times as fast.
    order = np.argsort(owners.astype(np.uint16) if len(nodes) <= 1 << 16 else owners, kind="stable")
    numbers = numbers[order]
    edges = [0, *np.cumsum(np.bincount(owners, minlength=len(nodes))).tolist()]
    places = _Places(out.sinks, order) if all(map(_is_plain, out.sinks)) else None
    routes = context.resources.get(("routes", id(node)), lambda: _Routes(nodes)).at(context.epoch)
    for owner in np.flatnonzero(np.diff(edges)).tolist():
        one, start, stop = nodes[owner], edges[owner], edges[owner + 1]
        mine = numbers[start:stop]
        route = routes[owner]
        found = None if places is None or route is None else route.located(mine)
        if places is None or found is None or not places.fit(found[0]):
            read_part(one, mine, out.at(order[start:stop]), node.fields, context)
            continue
        places.gather(*found, start, stop)
        context.clock.add(one, 0.0, stop - start)  # The time is counted for `node`.


def _is_plain(sink: Sink) -> bool:
    return isinstance(sink, Fixed) and sink.lengths is None


class _Routes:
    """The routes of the inputs in the epoch that is read."""

    def __init__(self, nodes: Sequence[Rows]) -> None:
        self._nodes = nodes
        self._made: tuple[int, list[Route | None]] = (-1, [])

    def at(self, epoch: int) -> list[Route | None]:
        """Return the route of each input, or None; threads in different epochs may make them anew."""
        last, routes = self._made
        if last != epoch:
            routes = [node.route(epoch) for node in self._nodes]
            self._made = epoch, routes
        return routes

    def close(self) -> None:
        """Let go of them."""
        self._made = (-1, [])


class _Places:
    """The memory of a block, for rows that come from several inputs, sorted by input."""

    def __init__(self, sinks: Sequence[Sink], order: Index) -> None:
        fixed = [sink for sink in sinks if isinstance(sink, Fixed)]
        self._raws = [raw_rows(sink.grouped, 2) for sink in fixed]
        self._slots = [order if sink.slots is None else sink.slots[order] for sink in fixed]
        self._widths = [raw.shape[2] for raw in self._raws]

    def fit(self, sources: Sequence[Array]) -> bool:
        """Return whether rows of these arrays have the size of the rows here."""
        return [source.shape[1] for source in sources] == self._widths

    def gather(self, sources: Sequence[Array], rows: Index, start: int, stop: int) -> None:
        """Copy rows to the places from `start` to `stop`."""
        for source, raw, slots in zip(sources, self._raws, self._slots, strict=True):
            if raw.shape[2]:
                _native.gather(source, rows, raw, slots[start:stop])


def transfer(source: Block, rows: Index, out: Block) -> None:
    """Copy rows to a block whose columns may be of another kind, with room for longer rows."""
    for column, sink in zip(source.columns, out.sinks, strict=True):
        if not isinstance(sink, Fixed):
            if isinstance(column, Fixed):
                sink.put([column.value(row) for row in rows.tolist()])
            else:
                sink.copy_from(column, rows)
            continue
        assert isinstance(column, Fixed)
        if column.grouped.shape[2:] == sink.grouped.shape[2:]:
            sink.copy_from(column, rows)
            continue
        values = [column.value(row) for row in rows.tolist()]
        sink.put_lengths(np.array([len(value) for value in values], np.int64))
        for place, value in enumerate(values):
            slot = place if sink.slots is None else int(sink.slots[place])
            sink.grouped[divmod(slot, sink.grouped.shape[1])][: len(value)] = value


class Puller:
    """Takes any number of rows at a time from a flow, and knows the cursor after each row."""

    def __init__(self, flow: Flow, cursor: Cursor, context: Context) -> None:
        parcels = flow.parcels(cursor, context)
        self.parcels: Iterator[Parcel] = context.executor.pumped(parcels, of=flow)
        self.parcel: Parcel | None = None
        self.used = 0
        self.start = cursor

    def available(self) -> int:
        """Return how many rows `take` can copy now; 0 at the end of the flow."""
        while self.parcel is None or self.used == self.parcel.size:
            if self.parcel is not None:
                self.start = self.parcel.cursor_after(self.parcel.size)
            self.parcel = next(self.parcels, None)
            self.used = 0
            if self.parcel is None:
                self.parcels = iter(())
                return 0
        return self.parcel.size - self.used

    def take(self, num_rows: int, out: Block) -> None:
        """Copy the next `num_rows` rows, which must not be more than `available` returned."""
        assert self.parcel is not None
        transfer(self.parcel.block, np.arange(self.used, self.used + num_rows), out)
        self.used += num_rows

    def cursors(self) -> tuple[CursorAfter, int]:
        """Return the function that gives the cursors of the current parcel, and how many of its rows are used."""
        if self.parcel is None:
            start = self.start
            return (lambda _: start), 0
        return self.parcel.cursor_after, self.used
