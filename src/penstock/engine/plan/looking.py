"""A look at rows whose sizes nobody knew, once a stream was refused memory: from then on a plan can know them."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Self

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import column_nbytes
from penstock.core.clock import Clock
from penstock.core.columns import Fixed
from penstock.core.executors import Inline
from penstock.core.fields import block_nbytes
from penstock.core.fingerprint import walk
from penstock.core.parcels import Parcel
from penstock.core.resources import Resources
from penstock.core.rows import Context, Flow, Node, Rows, rows_per_block
from penstock.core.sizes import Seen, Sizes
from penstock.engine.functions.task import FunctionNode
from penstock.engine.plan.plan import BLOCK_NBYTES, total_nbytes
from penstock.errors import PenstockError
from penstock.io.formats.lines import TEXT_NBYTES
from penstock.memory import Account, Ledger, Pool, default_budget
from penstock.sources.reading.file_rows import FileRows
from penstock.sources.reading.line_flow import LineFlow
from penstock.stages.base.segment import Segment, as_flow
from penstock.stages.cache.base import CacheFlow, CacheRows
from penstock.stages.flat_map import FlatMappedFlow
from penstock.stages.repeat import RepeatedFlow, RepeatedRows
from penstock.stages.shard import Shard
from penstock.stages.shuffle.stage import Shuffle
from penstock.stages.skip import Skip
from penstock.stages.take import Take
from penstock.stages.unbatch import UnbatchedFlow, UnbatchedRows

_LOOK_NBYTES = 1 << 18  # The blocks of a flow that is only looked at.
_LEAST_NBYTES = 64 << 20  # A look may take so much, however small the budget is.
_FAR_MORE = 3  # So many times what is planned: for less, there is room.
_ROW_NBYTES = 16  # What a row takes besides its values: where it begins, and its shape.


@dataclass(frozen=True, slots=True)
class Found:
    """What was found out about the rows of a node."""

    num_rows: int
    tops: tuple[tuple[int, ...], ...]
    """For each field the bytes of the 1, 2, 4, ... largest rows; none for fields of one size."""


class Look:
    """A context to look at all rows of a node, with little memory, none of which is the stream's.

    A stream that is refused may have a tiny budget, and the machine, or its container, little left.
    """

    def __init__(self, node: Node, budget: int) -> None:
        account = Account(Ledger(), node.describe())
        account.open(budget=_room(budget), need=0, want=0, why="a look at the rows")
        self.pool = Pool(account)
        self.resources = Resources()
        self.sizes = Sizes()
        # No budget: nothing is cached, no window is held.
        self.context = Context(
            0,
            self.pool.lease,
            Inline(),
            Clock(),
            self.resources,
            _LOOK_NBYTES,
            hold=self.pool.hold,
            sizes=self.sizes,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.resources.close()
        self.pool.close()

    def parcels(self, node: Node) -> Iterator[Parcel]:
        """Yield all rows of a node."""
        return as_flow(node).parcels(None, self.context)


def may_look(node: Node, budget: int) -> bool:
    """Return whether there is room to look at the rows of a node: row groups, say, are unpacked whole by libraries."""
    files = (one for one in walk(node) if isinstance(one, FileRows))
    return sum(total_nbytes(as_flow(one), _LOOK_NBYTES, 0) for one in files) <= _room(budget)


def _room(budget: int) -> int:
    return min(default_budget(), max(budget, _LEAST_NBYTES))


class Spread:
    """How many rows of a field have which size, rounded up to four digits (of two): so few numbers tell of any rows."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def add(self, sizes: Index) -> None:
        """Count some rows."""
        digits = np.maximum(np.frexp(sizes.astype(np.float64))[1] - 4, 0).astype(np.int64)
        rounded = -(-sizes >> digits) << digits
        values, counts = np.unique(rounded, return_counts=True)
        for size, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.counts[size] = self.counts.get(size, 0) + count

    def tops(self) -> tuple[int, ...]:
        """Return the sums of the 1, 2, 4, ... largest, and of all, as `tops_of` does."""
        found: list[int] = []
        num_rows = total = 0
        last = sum(self.counts.values())
        for size, count in sorted(self.counts.items(), reverse=True):
            while (wanted := min(last, 1 << len(found))) <= num_rows + count:
                found.append(total + (wanted - num_rows) * size)
                if wanted == last:
                    return tuple(found)
            num_rows, total = num_rows + count, total + count * size
        return tuple(found)


def look_at_all(
    node: Node, sizes: Sizes, until: float, budget: int
) -> tuple[dict[int, Found], bool]:
    """Look at all rows of a chain whose sizes nobody knew, until the time `until` of `monotonic`.

    Return how large they are, where that is far more than was planned, by the ids of the nodes that are read by their
    row numbers; and whether all were seen. The largest rows are noted in `sizes`, too.
    """
    found: dict[int, Found] = {}
    is_whole = True
    passed: set[int] = set()
    for one in reversed(list(walk(node))):
        if not _is_open(one) or id(one) in passed:
            continue
        if not may_look(one, budget):
            is_whole = False
            continue
        originals: list[tuple[Node, Node]] = []
        simple = plain(one, originals)
        with Look(one, budget) as look:
            spreads = [Spread() for _ in one.fields]
            num_rows, is_all = _pass_over(look, simple, spreads, until)
            # `simple` may be the node itself, but not that of another look.
            ids = {id(made): original for original, made in originals} | {id(simple): one}
            ids = {id(inner): inner for inner in walk(one)} | ids
            for number, seen in look.sizes.seen.items():
                if number in ids:
                    _merge(sizes, ids[number], seen)
                    if is_all and isinstance(ids[number], Flow):
                        passed.add(id(ids[number]))
        is_whole = is_whole and is_all
        if isinstance(one, Rows | CacheFlow):
            passed.add(id(one))
            tops = tuple(spread.tops() for spread in spreads)
            if _is_longer(one, num_rows, tops):
                found[id(one)] = Found(num_rows, tops)
    return found, is_whole


def _is_open(node: Node) -> bool:
    """Return whether a node has rows of sizes that are not known from its input, or which it reads by number later."""
    kinds = FunctionNode | FlatMappedFlow | UnbatchedFlow | UnbatchedRows | CacheFlow
    makes = not node.inputs or isinstance(node, kinds)
    return makes and any(
        field.storage_shape is None and not field.tops and field.planned is None
        for field in node.fields
    )


def _is_longer(node: Node, num_rows: int, tops: Sequence[tuple[int, ...]]) -> bool:
    """Return whether blocks may have far more bytes than is planned for them: long rows follow each other."""
    rows = min(rows_per_block(node, BLOCK_NBYTES), max(1, num_rows))
    found = (replace(field, tops=sums) for field, sums in zip(node.fields, tops, strict=True))
    return block_nbytes(tuple(found), rows, aligned=False) > _FAR_MORE * rows * node.row_nbytes


def _pass_over(look: Look, node: Node, spreads: Sequence[Spread], until: float) -> tuple[int, bool]:
    """Count the rows of a node by their sizes; return how many there are, and whether that is all."""
    num_rows = 0
    try:
        for parcel in look.parcels(node):
            num_rows += parcel.size
            for column, spread in zip(parcel.block.columns, spreads, strict=True):
                if not isinstance(column, Fixed):
                    spread.add(column_nbytes(column, parcel.size) + _ROW_NBYTES)
            if monotonic() > until:
                return num_rows, False
    except PenstockError:
        return num_rows, False  # What it is will be raised when the stream comes to it.
    return num_rows, True


def _merge(sizes: Sizes, node: Node, seen: Seen) -> None:
    known = sizes.seen.setdefault(id(node), Seen())
    if seen.largest > known.largest:
        seen.batch_rows, seen.batch_nbytes = known.batch_rows, known.batch_nbytes
        seen.row_tops = known.row_tops
        sizes.seen[id(node)] = seen


def plain(node: Node, made: list[tuple[Node, Node]]) -> Node:
    """Return a chain with rows of the same sizes that is quick to read forward, and ends: not shuffled, not repeated.

    Pairs of a node and what stands for it are added to `made`.
    """
    inputs = [plain(child, made) for child in node.inputs]
    stage = getattr(node, "stage", None)
    if isinstance(node, RepeatedFlow | RepeatedRows) or isinstance(stage, Shuffle):
        return inputs[0]
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    if isinstance(stage, Take | Skip | Shard):
        return inputs[0]  # Any of the rows may be those that are taken.
    try:
        new = rebuilt(node, inputs)
    except (PenstockError, TypeError, ValueError):  # Inputs of a zip, say, have other lengths now.
        return node
    made.append((node, new))
    return new


def rebuilt(node: Node, inputs: Sequence[Node]) -> Node:
    """Return the node that the same stage makes of other inputs: no function is tried, no cache begun anew."""
    if not isinstance(node, FunctionNode | CacheRows | CacheFlow):
        return node.rebuilt(inputs)
    new: Any = copy.copy(node)
    new.inputs = tuple(inputs)
    new.input = inputs[0] if isinstance(new, Rows) else as_flow(inputs[0])
    if new.num_rows is not None:
        new.num_rows = inputs[0].num_rows
    if isinstance(new, CacheRows | CacheFlow) or not hasattr(node, "decision"):
        new.fields = inputs[0].fields
    made: Node = new
    return made


def known(node: Node, found: Mapping[int, Found], sizes: Sizes) -> Node:
    """Return a chain like `node` that knows the sizes of the rows that were looked at: to plan with, not to run.

    What was noted of a node in `sizes` is noted of the new one, too.
    """
    inputs = [known(child, found, sizes) for child in node.inputs]
    new = node
    if any(one is not old for one, old in zip(inputs, node.inputs, strict=True)):
        new = rebuilt(node, inputs)
    if id(node) in found:
        new = copy.copy(new)
        tops = found[id(node)].tops
        new.num_rows = found[id(node)].num_rows if new.num_rows is None else new.num_rows
        new.fields = tuple(
            replace(field, tops=nbytes) if nbytes else field
            for field, nbytes in zip(new.fields, tops, strict=True)
        )
        if isinstance(new, FileRows):
            leaves = []
            for leaf, nbytes in zip(new.widest_leaves(), tops, strict=True):
                leaves.append(copy.copy(leaf))
                leaves[-1].field = replace(leaf.field, tops=nbytes)
            new.widest = tuple(leaves)
    if new is not node:
        sizes.seen[id(new)] = sizes.of(node)
    return new


def lines_nbytes(node: Node, sizes: Sizes) -> int:
    """Return the bytes that lines of text take while they are read, where one is longer than a piece usually is."""
    nbytes = 0
    for one in walk(node):
        if isinstance(one, LineFlow) and (longest := sizes.of(one).largest) > TEXT_NBYTES:
            # It is read with what follows it in its piece, and stays while its row is made.
            nbytes += (one.copies + 4) * (longest + TEXT_NBYTES)
    return nbytes


class Pinned(Segment):
    """All rows of a node, in blocks of one planned size, however large those of the flows behind it are."""

    def __init__(self, rows: Rows, planned: int) -> None:
        super().__init__(rows)
        self.planned = planned

    @property
    def parcel_nbytes(self) -> int:
        """The most bytes that one of its blocks takes."""
        return self.rows.block_nbytes(rows_per_block(self.rows, self.planned))

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of blocks of the planned size."""
        return super().holds_nbytes(self.planned, ahead)
