"""One part of a split: its declaration, and the nodes that it makes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fingerprint import walk
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.route import Route
from penstock.core.rows import Context, Flow, Node, Rows, RowSet, Runs
from penstock.core.state import cursor_parts
from penstock.errors import LengthError
from penstock.stages.base.stage import CopyingFlow, Stage, StageNode, StageRows
from penstock.stages.repeat import Repeat
from penstock.stages.split.dealing import Deal
from penstock.stages.split.marking import Marks
from penstock.stages.split.reading import most_rows, read_picked
from penstock.stages.window import Window


def check_splittable(node: Node, call: str) -> None:
    """Raise if rows of one part would get into another: in another epoch, or because a row is there several times."""
    wrong = ""
    if node.is_batched:
        wrong, why = (
            batching(node),
            "it would deal whole batches, which are others as soon as batch_size is",
        )
    for one in walk(node):
        stage = getattr(one, "stage", None)
        if isinstance(stage, Repeat):
            wrong, why = "repeat", "a row that is there several times would get into several parts"
        elif isinstance(stage, Window):
            wrong, why = "window", "windows share rows, which would get into several parts"
        elif getattr(stage, "repeats_rows", False):
            wrong, why = (
                "resample",
                "a row that is there several times would get into several parts",
            )
    if live_shuffle(node):
        wrong, why = "shuffle", "rows change their places each epoch, and would change parts"
    if wrong:
        raise ValueError(
            f"split can't follow {wrong}: {why}. Split first:\n"
            f"  wrong: ds.{wrong}(...).{call}\n"
            f"  right: train, valid = ds.{call}, then train.{wrong}(...)"
        )
    if isinstance(node, Flow) and node.follows_epoch:
        raise ValueError(
            f"split can't follow {node.describe()}: which rows come before it depends on the epoch, so that rows would "
            "change parts. Split first, or keep the rows of one epoch: .cache()."
        )


def batching(node: Node) -> str:
    """Return the name of the stage that made the batches of a node."""
    while node.inputs and node.inputs[0].is_batched:
        node = node.inputs[0]
    return node.describe().partition("(")[0]


def live_shuffle(node: Node) -> bool:
    """Return whether rows have other places in each epoch, because of a shuffle that no cache keeps."""
    if not node.follows_epoch:
        return False
    return node.order_key() is not None or any(map(live_shuffle, node.inputs))


@dataclass(frozen=True, slots=True)
class Marked:
    """Rows that were dealt by a field of theirs."""

    marks: Marks
    field: str
    keeps_groups: bool
    """Whether rows with the same value stay together; else each part has its share of them."""
    is_forward: bool
    """Whether the rows could only be read forward."""


@dataclass(frozen=True, slots=True)
class Split(Stage):
    """The rows of one part."""

    deal: Deal
    part: int
    call: str
    """What the user wrote."""
    marked: "Marked | None" = None
    """The parts, where rows were dealt by one of their fields."""

    def check(self, node: Node) -> None:
        """Raise if it can't follow `node`, or if a part would have no rows at all."""
        check_splittable(node, self.call)
        if self.marked is not None:
            self._check_same(node, self.marked)
        elif node.num_rows:
            sizes = np.diff(self.deal.cuts(node.num_rows)).tolist()
            if 0 in sizes:
                raise ValueError(
                    f"{self.call} of {node.num_rows} rows would leave part {sizes.index(0)} without any: its sizes "
                    f"would be {sizes}."
                )

    def _check_same(self, node: Node, marked: "Marked") -> None:
        """Raise if rows are not numbered as they were when their field was read."""
        is_same = node.num_rows in (None, marked.marks.num_rows)
        if not is_same or isinstance(node, Flow) != marked.is_forward:
            raise ValueError(
                f"{self.call} was dealt for rows with other numbers: bad rows that are skipped have none.\n"
                f"  wrong: ds.{self.call}, then with_options(on_error=...)\n"
                f"  right: ds.with_options(on_error='skip').{self.call}"
            )

    def of_rows(self, rows: Rows) -> Node:
        """Return the rows of the part."""
        return PartRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows of the part."""
        return PartFlow(self, flow)

    def num_rows(self, total: int | None) -> int | None:
        """Return how many of all rows belong to the part."""
        if self.marked is not None:
            return self.marked.marks.size(self.part)
        return None if total is None else self.deal.size(self.part, total)

    def choice(self, num_rows: int) -> _native.Choice:
        """Return which row of the input each row of the part is."""
        if self.marked is not None:
            return self.marked.marks.choice(self.part)
        return self.deal.choice(self.part, num_rows)

    def mine(self, start: int, stop: int, num_rows: int | None) -> Index:
        """Return which of the input rows `start` to `stop` belong to the part, counted from `start`."""
        if self.marked is not None:
            return self.marked.marks.rows(self.part, start, stop)
        owners = self.deal.owners(np.arange(start, stop), num_rows)
        return np.flatnonzero(owners == self.part)

    def words(self, num_rows: int | None, total: int | None) -> str:
        """Return which rows these are, for `explain()`."""
        deal = self.deal
        share = f"{deal.share(self.part)} of every {deal.run_rows} rows"
        if self.marked is not None:
            field = self.marked.field
            kept = (
                f"whole groups of field {field}"
                if self.marked.keeps_groups
                else f"{share} of each class of field {field}"
            )
            text = f"{kept}, by a bit a row"
        else:
            text = f"{share}, by a seeded hash"
        if num_rows is not None:
            text += f": {num_rows} of {total} rows"
        return f"{text}; the same in every epoch, in the order of the input"

    def describe(self) -> str:
        """Return the call that made it, and which part it is."""
        return f"{self.call}[{self.part}]"

    def fingerprint(self) -> Any:
        """Return its name, what rows are dealt by, and the part."""
        by: list[Any] = []
        if self.marked is not None:
            by = [self.marked.field, self.marked.keeps_groups, self.marked.marks.checksum]
        return ["split", *self.deal.fingerprint(), self.part, *by]


class _PartNode(StageNode):
    """What parts with and without random access have in common."""

    stage: Split

    def kept_nbytes(self) -> dict[int, int]:
        """Return the bytes of the bits, too."""
        marked = self.stage.marked
        own = {} if marked is None else {id(marked.marks): marked.marks.nbytes}
        return {**super().kept_nbytes(), **own}

    def choice(self) -> str:
        """Return which rows these are."""
        return self.stage.words(self.num_rows, self.inputs[0].num_rows)


class PartRows(_PartNode, StageRows):
    """Row i is the i-th row of the input that belongs to the part."""

    stage: Split

    def __init__(self, stage: Split, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = stage.num_rows(node.num_rows) or 0
        if self.num_rows:
            share, total = self.num_rows, node.num_rows
            if stage.marked is None:
                share, total = stage.deal.share(stage.part), stage.deal.run_rows
            self.grains = tuple(grain.thinned(share, total) for grain in node.grains)
        self.picks = node.picks
        self.is_read_over = bool(node.grains) and not node.picks
        """Whether rows are read together with those between them, and picked out here."""

    def input_rows(self, rows: RowSet, epoch: int) -> Index:
        """Return the numbers that rows of the part have in the input."""
        if isinstance(rows, slice):
            return self._span_rows([(rows.start, rows.stop - rows.start)])
        index = np.ascontiguousarray(rows, np.int64)
        out = np.empty(len(index), np.int64)
        if len(index):
            self.stage.choice(self.input.num_rows).rows(index, out)
        return out

    def _span_rows(self, runs: Runs) -> Index:
        """Return the numbers that runs of rows of the part have in the input."""
        out = np.empty(sum(length for _, length in runs), np.int64)
        choice = self.stage.choice(self.input.num_rows) if len(out) else None
        done = 0
        for first, length in runs:
            if choice is not None and length:
                choice.span(first, out[done : done + length])
            done += length
        return out

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows; of storage, those in order together with the others between them."""
        index = self.input_rows(rows, context.epoch)
        if self.is_read_over and isinstance(rows, slice) and len(index):
            read_picked(self.input, index, out, context)
        else:
            self.input.read(index, out, context)

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read runs of the part, together with the rows between them."""
        index = self._span_rows(runs)
        if self.is_read_over and len(index):
            read_picked(self.input, index, out, context)
        else:
            self.input.read(index, out, context)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return what the input takes, and on storage the rows that are read with those of the part."""
        if not self.is_read_over:
            return self.input.staging_nbytes(num_rows)
        most = most_rows(self.input, num_rows)
        return self.input.block_nbytes(most) + self.input.staging_nbytes(max(num_rows, most))

    def only(self, number: int) -> Rows | None:
        """Return the same rows with a single field, if that can be read without the others."""
        node = self.input.only(number)
        return None if node is None else PartRows(self.stage, node)

    def route(self, epoch: int) -> Route | None:
        """Return the route of the chosen rows."""
        route = self.input.route(epoch)
        return None if route is None else route.chosen(self.stage.choice(self.input.num_rows))


class PartFlow(_PartNode, CopyingFlow):
    """The rows of a flow that belong to the part; the cursor is [input rows so far, cursor of the input]."""

    stage: Split

    def __init__(self, stage: Split, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = stage.num_rows(flow.num_rows)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of the part from each parcel."""
        passed, inner = cursor_parts(self, cursor, (0, None))
        marked = self.stage.marked
        for parcel in self.input.parcels(inner, context):
            if marked is not None and passed + parcel.size > marked.marks.num_rows:
                raise self._changed(f"more than {marked.marks.num_rows}")
            rows = self.stage.mine(passed, passed + parcel.size, self.input.num_rows)
            if len(rows):
                block = context.block(self, len(rows))
                block.copy_from(parcel.block, rows)
                after = partial(_after, passed, rows, parcel.cursor_after)
                yield Parcel(block.finish(), len(rows), after)
            passed += parcel.size
        if marked is not None and passed < marked.marks.num_rows and context.budget is not None:
            raise self._changed(f"{passed}, not {marked.marks.num_rows}")

    def _changed(self, rows: str) -> LengthError:
        return LengthError(
            f"{self.stage.call} was dealt for the rows that {self.input.describe()} gave when their field was read, "
            f"and now it gave {rows}. Keep them first: .cache().{self.stage.call}"
        )


def _after(passed: int, rows: Index, cursor_after: CursorAfter, offset: int) -> Cursor:
    used = int(rows[offset - 1]) + 1 if offset else 0
    return [passed + used, cursor_after(used)]
