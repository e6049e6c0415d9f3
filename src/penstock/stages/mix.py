"""mix: rows of several datasets in a fixed proportion, in a seeded pattern with random access."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fields import Field
from penstock.core.grains import coarsest
from penstock.core.order import Permutation
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.stages.base.combining import Puller, merged_fields, read_parts
from penstock.stages.base.segment import as_flow

_CYCLE = 4096  # The pattern repeats after about so many positions: long enough to look random.


@dataclass(frozen=True, slots=True)
class Mixing:
    """The arguments of mix: the proportion, the seed of the pattern, and when it ends."""

    weights: tuple[float, ...]
    seed: int
    stop: str

    def describe(self) -> str:
        """Return the call that made it."""
        weights = ", ".join(f"{weight:g}" for weight in self.weights)
        return f"mix({len(self.weights)} datasets, weights=[{weights}], seed={self.seed}, stop={self.stop!r})"


def mixed(nodes: Sequence[Node], mixing: Mixing) -> Node:
    """Return rows of all inputs, in proportion to the weights."""
    fields = merged_fields(nodes, "mix")
    if all(isinstance(node, Rows) for node in nodes):
        return MixedRows([node for node in nodes if isinstance(node, Rows)], mixing, fields)
    return MixedFlow([as_flow(node) for node in nodes], nodes, mixing, fields)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which input each position of a cycle takes its row from, and how many the cycle took from it before."""

    owners: Index
    ranks: Index
    counts: Index
    """Rows of each input in a cycle."""

    def at(self, positions: Index) -> tuple[Index, Index]:
        """Return the input of each position, and the number of the row there."""
        cycles, offsets = np.divmod(positions, len(self.owners))
        owners = self.owners[offsets]
        return owners, cycles * self.counts[owners] + self.ranks[offsets]

    def end(self, owner: int, num_rows: int) -> int:
        """Return the first position that needs a row past the last of an input."""
        cycles, rest = divmod(num_rows, int(self.counts[owner]))
        places = np.flatnonzero(self.owners == owner)
        return cycles * len(self.owners) + int(places[rest])


@lru_cache(maxsize=256)
def pattern(weights: tuple[float, ...], active: tuple[int, ...], seed: int) -> Pattern:
    """Return the pattern for the inputs that still have rows."""
    counts = np.zeros(len(weights), np.int64)
    counts[list(active)] = cycle_counts([weights[owner] for owner in active])
    sorted_owners = np.repeat(np.arange(len(weights)), counts)
    order = Permutation(len(sorted_owners), (seed, *active)).rows(np.arange(len(sorted_owners)))
    owners = sorted_owners[order]
    ranks = np.zeros(len(owners), np.int64)
    for owner in active:
        places = np.flatnonzero(owners == owner)
        ranks[places] = np.arange(len(places))
    return Pattern(owners, ranks, counts)


def cycle_counts(weights: Sequence[float]) -> list[int]:
    """Return how many rows of each input a cycle has: at least one, and as near to the weights as can be.

    >>> cycle_counts([3, 1])
    [3072, 1024]
    """
    whole = [int(weight) for weight in weights]
    if whole == list(weights) and sum(whole) // math.gcd(*whole) <= _CYCLE:
        whole = [weight // math.gcd(*whole) for weight in whole]
        return [weight * -(-_CYCLE // sum(whole)) for weight in whole]
    shares = [weight / sum(weights) * _CYCLE for weight in weights]
    return [max(1, round(share)) for share in shares]


class _Mixed(Node):
    mixing: Mixing

    def _join(self, nodes: Sequence[Node], mixing: Mixing, fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.structure = nodes[0].structure
        self.like_all(nodes)
        self.grains = coarsest(node.grains for node in nodes)
        self.mixing = mixing

    def pattern(self, active: tuple[int, ...]) -> Pattern:
        """Return the pattern of the inputs that still have rows."""
        return pattern(self.mixing.weights, active, self.mixing.seed)

    def describe(self) -> str:
        """Return the call that made it."""
        return self.mixing.describe()

    def fingerprint(self) -> Any:
        """Return its name and all arguments: the order depends on each."""
        mixing = self.mixing
        return ["mix", list(mixing.weights), mixing.seed, mixing.stop]

    def rebuilt(self, inputs: Sequence[Node]) -> Node:
        """Return the same mix of other inputs."""
        return mixed(inputs, self.mixing)


@dataclass(frozen=True, slots=True)
class _Phase:
    """The positions from the end of one input to the end of the next."""

    start: int
    active: tuple[int, ...]
    used: Index
    """Rows of each input that were used before this phase."""


class MixedRows(_Mixed, Rows):
    """Row i is found from the pattern of the phase that it falls into."""

    def __init__(self, nodes: Sequence[Rows], mixing: Mixing, fields: tuple[Field, ...]) -> None:
        self._join(nodes, mixing, fields)
        self.nodes = nodes
        self.phases: list[_Phase] = []
        active = tuple(range(len(nodes)))
        used = np.zeros(len(nodes), np.int64)
        start = 0
        while active:
            self.phases.append(_Phase(start, active, used))
            if all(nodes[owner].is_endless for owner in active):
                start = ENDLESS
                break
            now = self.pattern(active)
            finite = [owner for owner in active if not nodes[owner].is_endless]
            ends = {
                owner: now.end(owner, nodes[owner].num_rows - int(used[owner])) for owner in finite
            }
            length = min(ends.values())
            owners, ranks = now.at(np.arange(max(0, length - len(now.owners)), length))
            used = used.copy()
            for owner in active:
                mine = ranks[owners == owner]
                used[owner] += int(mine.max()) + 1 if len(mine) else 0
            start += length
            if mixing.stop == "first":
                break
            active = tuple(owner for owner in active if ends.get(owner) != length)
        self.num_rows = start
        self.starts = np.array([phase.start for phase in self.phases])

    def place(self, rows: Index) -> tuple[Index, Index]:
        """Return the input that each row comes from, and its number there."""
        owners = np.empty(len(rows), np.int64)
        numbers = np.empty(len(rows), np.int64)
        phases = np.searchsorted(self.starts, rows, side="right") - 1
        for number in np.unique(phases).tolist():
            phase = self.phases[number]
            slots = np.flatnonzero(phases == number)
            owners[slots], ranks = self.pattern(phase.active).at(rows[slots] - phase.start)
            numbers[slots] = ranks + phase.used[owners[slots]]
        return owners, numbers

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of each input into their places."""
        read_parts(self, self.nodes, *self.place(as_index(rows)), out, context)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that the inputs need, and those of a copy for rows that must be widened."""
        return num_rows * self.row_nbytes + max(
            node.staging_nbytes(num_rows) for node in self.nodes
        )

    def locate(self, row: int, epoch: int) -> str:
        """Return where a row comes from."""
        owners, numbers = self.place(np.array([row]))
        where = self.nodes[int(owners[0])].locate(int(numbers[0]), epoch)
        return f"{where} of input {int(owners[0])}"


class MixedFlow(_Mixed, Flow):
    """Flows in a pattern; the cursor is [inputs that still have rows, position, cursors of all inputs]."""

    def __init__(
        self,
        flows: Sequence[Flow],
        nodes: Sequence[Node],
        mixing: Mixing,
        fields: tuple[Field, ...],
    ) -> None:
        self._join(nodes, mixing, fields)
        self.flows = flows
        ends = [node.is_endless for node in nodes]
        self.num_rows = ENDLESS if (all if mixing.stop == "first" else any)(ends) else None

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield rows for as many positions as the inputs have ready."""
        everyone = list(range(len(self.flows)))
        active, position, cursors = cursor_parts(
            self, cursor, (everyone, 0, [None] * len(everyone))
        )
        if not all(one in everyone for one in active) or active != sorted(set(active)):
            raise wrong_cursor(self, cursor)
        if len(cursors) != len(everyone):
            raise wrong_cursor(self, cursor)
        pullers = [Puller(flow, at, context) for flow, at in zip(self.flows, cursors, strict=True)]
        while active:
            now = self.pattern(tuple(active))
            size = context.rows_per_block(self)
            owners, _ = now.at(np.arange(position, position + size))
            available = {owner: pullers[owner].available() for owner in active}
            length = min(_prefix(owners, owner, left) for owner, left in available.items())
            if length == 0:
                if self.mixing.stop == "first":
                    return
                active = [owner for owner in active if owner != int(owners[0])]
                position = 0
                continue
            owners = owners[:length]
            before = [puller.cursors() for puller in pullers]
            block = context.block(self, length)
            for owner in np.unique(owners).tolist():
                slots = np.flatnonzero(owners == owner)
                pullers[owner].take(len(slots), block.at(slots))
            yield Parcel(block.finish(), length, _after(list(active), position, owners, before))
            position += length

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the inputs hold, and the mixed rows."""
        own = 2 * max(block_nbytes, self.block_nbytes(1))
        return own + sum(flow.holds_nbytes(block_nbytes, ahead) for flow in self.flows)


def _prefix(owners: Index, owner: int, available: int) -> int:
    """Return how many positions can be served before `owner` would need one row too many."""
    places = np.flatnonzero(owners == owner)
    return len(owners) if len(places) <= available else int(places[available])


def _after(
    active: list[int], position: int, owners: Index, before: list[tuple[CursorAfter, int]]
) -> CursorAfter:
    def cursor_after(offset: int) -> Cursor:
        counts = np.bincount(owners[:offset], minlength=len(before)).tolist()
        cursors = [at(used + more) for (at, used), more in zip(before, counts, strict=True)]
        return [active, position + offset, cursors]

    return cursor_after
