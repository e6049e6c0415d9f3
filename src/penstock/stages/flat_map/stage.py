"""flat_map: a function that makes any number of rows of each row."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock.core.evidence import Evidence
from penstock.core.executors import Inline
from penstock.core.fields import Field
from penstock.core.nest import Structure, flatten
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node, Rows
from penstock.core.spec import ArraySpec, declared, spec_of_value
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.errors import PenstockError, SpecMismatchError, StreamClosedError
from penstock.stages.base.functions import UserFunction, caused, traceback_text
from penstock.stages.base.segment import Segment, as_flow
from penstock.stages.base.stage import Stage, StageFlow
from penstock.stages.flat_map.filling import Filling, Source
from penstock.stages.flat_map.returned import Result
from penstock.stages.map import TRIED, call, example_row, locate

_INNER_NBYTES = 1 << 16  # The blocks of a dataset that the function returns.


@dataclass(frozen=True, slots=True)
class FlatMap(Stage):
    """The rows that `function` makes of each row, one after the other."""

    function: UserFunction
    spec: Any = None
    skip: bool = False
    """Whether rows that the function fails on are skipped."""

    def check(self, node: Node) -> None:
        """Raise if the function takes another number of arguments."""
        self.function.check_arguments(node.structure)

    def of_rows(self, rows: Rows) -> Node:
        """Return a flow: how many rows there will be is known only at the end."""
        return self.of_flow(as_flow(rows))

    def of_flow(self, flow: Flow) -> Node:
        """Return the rows of all results; runs the function once unless its spec is given."""
        structure, fields, inner_nbytes = self._result(flow)
        return FlatMappedFlow(self, flow, structure, fields, inner_nbytes)

    def _result(self, flow: Flow) -> tuple[Structure, tuple[Field, ...], int]:
        """Return the nest and the fields of a row, and the bytes that a dataset which the function returns holds."""
        if self.spec is not None:
            specs, structure = declared(self.spec)
            return structure, tuple(Field(one) for one in specs), 0
        leaves, where, _ = example_row(flow.rows if isinstance(flow, Segment) else flow)
        try:
            return self._found(self.call(flow.structure, leaves, where), where)
        except PenstockError:
            raise
        except Exception as error:
            tried = f"{where}, which was tried to learn its result"
            failure = self.function.failure(tried, error)
            failure.add_note(TRIED)
            raise failure from error

    def _found(self, result: Result, where: str) -> tuple[Structure, tuple[Field, ...], int]:
        if result.node is not None:
            nbytes = as_flow(result.node).holds_nbytes(_INNER_NBYTES, 0)
            return result.node.structure, result.node.fields, nbytes
        if result.structure is not None and not any(leaf.dtype.hasobject for leaf in result.leaves):
            specs = [ArraySpec(leaf.shape[1:], leaf.dtype) for leaf in result.leaves]
            return result.structure, tuple(Field(one) for one in specs), 0
        row = next(result.rows(0), None)
        if row is None:
            problem = "returned no rows, so that it can't be learned what a row is; give spec=."
            raise self.function.mismatch(where, problem)
        leaves, structure = flatten(row)
        try:
            specs = [spec_of_value(leaf) for leaf in leaves]
        except TypeError as error:
            raise self.function.mismatch(where, str(error)) from None
        return structure, tuple(Field(one) for one in specs), 0

    def call(self, structure: Structure, leaves: Any, where: str) -> Result:
        """Return what the function makes of a row."""
        result = call(self.function, structure, leaves, None)
        try:
            return Result.of(result)
        except TypeError as error:
            raise self.function.mismatch(where, str(error)) from None

    def describe(self) -> str:
        """Return the call that made it."""
        return self.function.describe()

    def fingerprint(self) -> Any:
        """Return the name of the function."""
        return ["flat_map", self.function.name, self.skip]

    def evidence(self) -> Iterator[Evidence]:
        """Yield the function."""
        yield self.function.evidence()


class FlatMappedFlow(StageFlow):
    """The rows of all results.

    The cursor is [number of the input row whose result comes next, rows used of that, cursor of the input there, cursor
    in the result, if that is a dataset].
    """

    stage: FlatMap

    def __init__(
        self,
        stage: FlatMap,
        flow: Flow,
        structure: Structure,
        fields: tuple[Field, ...],
        inner_nbytes: int,
    ) -> None:
        super().__init__(stage, flow)
        self.structure = structure
        self.fields = fields
        self.inner_nbytes = inner_nbytes
        self.is_batched = False
        self.calls_functions = True
        self.num_rows = 0 if flow.num_rows == 0 else None

    def with_errors(self, on_error: str) -> Node:
        """Return this node for `on_error`: rows that the function fails on are skipped, or raised."""
        node = self.inputs[0].with_errors(on_error)
        stage = replace(self.stage, skip=on_error == "skip")
        if node is self.inputs[0]:
            if stage.skip == self.stage.skip:
                return self
            # The fields of its results are known: the function need not be tried again.
            return FlatMappedFlow(stage, self.input, self.structure, self.fields, self.inner_nbytes)
        return stage.build(node)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows of one result after the other, in blocks of many of them."""
        number, used, inner, within = cursor_parts(self, cursor, (0, 0, None, None))
        filling = Filling(
            self, self.stage.function, context, is_declared=self.stage.spec is not None
        )
        for parcel in self.input.parcels(inner, context):
            for place, leaves in enumerate(parcel.block.leaves(parcel.size)):
                if context.executor.is_closing:
                    raise StreamClosedError("the stream was closed.")
                before = partial(parcel.cursor_after, place)
                source = Source(number, before, partial(parcel.cursor_after, place + 1))
                for is_full in self._added(filling, source, leaves, used, within, context):
                    if is_full:
                        yield filling.parcel()
                number, used, within = number + 1, 0, None
        if used:
            raise wrong_cursor(self, cursor)
        if filling.size:
            yield filling.parcel()

    def _added(
        self,
        filling: Filling,
        source: Source,
        leaves: Any,
        used: int,
        within: Cursor,
        context: Context,
    ) -> Iterator[bool]:
        """Add the rows of one result; yield whether the block is full, after some of them."""
        where = partial(locate, self.inputs[0], source.number, context.epoch)
        stage = self.stage
        result: Result | None = None
        try:
            result = stage.call(self.input.structure, leaves, where())
            if result.node is not None:
                yield from self._of_dataset(filling, source, result.node, used, within, context)
            elif result.structure is not None:
                self._check_used(source, used, result.size)
                yield from filling.add_arrays(source, result, used, where)
            else:
                yield from filling.add_rows(source, result.rows(used), used, where)
        except StreamClosedError:
            raise
        except SpecMismatchError as error:
            if not stage.skip:
                raise
            context.skipped.add(error.with_traceback(None))
        except PenstockError:
            raise
        except Exception as error:
            failure = stage.function.failure(where(), error)
            if not stage.skip:
                raise failure from error
            context.skipped.add(caused(failure, error, traceback_text(error)))
        finally:
            close = getattr(None if result is None else result.value, "close", None)
            if result is not None and result.node is None and close is not None:
                close()  # A generator that was left in the middle.
        filling.end(source)

    def _check_used(self, source: Source, used: int, size: int) -> None:
        """Raise if a result has fewer rows than were used of it."""
        if used > size:
            raise wrong_cursor(self, [source.number, used])

    def _of_dataset(
        self,
        filling: Filling,
        source: Source,
        node: Node,
        used: int,
        within: Cursor,
        context: Context,
    ) -> Iterator[bool]:
        where = partial(locate, self.inputs[0], source.number, context.epoch)
        if node.structure != self.structure or any(
            mine.spec.merged(theirs.spec) != mine.spec
            for mine, theirs in zip(self.fields, node.fields, strict=True)
        ):
            text = f"returned a dataset of {node.spec}, but {self.spec} is declared."
            raise self.stage.function.mismatch(where(), text)
        # In this thread, and in small blocks: it is one of many, and most of them are small.
        own = replace(context, executor=Inline(), block_nbytes=_INNER_NBYTES, ahead=0)
        for parcel in as_flow(node).parcels(within, own):
            yield from filling.add_block(source, parcel, used, where)
            used += parcel.size

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the input holds, the block that is filled, and the one before it; and a dataset of a result."""
        own = 4 * max(block_nbytes, self.block_nbytes(1)) + self.inner_nbytes
        return own + self.input.holds_nbytes(block_nbytes, ahead)
