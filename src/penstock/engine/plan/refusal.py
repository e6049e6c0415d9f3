"""What a stream that is refused memory says: a budget with which it runs to its end, and the cure that helps.

Most of it is known from the plan. What is not, is looked at only now: how many bytes the rows of a flow take that a
cache in memory shall keep, and how large those rows are that turned out longer than planned.
"""

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.core.blocks import varying_nbytes
from penstock.core.fingerprint import walk
from penstock.core.lazy import lazy
from penstock.core.rows import Context, Cursor, Flow, Node, Parcel, Rows
from penstock.core.sizes import Seen, Sizes
from penstock.engine.plan.plan import Choice, Plan, choose, chosen_nbytes, total_nbytes
from penstock.errors import BudgetError
from penstock.memory import Account, Advice, format_nbytes
from penstock.memory.budget import host_nbytes
from penstock.stages.base.segment import Segment, as_flow
from penstock.stages.batch import BatchedFlow, BatchedRows
from penstock.stages.cache.in_memory import FlowInMemory
from penstock.stages.shuffle.forward import ShuffledFlow
from penstock.stages.shuffle.stage import resized
from penstock.stages.window import SeriesWindows

if TYPE_CHECKING:
    from penstock.engine.plan import looking
else:
    looking = lazy("penstock.engine.plan.looking")  # Most streams are never refused.

_LOOK_SECONDS = 30.0  # How long rows are looked at: a refusal should not take as long as an epoch.
_LEAST_WINDOW = 1 << 16


class Guarded(Iterator[Parcel]):
    """The parcels of a stream; a refusal on the way tells which budget would do, and what else would."""

    def __init__(
        self, plan: Plan, flow: Flow, cursor: Cursor, context: Context, account: Account
    ) -> None:
        self._plan = plan
        self._sizes = context.sizes
        self._account = account
        try:
            self._parcels = flow.parcels(cursor, context)
        except BudgetError as error:
            raise self._explained(error) from error

    def __next__(self) -> Parcel:
        """Return the next parcel."""
        try:
            return next(self._parcels)
        except BudgetError as error:
            raise self._explained(error) from error

    def close(self) -> None:
        """Close the generator that makes the parcels."""
        getattr(self._parcels, "close", lambda: None)()

    def _explained(self, error: BudgetError) -> BudgetError:
        need, is_whole = enough(self._plan, self._sizes, error)
        need += (others := _others(self._plan, self._account))
        if error.is_final:  # It names a budget for the row that it is about: others may be longer.
            named = re.sub(
                r"(?<=memory=)\d+", lambda text: str(max(need, int(text[0]))), str(error)
            )
            return BudgetError(named, is_final=True)
        text = f"{str(error).split(' Write with_options(')[0]}"
        longest = _longest(self._plan, self._sizes)
        if longest:
            text += f" The longest {'is' if is_whole else 'so far is'} {longest}."
        at_least = "" if is_whole else " at least, since there may be more rows than were looked at"
        cure = cure_for(self._plan, self._plan.budget - others)
        return BudgetError(f"{text} Write with_options(memory={need}), or more{at_least}{cure}.")


def advice(plan: Plan, room: int) -> Advice:
    """Return what would help a stream that does not get what its plan needs, of `room` bytes that there are."""
    need, _ = enough(plan, Sizes())
    return Advice(max(plan.need, need), cure_for(plan, room))


def enough(plan: Plan, sizes: Sizes, error: BudgetError | None = None) -> tuple[int, bool]:
    """Return a budget with which a plan runs to its end, and whether that is certain: all its rows were looked at.

    `error` is what was raised in the middle of it: the rows that it asked memory for were not seen yet.
    """
    until = monotonic() + _LOOK_SECONDS
    found, is_seen = looking.look_at_all(plan.node, sizes, until)
    counted, is_whole = _count(plan, sizes, until)
    is_whole = is_whole and is_seen
    node = looking.known(plan.node, found, sizes)
    largest = _largest(node, sizes)
    if error is not None and not is_seen and any(one.is_varying for one in walk(plan.node)):
        largest[id(node)] = max(largest[id(node)], error.nbytes)
    counted += sum(node.cache_nbytes().values()) + _filled_nbytes(plan)
    counted += looking.lines_nbytes(node, sizes)
    least = plan.need
    while True:
        # More memory makes for more and larger blocks, which then need more.
        choice = plan.choices[choose(plan.node, plan.flow, least, plan.choices)]
        blocks = counted + _blocks_nbytes(node, choice, largest, sizes)
        if blocks <= least:
            break
        least = blocks
    if error is not None and least <= plan.budget:
        least = 2 * plan.budget  # It was not enough, whatever the plan says.
    return least, is_whole


def _blocks_nbytes(node: Node, choice: Choice, largest: dict[int, int], sizes: Sizes) -> int:
    """Return the bytes that a chain holds at most, by the bytes of the largest row of each of its nodes."""
    segments: list[looking.Pinned] = []

    def pin(one: Node) -> Node:
        if not isinstance(one, Segment):
            return one
        segments.append(looking.Pinned(one.rows, choice.block_nbytes))
        return segments[-1]

    flow = _changed(as_flow(node), pin, {})
    parcel = max((one.parcel_nbytes for one in segments), default=0)
    row = max((largest[id(one)] for one in walk(node) if not one.is_batched), default=0)
    # Twice: rows are there as pieces, and joined.
    block = max(choice.block_nbytes, 2 * row, parcel)
    nbytes = chosen_nbytes(node, flow, replace(choice, block_nbytes=block))
    # Batches are few at once, and may be far larger than their rows: so not all stages get room for some of them.
    tops: dict[int, int] = {}
    for one in walk(node):
        if one.is_batched and isinstance(one, Flow) and id(one) not in tops:
            own = largest[id(one)]
            tops[id(one)] = _largest_batches(one, own, choice.ahead + 3, tops, sizes)
            nbytes += 2 * own + tops[id(one)] if own > choice.block_nbytes else 0
    return nbytes


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


def _count(plan: Plan, sizes: Sizes, until: float) -> tuple[int, bool]:
    """Return the bytes of caches and windows that nobody knew the size of, by reading what they shall keep."""
    total, most = 0, host_nbytes()
    is_whole = True
    counted: set[int] = set()
    for node in walk(plan.node):
        if isinstance(node, FlowInMemory) and 0 in _own_cache(node).values():
            store = id(node.store)
            if store in counted:
                continue
            counted.add(store)
            with looking.Look(node) as look:
                try:
                    total += node.count_nbytes(look.context, most, until)
                except BudgetError:
                    is_whole = False
        elif isinstance(node, ShuffledFlow) and node.planned_nbytes < node.window_nbytes:
            with looking.Look(node) as look:
                total += node.count_nbytes(look.context, most, until)
        elif isinstance(node, BatchedFlow) and (
            node.is_varying or any(field.planned for field in node.fields)
        ):
            _count_rows(node, sizes.seen.setdefault(id(node), Seen()), most, until)
        is_whole = is_whole and total <= most and monotonic() <= until
    return total, is_whole


def _count_rows(node: BatchedFlow, seen: Seen, most: int, until: float) -> None:
    """Note how many rows the largest batch has, and how large the largest rows are."""
    num_rows = nbytes = 0
    spread = looking.Spread()
    with looking.Look(node) as look:
        for parcel in look.parcels(looking.plain(node.inputs[0], [])):
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


def _largest(node: Node, sizes: Sizes) -> dict[int, int]:
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
        found[id(one)] = own
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


def _longest(plan: Plan, sizes: Sizes) -> str:
    """Return where the longest row came from that a source or a function made, and its bytes; '' without any."""
    found: tuple[int, str] = (0, "")
    for node in walk(plan.node):
        seen = sizes.of(node)
        if seen.largest > found[0] and not node.is_batched:
            found = seen.largest, f"{_where(node, seen)} with {format_nbytes(seen.largest)}"
            break  # The first node that made it: others pass it on.
    return found[1]


def _where(node: Node, seen: Seen) -> str:
    if isinstance(node, Rows):
        return node.locate(seen.row, 0)
    file = ""
    if isinstance(node, Flow) and seen.cursor_after is not None:
        file = node.file_at(seen.cursor_after(seen.offset))
    return f"row {seen.row} of {file or node.describe()}"


def _filled_nbytes(plan: Plan) -> int:
    """Return the bytes of the caches that are full, or being filled: they stay."""
    unfilled = plan.node.cache_nbytes()
    stores = {id(s): s for node in walk(plan.node) if (s := getattr(node, "store", None))}
    filled = [store for number, store in stores.items() if number not in unfilled]
    return sum(store.account.grant for store in filled if store.account is not None)


def _others(plan: Plan, account: Account) -> int:
    """Return what other streams and caches have of the budget, not counting the caches of this one."""
    own = {id(account)}
    for node in walk(plan.node):
        store = getattr(node, "store", None)
        if store is not None and store.account is not None:
            own.add(id(store.account))
    with account.ledger.lock:
        return sum(one.grant for one in tuple(account.ledger.accounts) if id(one) not in own)


def cure_for(plan: Plan, room: int) -> str:
    """Return what would make a plan fit into `room`, besides a larger budget: only what is known to help."""
    need = plan.need
    windows = [node for node in walk(plan.node) if resized(node, 1) is not node]
    if windows and (window := _fitting_window(plan, room)):
        return f", or a smaller window: .shuffle(window={window})"
    batches = [
        n for n in walk(plan.node) if isinstance(n, BatchedFlow | BatchedRows | SeriesWindows)
    ]
    if batches:
        # What a batch is made of must fit by itself.
        inner = as_flow(batches[0].input)
        if (
            total_nbytes(inner, 1, min(1, plan.ahead)) * 2 <= room
            and batches[0].row_nbytes * 4 >= need // 8
        ):
            return ", or use smaller batches"
    caches = sum(plan.node.cache_nbytes().values())
    if plan.node.cache_nbytes() and need - caches <= room:
        return ", or keep the rows on disk: .cache('folder')"
    return ""


def _fitting_window(plan: Plan, room: int) -> int:
    """Return the largest window, by powers of two, with which the plan fits; 0 if there is none."""
    least = replace(plan.choices[-1], block_nbytes=1)
    window = max(getattr(node, "window_nbytes", 0) for node in walk(plan.node))
    window = 1 << (window.bit_length() - 1)
    while window >= _LEAST_WINDOW:
        flow = as_flow(_changed(plan.node, partial(resized, window=window), {}))
        if chosen_nbytes(plan.node, flow, least) + plan.cached <= room:
            return window
        window //= 2
    return 0


def _changed(node: Node, change: Callable[[Node], Node], done: dict[int, Any]) -> Any:
    """Return a copy of a chain with every node changed, inputs first: to plan with, not to run."""
    if id(node) in done:
        return done[id(node)]
    new = copy.copy(node)
    for name, value in vars(node).items():
        if isinstance(value, Node):
            setattr(new, name, _changed(value, change, done))
        elif (
            isinstance(value, list | tuple)
            and value
            and all(isinstance(one, Node) for one in value)
        ):
            setattr(new, name, type(value)(_changed(one, change, done) for one in value))
    done[id(node)] = change(new)
    return done[id(node)]
