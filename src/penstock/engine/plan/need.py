"""Which budget a chain needs, by the rows that it really has: for a stream that was refused memory.

Most of it is known from the plan. What is not, is looked at only now: how many bytes the rows of a flow take that a
cache in memory shall keep, and how large those rows are whose sizes nobody knew.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from penstock.core.blocks import varying_nbytes
from penstock.core.fingerprint import walk
from penstock.core.rows import Flow, Node
from penstock.core.sizes import Seen, Sizes
from penstock.engine.plan.looking import (
    Look,
    Pinned,
    Spread,
    known,
    lines_nbytes,
    look_at_all,
    may_look,
    plain,
)
from penstock.engine.plan.plan import Choice, Plan, choose, chosen_nbytes
from penstock.errors import BudgetError
from penstock.memory.budget import host_nbytes
from penstock.stages.base.segment import Segment, as_flow
from penstock.stages.batch import BatchedFlow, BatchedRows
from penstock.stages.cache.in_memory import FlowInMemory
from penstock.stages.shuffle.forward import ShuffledFlow
from penstock.stages.unbatch import UnbatchedFlow, UnbatchedRows
from penstock.stages.window import SeriesWindows

LOOK_SECONDS = 30.0
"""How long rows are looked at: a refusal should not take as long as an epoch."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the rows of a chain, after a look at them."""

    node: Node
    """The chain, of nodes that know the sizes of their rows: to plan with, not to run."""
    sizes: Sizes
    largest: dict[int, int]
    """The bytes of the largest row of each node, by its id, as far as rows differ."""
    cached: int
    """Bytes of caches in memory."""
    windows: int
    """Bytes of windows beyond what is planned for them."""
    beside: int
    """Bytes that reading takes besides."""
    is_whole: bool
    """Whether all rows were looked at."""

    def fits(self, node: Node, choices: Sequence[Choice], room: int) -> bool:
        """Return whether a stream of `node`, a chain without these facts, fits into `room` if it has as much."""
        choice = choices[choose(node, as_flow(node), room, choices)]
        return self.need(choice) <= room

    def need(self, choice: Choice) -> int:
        """Return the bytes that the chain takes, with the blocks that were chosen for it."""
        blocks = blocks_nbytes(self.node, choice, self.largest, self.sizes)
        return blocks + self.cached + self.windows + self.beside


def look(plan: Plan, sizes: Sizes, error: BudgetError | None = None) -> Facts:
    """Look at the rows of a chain, as far as their sizes are not known, for a while.

    `error` is what was raised in the middle of it: the rows that it asked memory for were not seen yet.
    """
    until = monotonic() + LOOK_SECONDS
    found, is_seen = look_at_all(plan.node, sizes, until, plan.budget)
    cached, windows, is_whole = _count(plan, sizes, until)
    node = known(plan.node, found, sizes)
    largest = largest_rows(node, sizes)
    if error is not None and not is_seen and any(one.is_varying for one in walk(plan.node)):
        largest[id(node)] = max(largest[id(node)], error.nbytes)
    cached += sum(node.cache_nbytes().values()) + _filled_nbytes(plan)
    beside = lines_nbytes(node, sizes)
    return Facts(node, sizes, largest, cached, windows, beside, is_whole and is_seen)


def enough(plan: Plan, facts: Facts, error: BudgetError | None = None) -> int:
    """Return a budget with which a plan runs to its end."""
    least = plan.need
    if error is None and not any(
        isinstance(one, Flow) or one.is_varying for one in walk(plan.node)
    ):
        return least  # All sizes were known to the plan.
    while True:
        # More memory makes for more and larger blocks, which then need more.
        choice = plan.choices[choose(plan.node, plan.flow, least, plan.choices)]
        need = facts.need(choice)
        if need <= least:
            break
        least = need
    if error is not None and least <= plan.budget:
        least = 2 * plan.budget  # It was not enough, whatever the plan says.
    return least


def blocks_nbytes(node: Node, choice: Choice, largest: dict[int, int], sizes: Sizes) -> int:
    """Return the bytes that a chain holds at most, by the bytes of the largest row of each of its nodes."""
    segments: list[Pinned] = []

    def pin(one: Node) -> Node:
        if not isinstance(one, Segment):
            return one
        # Where rows are about as long as was planned, their sizes are not known: a few may be longer.
        if any(field.storage_shape is None and not field.tops for field in one.fields):
            return one
        segments.append(Pinned(one.rows, choice.block_nbytes))
        return segments[-1]

    flow = changed(as_flow(node), pin, {})
    parcel = max((one.parcel_nbytes for one in segments), default=0)
    nodes = list(walk(node))
    row = max((largest[id(one)] for one in nodes if not one.is_batched), default=0)
    for at, one in enumerate(nodes):
        if isinstance(one, UnbatchedFlow | UnbatchedRows) and one.row_nbytes:
            # What one batch becomes stays together, and stages behind it may make its rows wider.
            wide = _widest_behind(one, nodes[at:])
            row = max(row, -(-largest[id(one.inputs[0])] * wide // one.row_nbytes))
    # Twice: rows are there as pieces, and joined.
    block = max(choice.block_nbytes, 2 * row, parcel)
    nbytes = chosen_nbytes(node, flow, replace(choice, block_nbytes=block))
    # Batches are few at once, and may be far larger than their rows: so not all stages get room for some of them.
    tops: dict[int, int] = {}
    for one in nodes:
        if one.is_batched and isinstance(one, Flow) and id(one) not in tops:
            own = largest[id(one)]
            tops[id(one)] = _largest_batches(one, own, choice.ahead + 3, tops, sizes)
            nbytes += 2 * own + tops[id(one)] if own > choice.block_nbytes else 0
    return nbytes


def _widest_behind(node: Node, later: Sequence[Node]) -> int:
    """Return the bytes of the widest rows that are made of those of a node, one of each."""
    behind, wide = {id(node)}, node.row_nbytes
    for one in later:
        # Behind a zip or a mix, they come in pieces.
        if len(one.inputs) == 1 and id(one.inputs[0]) in behind and not one.is_batched:
            behind.add(id(one))
            wide = max(wide, one.row_nbytes)
    return wide


def _largest_batches(node: Flow, own: int, count: int, tops: dict[int, int], sizes: Sizes) -> int:
    """Return the bytes of the `count` largest batches of a node, the largest of which has `own`."""
    if isinstance(node, BatchedFlow) and (sums := sizes.of(node).row_tops):
        size, power = node.batch_size, (count - 1).bit_length()
        if _is_padded(node):
            return min(count * own, size * sums[min(power, len(sums) - 1)])
        rows = (size * count - 1).bit_length()
        return min(count * own, sums[min(rows, len(sums) - 1)])
    return min(count * own, tops.get(id(node.inputs[0]), count * own))


def _is_padded(node: BatchedFlow | BatchedRows) -> bool:
    return any(None in field.spec.shape for field in node.input.fields)


def _count(plan: Plan, sizes: Sizes, until: float) -> tuple[int, int, bool]:
    """Return the bytes of caches and windows that nobody knew the size of, by reading what they shall keep.

    Also whether all was read.
    """
    cached, windows, most = 0, 0, host_nbytes()
    is_whole = True
    counted: set[int] = set()
    for node in walk(plan.node):
        if not may_look(node, plan.budget):
            is_whole = is_whole and not isinstance(node, FlowInMemory | ShuffledFlow | BatchedFlow)
        elif isinstance(node, FlowInMemory) and 0 in _own_cache(node).values():
            store = id(node.store)
            if store in counted:
                continue
            counted.add(store)
            with Look(node, plan.budget) as look:
                try:
                    cached += node.count_nbytes(look.context, most, until)
                except BudgetError:
                    is_whole = False
        elif isinstance(node, ShuffledFlow) and node.planned_nbytes < node.window_nbytes:
            with Look(node, plan.budget) as look:
                try:
                    windows += node.count_nbytes(look.context, most, until)
                except BudgetError:
                    is_whole = False
        elif isinstance(node, BatchedFlow) and (
            node.is_varying or any(field.planned for field in node.fields)
        ):
            with Look(node, plan.budget) as look:
                try:
                    _count_rows(node, sizes.seen.setdefault(id(node), Seen()), most, until, look)
                except BudgetError:
                    is_whole = False
        is_whole = is_whole and max(cached, windows) <= most and monotonic() <= until
    return cached, windows, is_whole


def _count_rows(node: BatchedFlow, seen: Seen, most: int, until: float, look: Look) -> None:
    """Note how many rows the largest batch has, and how large the largest rows are."""
    num_rows = nbytes = 0
    spread = Spread()
    for parcel in look.parcels(plain(node.inputs[0], [])):
        num_rows += parcel.size
        sizes = varying_nbytes(parcel.block, parcel.size)
        nbytes += int(sizes.sum())
        spread.add(sizes)
        if num_rows * node.input.row_nbytes > most or monotonic() > until:
            seen.batch_rows = min(num_rows, node.batch_size)
            return
    seen.batch_rows, seen.row_tops = min(num_rows, node.batch_size), spread.tops()
    seen.batch_nbytes = nbytes if num_rows <= node.batch_size else 0


def _own_cache(node: FlowInMemory) -> dict[int, int]:
    return {
        store: nbytes for store, nbytes in node.cache_nbytes().items() if store == id(node.store)
    }


def largest_rows(node: Node, sizes: Sizes) -> dict[int, int]:
    """Return the bytes of the largest row of each node of a chain, by its id, as far as its rows differ."""
    found: dict[int, int] = {}
    for one in walk(node):
        rows = [found[id(child)] for child in one.inputs]
        varying = [field for field in one.fields if field.storage_shape is None]
        own = sizes.of(one).largest
        if isinstance(one, BatchedFlow | BatchedRows) and (varying or sizes.of(one).batch_rows):
            own = max(own, _largest_batch(one, rows[0], sizes.of(one)))
        elif varying and all(field.tops for field in varying):
            own = sum(field.tops[0] for field in varying)
        elif isinstance(one, SeriesWindows):
            own = max(own, one.stage.size * rows[0])
        elif not own and varying:
            own = sum(rows) if len(rows) > 1 else max(rows, default=0)
        found[id(one)] = 0 if one.num_rows == 0 else own  # Three rows have no window of a million.
    return found


def _largest_batch(node: BatchedFlow | BatchedRows, row: int, seen: Seen) -> int:
    """Return the bytes of the largest batch, of rows of up to `row` bytes, as far as they differ."""
    is_unknown = any(field.planned is not None for field in node.fields)
    if is_unknown and not seen.batch_rows:
        return 0
    size = seen.batch_rows or node.batch_size
    most = size * max(row, node.input.row_nbytes if is_unknown else 0)
    fixed = size * node.input.row_nbytes if is_unknown else 0
    if seen.batch_nbytes and not _is_padded(node):
        return min(most, seen.batch_nbytes + fixed)
    return most


def _filled_nbytes(plan: Plan) -> int:
    """Return the bytes of the caches that are full, or being filled: they stay."""
    unfilled = plan.node.cache_nbytes()
    stores = {id(s): s for node in walk(plan.node) if (s := getattr(node, "store", None))}
    filled = [store for number, store in stores.items() if number not in unfilled]
    return sum(store.account.grant for store in filled if store.account is not None)


def changed(node: Node, change: Callable[[Node], Node], done: dict[int, Any]) -> Any:
    """Return a copy of a chain with every node changed, inputs first: to plan with, not to run."""
    if id(node) in done:
        return done[id(node)]
    new = copy.copy(node)
    for name, value in vars(node).items():
        if isinstance(value, Node):
            setattr(new, name, changed(value, change, done))
        elif (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(one, Node) for one in value)
        ):
            setattr(new, name, type(value)(changed(one, change, done) for one in value))
    done[id(node)] = change(new)
    return done[id(node)]
