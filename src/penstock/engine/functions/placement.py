"""map and filter in worker processes: for functions that hold the interpreter lock, decided by measurement."""

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.columns import Array, Block, Fixed, Pieces
from penstock.core.fields import Field, allocate_block, block_nbytes
from penstock.core.lazy import lazy
from penstock.core.nest import Structure
from penstock.core.rows import Context, Index, Rows, RowSet, plain_context, rows_per_block
from penstock.errors import FunctionError, PenstockError, StreamClosedError
from penstock.memory import Account, allocate_plain, process_ledger
from penstock.stages.base.functions import BadRow, array_memory, caused
from penstock.stages.filter import ANSWER_STRUCTURE, ANSWERS, Filter, FilteredFlow
from penstock.stages.map import Map, MappedFlow, MappedRows, example_row, locate

if TYPE_CHECKING:
    from penstock import workers
else:
    workers = lazy("penstock.workers")  # Most pipelines never start a process.

_MOST_PICKLE = 16 << 20  # A larger function takes longer to send than it saves.
_WORTH_SECONDS = 0.5  # Starting processes takes about this long, all in all.
_WORTH_CALL = 20e-6  # A shorter function costs less than sending its rows does.

FunctionNode = MappedRows | MappedFlow | FilteredFlow
"""A node that runs a function of the user's."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a function runs, and why."""

    stage: str
    num_processes: int
    """0 is on threads, or at the hand-over."""
    reason: str
    seconds: float | None = None
    """What a call takes, if it was measured."""

    def __str__(self) -> str:
        where = f"{self.num_processes} processes" if self.num_processes else "threads"
        return f"{self.stage} on {where}: {self.reason}"


def decide(node: FunctionNode, num_processes: int | None) -> Decision:
    """Return where the function of a node runs; measured once for each dataset."""
    call = node.stage.describe()
    if num_processes is not None:
        return Decision(call, num_processes, f"processes={num_processes} by with_options")
    if node.decision is None:
        node.decision = _measured(node, call)
    decision: Decision = node.decision
    return decision


def _measured(node: FunctionNode, call: str) -> Decision:
    reason = workers.unavailable_reason()
    if reason is not None:
        return Decision(call, 0, reason)
    cores = len(os.sched_getaffinity(0))
    if cores < 2:
        return Decision(call, 0, "there is one core only")
    leaves, _, _ = example_row(node.inputs[0])
    function = partial(node.stage.call_once, node.input.structure, tuple(leaves))
    try:
        seconds = min(_seconds(function) for _ in range(3))
        rows = node.input.num_rows
        if seconds < _WORTH_CALL:
            return Decision(call, 0, f"a call takes {seconds * 1e6:.0f} us only", seconds)
        if rows is not None and seconds * rows < _WORTH_SECONDS:
            return Decision(call, 0, f"all of it takes {seconds * rows:.2f} s only", seconds)
        measured = workers.holds_lock(function)
    except Exception as error:  # noqa: BLE001  # It will fail again, on its row, and say where.
        return Decision(call, 0, f"it could not be measured: {error!r}")
    if not measured.holds:
        return Decision(call, 0, measured.reason, seconds)
    try:
        nbytes = len(workers.pickle_function(_task(node), name=call))
    except workers.CannotPickle as error:
        return Decision(call, 0, f"it can't be sent to another process: {error}")
    if nbytes > _MOST_PICKLE:
        return Decision(call, 0, f"it would take {nbytes >> 20} MB to send to another process")
    return Decision(call, cores, measured.reason)


def _seconds(function: Callable[[], Any]) -> float:
    with array_memory():
        started = perf_counter()
        function()
        return perf_counter() - started


def _task(node: FunctionNode) -> "_RowsTask":
    structure, fields = node.structure, node.fields
    if isinstance(node, FilteredFlow):
        structure, fields = ANSWER_STRUCTURE, ANSWERS
    return _RowsTask(node.stage, node.input.structure, node.input.fields, structure, fields)


class _Stand(Rows):
    """Stands for the input of a map in a worker: it knows its structure, and which row was asked for."""

    num_rows = 0

    def __init__(self, structure: Structure, fields: tuple[Field, ...]) -> None:
        self.structure = structure
        self.fields = fields
        self.located = -1

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Never asked: rows come with the task."""

    def locate(self, row: int, epoch: int) -> str:
        """Return the number of a row, and remember it: only errors ask."""
        self.located = row
        return f"row {row}"

    def describe(self) -> str:
        """Return what it is."""
        return "rows of a block"

    def fingerprint(self) -> Any:
        """Return what it is."""
        return ["rows of a block"]


@dataclass(frozen=True, slots=True)
class _Failed:
    """What went wrong in a worker, and on which row."""

    row: int
    error: BaseException
    is_users: bool
    """Whether the user's function raised it; else its result was not as declared."""
    traceback_text: str


@dataclass(frozen=True, slots=True)
class _RowsTask:
    """What runs in the worker: a function over the rows of one block."""

    stage: Map | Filter
    structure: Structure
    fields: tuple[Field, ...]
    out_structure: Structure
    out_fields: tuple[Field, ...]

    def __call__(self, inputs: list[Array], outputs: list[Array], meta: Any) -> Any:
        """Fill `outputs`; return the values of the fields of variable size and the bad rows.

        Or what went wrong, if bad rows are not left out.
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


def _failed(row: int, error: PenstockError) -> _Failed:
    if not isinstance(error, FunctionError):
        return _Failed(row, error, is_users=False, traceback_text="")
    cause = error.__cause__ or error
    notes = getattr(error, "__notes__", ())
    text = "".join(notes or traceback.format_exception(cause))
    return _Failed(row, _sendable(cause), is_users=True, traceback_text=text)


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


class RemoteMap:
    """The worker processes of one function, for as long as a stream runs."""

    def __init__(
        self,
        node: FunctionNode,
        decision: Decision,
        block: int,
        budget: int,
        retries: int,
    ) -> None:
        self.node = node
        self.retries = retries
        self.fields = _task(node).out_fields
        name = node.stage.describe()
        size = rows_per_block(node, block)
        rows = block_nbytes(node.input.fields, size, aligned=node.input.is_batched)
        nbytes = rows + block_nbytes(self.fields, size, aligned=node.is_batched) + (1 << 16)
        total = (decision.num_processes + 2) * nbytes
        self.account = Account(process_ledger, f"the workers of {name}")
        try:
            self.account.open(
                budget=budget, need=total, want=total, why="blocks on their way to workers"
            )
            pickled = workers.pickle_function(_task(node), name=name)
            self.pool = workers.WorkerPool(
                decision.num_processes, pickled, name=name, arena_nbytes=total
            )
        except BaseException:
            self.account.close()
            raise
        self.account.charge(total)

    def close(self) -> None:
        """End the processes."""
        try:
            self.pool.close()
        finally:
            self.account.close()

    def run(
        self, fill: Callable[[Block], None], numbers: Index, out: Block, context: Context
    ) -> list[BadRow]:
        """Read rows into shared memory, have a worker call the function, and copy the results to `out`.

        Return the bad rows, where those are left out.
        """
        made = self._shared(self.fields, len(numbers), aligned=self.node.is_batched)
        for left in range(self.retries, -1, -1):
            try:
                result = self._submit(fill, numbers, made, context)
                break
            except workers.PoolClosed as error:
                raise StreamClosedError("the stream was closed.") from error
            except workers.WorkerDied as error:
                if left == 0:
                    where = locate(self.node.inputs[0], int(numbers[0]), context.epoch)
                    rows = f"one of {len(numbers)} rows from {where} on"
                    raise self.node.stage.function.failure(rows, error) from error
        if isinstance(result, _Failed):
            failure = self._failure(result, context)
            raise failure from failure.__cause__
        values, bad = result
        variable = iter(values)
        index = np.arange(len(numbers) - len(bad))
        for sink, mine in zip(out.sinks, made.sinks, strict=True):
            if isinstance(sink, Fixed) and isinstance(mine, Fixed):
                sink.copy_from(mine, index)
            elif isinstance(sink, Pieces):
                sink.put(next(variable))
        return [BadRow(place, self._failure(failed, context)) for place, failed in bad]

    def _submit(
        self, fill: Callable[[Block], None], numbers: Index, made: Block, context: Context
    ) -> Any:
        # Filled anew at each try: a worker that died may have changed its rows.
        rows = self.node.input
        source = self._shared(rows.fields, len(numbers), aligned=rows.is_batched)
        fill(source)
        source.finish()
        size = len(numbers)
        lists = [list(c.values(size)) for c in source.columns if not isinstance(c, Fixed)]
        lengths = [c.lengths for c in source.columns if isinstance(c, Fixed)]
        future = self.pool.submit(
            int(numbers[0]),
            inputs=[c.rows for c in source.columns if isinstance(c, Fixed)],
            outputs=[s.rows for s in made.sinks if isinstance(s, Fixed)],
            meta=(numbers, context.epoch, lists, lengths),
            writable_inputs=True,
        )
        return future.result().value

    def _failure(self, failed: _Failed, context: Context) -> PenstockError:
        if isinstance(failed.error, PenstockError) and not failed.is_users:
            return failed.error
        where = locate(self.node.inputs[0], failed.row, context.epoch)
        failed.error.__cause__ = workers.RemoteTraceback(failed.traceback_text)
        failure = self.node.stage.function.failure(where, failed.error)
        return caused(failure, failed.error, failed.traceback_text if self.node.stage.skip else "")

    def _shared(self, fields: Sequence[Field], size: int, *, aligned: bool) -> Block:
        return allocate_block(fields, size, self._lease, aligned=aligned)

    def _lease(self, nbytes: int) -> Array:
        memory = self.pool.arena.lease(max(nbytes, 1))
        # Rows turned out longer than planned, or a function keeps some: memory of its own will do.
        return memory if memory is not None else self.pool.add_arena(nbytes).lease(nbytes)  # type: ignore[return-value]
