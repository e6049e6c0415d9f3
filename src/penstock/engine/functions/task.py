"""What runs in a worker process: a function of the user's over the rows of one block."""

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.arrays import Array, Index
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.lazy import lazy
from penstock.core.nest import Structure
from penstock.core.rows import Context, Rows, RowSet, plain_context
from penstock.errors import FunctionError, PenstockError
from penstock.memory import allocate_plain
from penstock.stages.filter import ANSWER_STRUCTURE, ANSWERS, Filter, FilteredFlow
from penstock.stages.map import Map, MappedFlow, MappedRows

if TYPE_CHECKING:
    from penstock import workers
else:
    workers = lazy("penstock.workers")  # Most pipelines never start a process.

FunctionNode = MappedRows | MappedFlow | FilteredFlow
"""A node that runs a function of the user's."""


def task_of(node: FunctionNode) -> "RowsTask":
    """Return what a worker runs for a node."""
    structure, fields = node.structure, node.fields
    if isinstance(node, FilteredFlow):
        structure, fields = ANSWER_STRUCTURE, ANSWERS
    return RowsTask(node.stage, node.input.structure, node.input.fields, structure, fields)


class _Stand(Rows):
    """Stands for the input or output node of a function in a worker: it has the fields, but no rows."""

    num_rows = 0

    def __init__(self, structure: Structure, fields: tuple[Field, ...]) -> None:
        self.structure = structure
        self.fields = fields
        self.located = -1

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Never called: rows come with the task."""

    def locate(self, row: int, epoch: int) -> str:
        """Return the number of a row, and remember it: only errors ask where a row is."""
        self.located = row
        return f"row {row}"

    def describe(self) -> str:
        """Return a name for it."""
        return "rows of a block"

    def fingerprint(self) -> Any:
        """Return a name for it."""
        return ["rows of a block"]


@dataclass(frozen=True, slots=True)
class Failed:
    """What went wrong in a worker, and on which row."""

    row: int
    error: BaseException
    is_users: bool
    """Whether the user's function raised it; else its result was not as declared."""
    traceback_text: str


@dataclass(frozen=True, slots=True)
class RowsTask:
    """What runs in the worker: a function over the rows of one block."""

    stage: Map | Filter
    structure: Structure
    fields: tuple[Field, ...]
    out_structure: Structure
    out_fields: tuple[Field, ...]

    def __call__(self, inputs: list[Array], outputs: list[Array], meta: Any) -> Any:
        """Fill `outputs`; return the values of the fields of variable size and the bad rows.

        Return a `Failed` instead if a row is bad, and bad rows are not skipped.
        """
        numbers, epoch, lists, lengths = meta
        stand = _Stand(self.structure, self.fields)
        source = _block(self.fields, inputs, lengths)
        for sink, values in zip(
            [s for s in source.sinks if isinstance(s, Pieces)], lists, strict=True
        ):
            sink.put(values)
        elements = source.finish().elements(len(numbers), None)
        into = _block(self.out_fields, outputs, [None] * len(outputs))
        made = _Stand(self.out_structure, self.out_fields)
        try:
            bad = self.stage.apply(stand, elements, numbers, made, into, plain_context(epoch))
        except PenstockError as error:
            return _failed(stand.located, error)
        columns = into.finish().columns
        size = len(numbers) - len(bad)
        values = [list(c.values(size)) for c in columns if not isinstance(c, Fixed)]
        return values, [(row.place, _failed(int(numbers[row.place]), row.error)) for row in bad]


def _failed(row: int, error: PenstockError) -> Failed:
    if not isinstance(error, FunctionError):
        return Failed(row, error, is_users=False, traceback_text="")
    cause = error.__cause__ or error
    notes = getattr(error, "__notes__", ())
    text = "".join(notes or traceback.format_exception(cause))
    return Failed(row, _sendable(cause), is_users=True, traceback_text=text)


def _sendable(error: BaseException) -> BaseException:
    try:
        workers.pickle_function(lambda: error)
    except workers.CannotPickle:
        return workers.RemoteError(str(error), type(error).__qualname__)
    return error


def _block(fields: tuple[Field, ...], arrays: list[Array], lengths: list[Index | None]) -> Block:
    """Return a block over arrays of the fields that have a fixed size."""
    fixed = zip(arrays, lengths, strict=True)
    sinks: list[Fixed | Pieces] = []
    for field in fields:
        if field.storage_shape is None:
            sinks.append(Pieces(field.spec, allocate_plain, aligned=False))
        else:
            array, valid = next(fixed)
            sinks.append(Fixed(array[None], None, valid))
    return Block(sinks, 0, [])
