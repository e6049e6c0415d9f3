"""What helps a stream that was refused memory, besides a larger budget: only what is known to help."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.core.fingerprint import walk
from penstock.core.rows import Node
from penstock.core.sizes import Seen, Sizes
from penstock.engine.functions.trays import function_nodes
from penstock.engine.plan.looking import rebuilt
from penstock.engine.plan.need import Facts, changed, largest_rows
from penstock.engine.plan.plan import Plan
from penstock.errors import PenstockError
from penstock.stages.batch import BatchedFlow, BatchedRows
from penstock.stages.map import MappedFlow, MappedRows
from penstock.stages.shuffle.stage import resized

_LEAST_WINDOW = 1 << 16


def cure_for(plan: Plan, room: int, facts: Facts) -> str:
    """Return what would make a chain fit into `room` bytes, as the end of a sentence; '' if nothing is known to."""
    windows = [node for node in walk(plan.node) if resized(node, 1) is not node]
    if windows and (window := _fitting_window(plan, room, facts)):
        return f", or a smaller window: .shuffle(window={window})"
    if size := _fitting_batch(plan, room, facts):
        rows = "1 row" if size == 1 else f"{size} rows"
        return f", or use smaller batches, of {rows} at most"
    if plan.node.cache_nbytes() and replace(facts, cached=0).fits(plan.node, plan.choices, room):
        return ", or keep the rows on disk: .cache('folder')"
    if plan.processes and function_nodes(plan.node):
        alone = [replace(choice, trays=0) for choice in plan.choices]
        if facts.fits(plan.node, alone, room):
            return ", or call functions in this process: with_options(processes=0)"
    return ""


def _fitting_window(plan: Plan, room: int, facts: Facts) -> int:
    """Return the largest window, by powers of two, with which the chain fits; 0 if there is none."""
    window = max(getattr(node, "window_nbytes", 0) for node in walk(plan.node))
    window = 1 << (window.bit_length() - 1)
    while window >= _LEAST_WINDOW:
        resize = partial(resized, window=window)
        less = replace(_with(facts, partial(changed, change=resize)), windows=0)
        if less.fits(changed(plan.node, resize, {}), plan.choices, room):
            return window
        window //= 2
    return 0


def _fitting_batch(plan: Plan, room: int, facts: Facts) -> int:
    """Return the largest size of batches, by powers of two, with which the chain fits; 0 if there is none."""
    batches = [node for node in walk(plan.node) if isinstance(node, BatchedFlow | BatchedRows)]
    most = max((node.batch_size for node in batches), default=1)
    size = 1 << ((most - 1).bit_length() - 1) if most > 1 else 0
    while size:
        try:
            less = _with(facts, partial(_rebatched, size=size))
            if less.fits(_rebatched(plan.node, {}, size=size), plan.choices, room):
                return size
        except (PenstockError, TypeError, ValueError):
            return 0  # What follows can't take smaller batches.
        size //= 2
    return 0


def _with(facts: Facts, change: Callable[..., Node]) -> Facts:
    """Return the facts of a changed chain; what was seen of a node is true of the one that stands for it."""
    made: dict[int, Any] = {}
    node = change(facts.node, done=made)
    sizes = Sizes()
    for one in walk(facts.node):
        new = made[id(one)]
        seen = facts.sizes.of(one)
        if isinstance(new, BatchedFlow | BatchedRows) and new is not one:
            rows = min(seen.batch_rows, new.batch_size)
            nbytes = seen.batch_nbytes if rows == seen.batch_rows else 0
            seen = Seen(batch_rows=rows, batch_nbytes=nbytes, row_tops=seen.row_tops)
        sizes.seen[id(new)] = seen
    return replace(facts, node=node, sizes=sizes, largest=largest_rows(node, sizes))


def _rebatched(node: Node, done: dict[int, Any], *, size: int) -> Node:
    """Return a chain whose batches have at most `size` rows: to plan with, not to run."""
    if id(node) in done:
        found: Node = done[id(node)]
        return found
    inputs = [_rebatched(child, done, size=size) for child in node.inputs]
    new = node
    if isinstance(node, BatchedFlow | BatchedRows) and node.stage.batch_size > size:
        new = replace(node.stage, batch_size=size).build(inputs[0])
    elif any(one is not old for one, old in zip(inputs, node.inputs, strict=True)):
        # A function makes other rows of smaller batches: it is tried with one.
        is_map = isinstance(node, MappedRows | MappedFlow)
        new = node.rebuilt(inputs) if is_map else rebuilt(node, inputs)
    done[id(node)] = new
    return new
