"""What runs in a worker process: a function of the user's over the rows of one block."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.arrays import Array, Index, typed
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Column, Fixed, Ragged, Text, merge
from penstock.core.fields import Field, round_up
from penstock.core.lazy import lazy
from penstock.core.nest import Structure
from penstock.core.rows import Context, Rows, RowSet, plain_context
from penstock.errors import FunctionError, PenstockError
from penstock.memory import ALIGNMENT, allocate_plain
from penstock.stages.filter import ANSWER_STRUCTURE, Filter, FilteredFlow
from penstock.stages.map import Map, MappedFlow, MappedRows

if TYPE_CHECKING:
    from penstock import workers
else:
    workers = lazy("penstock.workers")  # Most pipelines never start a process.

_MOST_ROWS = 64  # Rows run at once where results differ in size: as many may turn out longer than all before.
_INDEX_NBYTES = 8  # An int64.
_MOST_BAD = 1000  # Errors that go back at once, each of them about a kilobyte.

FunctionNode = MappedRows | MappedFlow | FilteredFlow
"""A node that runs a function of the user's."""


def task_of(node: FunctionNode) -> "RowsTask":
    """Return what a worker runs for a node."""
    structure, fields = node.structure, node.fields
    if isinstance(node, FilteredFlow):
        structure, fields = ANSWER_STRUCTURE, node.stage.answers
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
class TooLong:
    """What a function returned takes more shared memory than there can be; the longest result is that of `row`."""

    row: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What a function made of the first `num_rows` rows of its task."""

    num_rows: int
    layout: list[tuple[np.dtype[Any], tuple[int, ...]]]
    """The dtype and shape of each array of the fields of variable size; they follow each other in the room."""
    spilled: list[Array]
    """These arrays, if there was no room for them."""
    bad: list[tuple[int, Failed]]


@dataclass(frozen=True, slots=True)
class RowsTask:
    """What runs in the worker: a function over the rows of one block."""

    stage: Map | Filter
    structure: Structure
    fields: tuple[Field, ...]
    out_structure: Structure
    out_fields: tuple[Field, ...]

    def __call__(self, inputs: list[Array], outputs: list[Array], meta: Any) -> Any:
        """Fill `outputs`, whose last array is the room for fields of variable size, and return an `Answer`.

        It ends early when the room is full, so that results longer than expected never pile up here. Return a
        `Failed` instead if a row is bad, and bad rows are not skipped.
        """
        epoch, most = meta
        numbers, *arrays = inputs
        *fixed, room = outputs
        stand = _Stand(self.structure, self.fields)
        block = Block([], len(numbers), [])
        block.columns = columns_from(self.fields, arrays)
        elements = block.leaves(len(numbers))
        made = _Stand(self.out_structure, self.out_fields)
        context = plain_context(epoch)
        results = _Results(self.out_fields, fixed)
        bad: list[tuple[int, Failed]] = []
        at, size = 0, len(numbers) if results.is_fixed and not self.stage.skip else 1
        while at < len(numbers):
            rows = numbers[at : at + size]
            into = results.next_block(len(rows))
            try:
                found = self.stage.apply(
                    stand, islice(elements, len(rows)), rows, made, into, context
                )
            except PenstockError as error:
                return _failed(stand.located, error)
            bad += [(at + row.place, _failed(int(rows[row.place]), row.error)) for row in found]
            results.add(into, np.delete(rows, [row.place for row in found]))
            at += len(rows)
            size = min(2 * size, _MOST_ROWS, results.num_fitting(room.nbytes))
            if size < 1 or len(bad) >= _MOST_BAD:
                break
        return results.answer(at, bad, room, most)


class _Results:
    """The results of a task, chunk by chunk."""

    def __init__(self, fields: tuple[Field, ...], fixed: list[Array]) -> None:
        arrays = iter(fixed)
        self._fields = fields
        self._fixed = [
            None if field.storage_shape is None else Fixed(next(arrays)[None]) for field in fields
        ]
        self._chunks: list[list[Text | Ragged]] = []
        self._num_rows = 0
        self._nbytes = 0
        self._longest = (0, 0)
        self.is_fixed = None not in self._fixed

    def next_block(self, num_rows: int) -> Block:
        """Return the block that the next results go to."""
        start, stop = self._num_rows, self._num_rows + num_rows
        sinks = [
            Pieces(field.spec, allocate_plain, aligned=False)
            if column is None
            else column.span(start, stop)
            for field, column in zip(self._fields, self._fixed, strict=True)
        ]
        return Block(sinks, num_rows, [])

    def add(self, block: Block, rows: Index) -> None:
        """Take the results out of a block; `rows` are the numbers of the good rows."""
        self._num_rows += len(rows)
        columns = [c for c in block.finish().columns if not isinstance(c, Fixed)]
        if columns and len(rows):
            self._chunks.append(columns)
            sizes = np.sum([sizes_of(column) for column in columns], axis=0)
            longest = int(np.argmax(sizes))
            self._nbytes += int(np.sum(sizes))
            self._longest = max(self._longest, (int(sizes[longest]), int(rows[longest])))

    def num_fitting(self, nbytes: int) -> int:
        """Return how many more rows fit into so many bytes, if they are no longer than those before."""
        if not self._longest[0]:
            return _MOST_ROWS
        return (nbytes - self._nbytes) // self._longest[0]

    def answer(
        self, num_rows: int, bad: list[tuple[int, Failed]], room: Array, most: int
    ) -> Answer | TooLong:
        """Return all results, in `room` if they fit, else beside it."""
        arrays = [
            array
            for chunks in zip(*self._chunks, strict=True)
            for array in arrays_of(merge(chunks, allocate_plain))
        ]
        starts, total = [], 0
        for array in arrays:
            starts.append(total)
            total = round_up(total + array.nbytes, ALIGNMENT)
        if total > max(most, room.nbytes):
            return TooLong(self._longest[1], total)
        layout = [(array.dtype, array.shape) for array in arrays]
        if total > room.nbytes:
            return Answer(num_rows, layout, arrays, bad)
        for start, array in zip(starts, arrays, strict=True):
            typed(room, start, array.shape, array.dtype)[...] = array
        return Answer(num_rows, layout, [], bad)


def arrays_of(column: Column) -> list[Array]:
    """Return the arrays that a column is made of; `columns_from` makes it of them again."""
    if isinstance(column, Fixed):
        return [column.rows] if column.lengths is None else [column.rows, column.lengths]
    if isinstance(column, Text):
        return [column.data[: column.offsets[-1]], column.offsets]
    inner = column.values_
    values = arrays_of(inner) if isinstance(inner, Text) else [inner]
    return [*values, column.starts, column.shapes]


def sizes_of(column: Text | Ragged) -> Index:
    """Return the bytes of each row of a column, with those of the arrays that tell where it is."""
    if isinstance(column, Text):
        return np.diff(column.offsets) + _INDEX_NBYTES
    counts = column.shapes.prod(axis=1)
    index = _INDEX_NBYTES * (1 + column.shapes.shape[1])
    if not isinstance(column.values_, Text):
        # Where rows start on multiples of 64 bytes, there are gaps between them.
        nbytes = counts * column.values_.dtype.itemsize
        return np.asarray(-(-nbytes // ALIGNMENT) * ALIGNMENT + index)
    ends = column.values_.offsets
    text = ends[column.starts + counts] - ends[column.starts]
    return np.asarray(text + _INDEX_NBYTES * counts + index)


def columns_from(fields: Sequence[Field], arrays: Sequence[Array]) -> list[Column]:
    """Return the columns of these fields that `arrays_of` took apart."""
    left = iter(arrays)
    columns: list[Column] = []
    for field in fields:
        kind = field.spec.dtype
        if field.storage_shape is not None:
            rows = next(left)
            columns.append(Fixed(rows[None], None, None if field.spec.is_fixed else next(left)))
        elif isinstance(kind, np.dtype):
            columns.append(Ragged(next(left), next(left), next(left)))
        else:
            text = Text(next(left), next(left), kind)
            is_ragged = bool(field.spec.shape)
            columns.append(Ragged(text, next(left), next(left)) if is_ragged else text)
    return columns


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
