"""map: the user's function on every row, or on every batch after `batch`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.fields import Field
from penstock.core.nest import Structure, flatten
from penstock.core.parcels import Cursor, Parcel
from penstock.core.residues import Residue
from penstock.core.rows import (
    ENDLESS,
    Context,
    Flow,
    Node,
    Rows,
    RowSet,
    as_index,
    count,
    plain_context,
    rows_per_block,
)
from penstock.core.spec import ArraySpec, declared, spec_of_value
from penstock.stages.base.function_flow import Piece, applied, good_places
from penstock.stages.base.functions import BadRow, RowRandom, UserFunction, run_rows
from penstock.stages.base.results import Results, no_field_hint
from penstock.stages.base.segment import as_flow
from penstock.stages.base.stage import Stage, StageFlow, StageRows

# Zeros that are only shown to a function take no memory if there are more than these.
_LARGE_BLANK = 1 << 24


TRIED = (
    "If that row is bad, and others are not: spec=... says what the function returns, so that it is not tried, and "
    "with_options(on_error='skip') skips such rows."
)


@dataclass(frozen=True, slots=True)
class Map(Stage):
    """`function` of every row; with a seed, the function gets a generator as its last argument."""

    may_follow_distribute: ClassVar[bool] = True
    function: UserFunction
    seed: int | None = None
    spec: Any = None
    skip: bool = False
    """Whether rows that the function fails on are skipped."""

    def check(self, node: Node) -> None:
        """Raise if the function takes another number of arguments."""
        self.function.check_arguments(
            node.structure, is_seeded=self.seed is not None, takes_seed=True
        )

    def of_rows(self, rows: Rows) -> Node:
        """Return the mapped rows; runs the function once unless its spec is given."""
        return self.made(rows, *self._result(rows))

    def of_flow(self, flow: Flow) -> Node:
        """Return the mapped rows; runs the function once unless its spec is given."""
        return self.made(flow, *self._result(flow))

    def made(
        self, node: Node, structure: Structure, fields: tuple[Field, ...]
    ) -> "MappedRows | MappedFlow":
        """Return the mapped rows, with the fields given; they are a flow if bad rows are skipped."""
        if isinstance(node, Rows) and not self.skip:
            return MappedRows(self, node, structure, fields)
        return MappedFlow(self, as_flow(node), structure, fields)

    def with_errors(self, mapped: "MappedRows | MappedFlow", on_error: str) -> Node:
        """Return the mapped rows for `on_error`: rows that the function fails on are skipped, or raised."""
        node = mapped.inputs[0].with_errors(on_error)
        stage = replace(self, skip=on_error == "skip")
        if stage.skip and mapped.share is not None:
            raise ValueError(
                f"{self.describe()} after distribute can't skip batches: ranks would differ in their number of steps, "
                "and wait for each other for ever. Put it before batch."
            )
        if node is mapped.inputs[0]:
            if stage.skip == self.skip:
                return mapped
            # The fields of its results are known: the function need not be tried again.
            return stage.made(node, mapped.structure, mapped.fields)
        return stage.build(node)

    def _result(self, node: Node) -> tuple[Structure, tuple[Field, ...]]:
        """Return what the function makes of a row: as declared, or found by a trial."""
        return self._found(node) if self.spec is None else self._declared()

    def _declared(self) -> tuple[Structure, tuple[Field, ...]]:
        leaves, structure = declared(self.spec)
        return structure, tuple(Field(leaf) for leaf in leaves)

    def _found(self, node: Node) -> tuple[Structure, tuple[Field, ...]]:
        leaves, where, loose = example_row(node)
        random = None if self.seed is None else RowRandom(self.seed, 0).at(0)
        try:
            result = call(self.function, node.structure, leaves, random)
        except Exception as error:
            failure = self.function.failure(f"{where}, which was tried to learn its result", error)
            failure.add_note(TRIED)
            raise failure from error
        values, structure = flatten(result)
        fields = []
        for value in values:
            same = next((place for place, leaf in enumerate(leaves) if leaf is value), None)
            try:
                spec = spec_of_value(value) if same is None else node.fields[same].spec
            except (TypeError, ValueError) as error:
                raise self.function.mismatch(where, f"{error}{no_field_hint(value)}") from None
            nbytes = (
                np.asarray(value).nbytes if not isinstance(value, bytes | str) else len(value) + 16
            )
            if same is None:
                # Where an axis of the input differs from row to row, an axis of that size may in the result, too.
                shape = (None if at in loose else at[1] for at in enumerate(spec.fixed_shape))
                spec = ArraySpec(shape, spec.dtype)
            fields.append(Field(spec, estimate=nbytes + 64))
        return structure, tuple(fields)

    def apply(
        self,
        node: Node,
        elements: Iterator[Any],
        rows: Index,
        out: Node,
        into: Block,
        context: Context,
    ) -> list[BadRow]:
        """Run the function on the leaves of every row, whose numbers in `node` are `rows`.

        The results of good rows follow each other in `into`; bad rows are returned.
        """
        is_declared = self.spec is not None
        results = Results(self.function, out.structure, out.fields, into, is_declared=is_declared)
        caller = self.function.caller(node.structure)
        prepare = None
        if self.seed is not None:
            random = RowRandom(self.seed, context.epoch)
            prepare = random.at
            caller = partial(self.seeded, node.structure, random.at(0))
        numbers = rows.tolist()
        bad = run_rows(
            self.function,
            caller,
            zip(numbers, elements, strict=True),
            results.put,
            lambda row: locate(node, row, context.epoch),
            executor=context.executor,
            skip=self.skip,
            prepare=prepare,
        )
        results.finish(len(numbers) - len(bad))
        return bad

    def call_once(self, structure: Structure, leaves: Any) -> Any:
        """Call the function with one row, as a trial."""
        random = None if self.seed is None else RowRandom(self.seed, 0).at(0)
        return call(self.function, structure, leaves, random)

    def seeded(self, structure: Structure, random: "np.random.Generator", leaves: Any) -> Any:
        """Call the function with one row and a generator, which all rows share, set to this row's numbers."""
        return call(self.function, structure, leaves, random)

    def describe(self) -> str:
        """Return the call that made it."""
        seed = "" if self.seed is None else f", seed={self.seed}"
        return f"{self.function.describe()[:-1]}{seed})"

    def fingerprint(self) -> Any:
        """Return the name of the function, not its code: a comment may change between runs."""
        return ["map", self.function.name, self.seed, self.skip]

    def evidence(self) -> Iterator[Evidence]:
        """Yield the function."""
        yield self.function.evidence()


def call(
    function: UserFunction, structure: Structure, leaves: Any, random: "np.random.Generator | None"
) -> Any:
    """Call a function with one row, and a generator after it if there is one."""
    row = structure.unflatten(leaves)
    arguments = row if structure.type is tuple else (row,)
    return (
        function.function(*arguments) if random is None else function.function(*arguments, random)
    )


def example_row(node: Node) -> tuple[list[Any], str, set[tuple[int, int]]]:
    """Return the leaves of the first row, where it comes from, and each (axis, size) that differs among rows."""
    context = plain_context()
    where = "row 0"
    if isinstance(node, Rows) and node.num_rows:
        block = context.block(node, 1)
        node.read(slice(0, 1), block, context)
        leaves = block.finish().row(0)
        where = node.locate(0, 0)
    elif isinstance(node, Flow) and (parcel := next(node.parcels(None, context), None)) is not None:
        leaves = parcel.block.row(0)
    else:
        # No rows at all: the function is shown zeros, so that empty datasets can be mapped, too.
        leaves = [_blank(field) for field in node.fields]
        where = "a row of zeros (there are no rows)"
    loose = {
        (axis, np.shape(value)[axis])
        for value, field in zip(leaves, node.fields, strict=True)
        for axis, size in enumerate(field.spec.shape)
        if size is None
    }
    return leaves, where, loose


def _blank(field: Field) -> Any:
    # Unknown sizes are 1, not 0: an array without any text does not show that its dtype is text.
    shape = tuple(1 if size is None else size for size in field.spec.shape)
    dtype = field.spec.dtype
    value = np.zeros((), dtype) if isinstance(dtype, np.dtype) else np.array(dtype(), object)
    if math.prod(shape) > _LARGE_BLANK:
        return np.broadcast_to(value, shape)  # A batch of 10**9 rows.
    return np.broadcast_to(value, shape).copy()[()]


def locate(node: Node, row: int, epoch: int) -> str:
    """Return where a row comes from; a flow only knows its number."""
    return node.locate(row, epoch) if isinstance(node, Rows) else f"row {row}"


class MappedRows(StageRows):
    """Row i is the function of row i of the input."""

    stage: Map
    decision: Any = None
    """Where the function runs, once that was measured."""

    def __init__(
        self, stage: Map, node: Rows, structure: Structure, fields: tuple[Field, ...]
    ) -> None:
        super().__init__(stage, node)
        self.structure = structure
        self.fields = fields
        self.follows_epoch = node.follows_epoch or stage.seed is not None
        self.calls_functions = True
        self.weighs_rows = False

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over an input that is narrowed likewise."""
        return self.over(self.input.narrowed(wanted))

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of the input, and run the function on each."""
        remote = context.placement.get(id(self))
        if remote is not None:
            remote.run_rows(rows, out, context)
            return
        block = context.block(self.input, count(rows))
        self.input.read(rows, block, context)
        elements = block.finish().leaves(count(rows))
        self.stage.apply(self.input, elements, as_index(rows), self, out, context)

    def with_errors(self, on_error: str) -> Node:
        """Return a flow that skips rows that the function fails on, or these rows."""
        return self.stage.with_errors(self, on_error)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the rows that the function is called with."""
        return self.input.block_nbytes(num_rows) + self.input.staging_nbytes(num_rows)


class MappedFlow(StageFlow):
    """The function of every row of a flow; the cursor is [number of the next input row, cursor of the input].

    Where bad rows are skipped, the others keep the numbers that they have in the input.
    """

    stage: Map
    decision: Any = None
    """Where the function runs, once that was measured."""

    def __init__(
        self, stage: Map, flow: Flow, structure: Structure, fields: tuple[Field, ...]
    ) -> None:
        super().__init__(stage, flow)
        self.structure = structure
        self.fields = fields
        self.follows_epoch = flow.follows_epoch or stage.seed is not None
        self.weighs_rows = False
        if stage.skip:
            self.num_rows = ENDLESS if flow.is_endless else None

    def with_errors(self, on_error: str) -> Node:
        """Return this node for `on_error`: rows that the function fails on are skipped, or raised."""
        return self.stage.with_errors(self, on_error)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield mapped parcels, made ahead in parallel."""

        def apply(piece: Piece) -> tuple[Parcel, list[BadRow]]:
            block = context.block(self, piece.size)
            remote = context.placement.get(id(self))
            if remote is not None:
                parcel = piece.parcel.block
                bad = remote.run_block(parcel, piece.start, piece.rows, block, context)
            else:
                elements, rows = piece.elements(), piece.rows
                bad = self.stage.apply(self.inputs[0], elements, rows, self, block, context)
            after = piece.cursor_after(good_places(piece.size, bad) if bad else None)
            return Parcel(block.finish(), piece.size - len(bad), after), bad

        return applied(self, apply, cursor, context)

    def notes(self) -> tuple[str, ...]:
        """Return what skipping bad rows costs."""
        if not self.stage.skip:
            return ()
        note = (
            f"on_error='skip' reads the rows of {self.describe()} forward: which ones there are is known "
            "at the end. A shuffle after it mixes windows; one before it mixes all rows."
        )
        return (note,)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, its blocks in flight, and the mapped ones."""
        rows = rows_per_block(self.input, block_nbytes)
        own = (ahead + 1) * (self.block_nbytes(rows) + self.input.block_nbytes(rows))
        return own + self.input.holds_nbytes(block_nbytes, ahead)
