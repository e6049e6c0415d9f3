"""The worker processes of one function, and how rows get there and results come back."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penstock.core import idle
from penstock.core.arrays import Array, Index, typed
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed, Ragged, Text, merge
from penstock.core.fields import allocate_block, round_up
from penstock.core.lazy import lazy
from penstock.core.rows import Context, RowSet, as_index
from penstock.engine.functions.task import (
    Answer,
    Failed,
    FunctionNode,
    TooLong,
    arrays_of,
    columns_from,
    sizes_of,
    task_of,
)
from penstock.engine.functions.trays import Tray, Trays, rows_per_tray, tray_nbytes
from penstock.errors import BudgetError, PenstockError, StreamClosedError
from penstock.memory import ALIGNMENT, Account, format_nbytes
from penstock.stages.base.functions import BadRow, caused
from penstock.stages.map import locate

if TYPE_CHECKING:
    from penstock import workers
else:
    workers = lazy("penstock.workers")  # Most pipelines never start a process.

_GRACE_SECONDS = 1.0  # How long rows that are under way may take when a stream is closed.

Fill = Callable[[int, int, Block], None]
"""Puts the rows from one place to another into a block: those of its fields that have a fixed size."""


@dataclass(slots=True)
class _Call:
    """One call of `run`: the rows that it was given, and what came back so far."""

    numbers: Index
    fill: Fill
    varying: list[Text | Ragged]
    """The columns of the fields of variable size, whole."""
    first: int
    """Where the rows begin in these columns."""
    sizes: Index | None
    """The bytes of each row in these columns."""
    out: Block
    context: Context
    num_good: int = 0
    pieces: list[list[Text | Ragged]] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)


class RemoteMap:
    """The worker processes of one function, while a stream runs; then they wait for the next stream of its node."""

    def __init__(
        self,
        node: FunctionNode,
        processes: int,
        *,
        count: int,
        block_nbytes: int,
        account: Account,
        budget: int,
        retries: int,
    ) -> None:
        """Start the processes, or take those that wait since the stream before.

        `account` has the grant for `count` trays, or less, but for one of one row.
        """
        self.node = node
        self.num_processes = processes
        self.retries = retries
        self.account = account
        self.out_fields = task_of(node).out_fields
        self._is_fixed = all(f.storage_shape is not None for f in node.input.fields)
        self._fixed_in = [f for f in node.input.fields if f.storage_shape is not None]
        self._fixed_out = [f for f in self.out_fields if f.storage_shape is not None]
        self._varying_out = [f for f in self.out_fields if f.storage_shape is None]
        self._result_nbytes = float(sum(f.nbytes for f in self._varying_out))
        """The bytes of a row's results of variable size: estimated, then as they come."""
        self._has_failed = False
        self._may_rest = False
        """Whether nothing is under way any more, and nothing went wrong: the processes can run the next epoch."""
        self._is_left = False
        """Whether the processes are left to the next stream, and no longer ours."""
        name = node.stage.describe()
        waiting: workers.WorkerPool | None = None
        try:
            self._rows = self._rows_that_fit(count, rows_per_tray(node, block_nbytes))
            self._tray_nbytes = tray_nbytes(node, self._rows)
            pickled = workers.pickle_function(task_of(node), name=name)
            # Noted here before they go on, so that Ctrl-C ends them.
            waiting = idle.take(node)
            if waiting is not None and not waiting.resume(processes, pickled):
                waiting.close()
                waiting = None
            self.pool = waiting or workers.WorkerPool(processes, pickled, name=name)
            self._trays = Trays(self.pool, account, budget)
        except BaseException:
            if waiting is not None:
                waiting.close()
            account.close()
            raise

    def _rows_that_fit(self, count: int, most: int) -> int:
        """Return how many rows of at most `most` a tray can have, for as many trays of `count` as the grant allows."""
        grant = self.account.grant
        nbytes = grant // max(1, min(count, grant // tray_nbytes(self.node, 1)))
        while most > 1 and tray_nbytes(self.node, most) > nbytes:
            most //= 2
        return most

    def stop(self, *, is_interrupted: bool = False) -> None:
        """Let nobody wait for results any more; rows that are under way have a second to end, then are killed."""
        if self._is_left:
            return  # Ctrl-C ended `close` early, and this is the next try.
        self._trays.stop()
        is_back = self._trays.wait_idle(_GRACE_SECONDS)
        self._may_rest = is_back and not self._has_failed and not is_interrupted
        if not self._may_rest:
            self.pool.close()

    def close(self) -> None:
        """Let the processes wait for the next stream of the node, or end them."""
        try:
            if self._is_left:
                return
            # All that is shared with them is given back here, before the account is closed.
            if self._may_rest and self.pool.rest():
                # Said first: another stream may have them the moment they are kept. If Ctrl-C strikes between these
                # lines, nobody gets them, and they end by themselves.
                self._is_left = True
                idle.keep(self.node, self.pool)
            else:
                self.pool.close()
        finally:
            self.account.close()

    def run_rows(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read rows of the input, and put what the function makes of them into `out`."""
        source = self.node.input
        numbers = as_index(rows)
        if not self._is_fixed:
            block = context.block(source, len(numbers))
            source.read(rows, block, context)  # type: ignore[union-attr]  # A map of rows calls this.
            self.run_block(block.finish(), 0, numbers, out, context)
            return

        def fill(start: int, stop: int, block: Block) -> None:
            part = numbers[start:stop]
            if isinstance(rows, slice):
                part = slice(rows.start + start, rows.start + stop)  # type: ignore[assignment]
            source.read(part, block, context)  # type: ignore[union-attr]

        self._run(_Call(numbers, fill, [], 0, None, out, context))

    def run_block(
        self, block: Block, first: int, numbers: Index, out: Block, context: Context
    ) -> list[BadRow]:
        """Put what the function makes of the rows of a block, from `first` on, into `out`; return the bad rows."""
        fixed = [column for column in block.columns if isinstance(column, Fixed)]
        varying = [column for column in block.columns if not isinstance(column, Fixed)]
        stop = first + len(numbers)
        sizes = None
        if varying:
            sizes = np.sum([sizes_of(column)[first:stop] for column in varying], axis=0)

        def fill(start: int, stop: int, target: Block) -> None:
            for sink, column in zip(target.sinks, fixed, strict=True):
                sink.copy_from(column, np.arange(first + start, first + stop))

        return self._run(_Call(numbers, fill, varying, first, sizes, out, context))

    def _run(self, call: _Call) -> list[BadRow]:
        """Run a few rows at a time, as many as a tray holds: blocks may be far larger, if they are of large batches."""
        start = 0
        try:
            while start < len(call.numbers):
                start += self._run_some(call, start)
        except StreamClosedError:
            raise
        except BaseException:
            self._has_failed = True
            raise
        sinks = [sink for sink in call.out.sinks if isinstance(sink, Pieces)]
        for number, sink in enumerate(sinks):
            if call.pieces:
                sink.add(merge([piece[number] for piece in call.pieces], sink.allocate))
            else:
                sink.put([])
        return call.bad

    def _run_some(self, call: _Call, start: int) -> int:
        """Run the next rows, and return how many they were."""
        num_rows = min(self._rows, len(call.numbers) - start)
        while num_rows > 1 and self._needed(call, start, num_rows) > self._tray_nbytes:
            num_rows //= 2
        nbytes = max(self._tray_nbytes, self._needed(call, start, num_rows))
        try:
            tray = self._trays.take(nbytes)
        except BudgetError as error:
            where = self._where(call, int(call.numbers[start]))
            text = f"{self.node.stage.describe()} on {where}, which takes {format_nbytes(nbytes)}"
            raise BudgetError(f"{text}: {error}") from None
        is_kept = False
        try:
            result, made, room = self._result(call, start, start + num_rows, tray)
            is_kept = result.is_kept
            answer: Answer | Failed | TooLong = result.value
            if isinstance(answer, Failed):
                failure = self._failure(answer, call.context)
                raise failure from failure.__cause__
            if isinstance(answer, TooLong):
                raise self._too_long(call, answer.row, answer.nbytes)
            self._collect(call, answer, start, made, room)
            return answer.num_rows
        finally:
            self._trays.give_back(tray, is_kept=is_kept)

    def _result(
        self, call: _Call, start: int, stop: int, tray: Tray
    ) -> "tuple[workers.TaskResult, Block, Array]":
        """Have a worker run the rows; if it dies, another one, as often as `retries` says."""
        for left in range(self.retries, -1, -1):
            try:
                # Filled anew at each try: a worker that died may have changed its rows.
                return self._submit(call, start, stop, tray)
            except workers.PoolClosed as error:
                raise StreamClosedError("the stream was closed.") from error
            except workers.WorkerDied as error:
                if left == 0:
                    raise self._lost(call, start, stop, error) from error
        raise AssertionError("range() ends with 0")

    def _submit(
        self, call: _Call, start: int, stop: int, tray: Tray
    ) -> "tuple[workers.TaskResult, Block, Array]":
        """Put rows into a tray and have a worker run them; return its result, and where results lie in the tray."""
        tray.used = 0
        size = stop - start
        source = self.node.input
        numbers = tray.put(call.numbers[start:stop])
        block = allocate_block(self._fixed_in, size, tray.allocate, aligned=source.is_batched)
        call.fill(start, stop, block)
        block.finish()
        rows = np.arange(call.first + start, call.first + stop)
        fixed, varying = iter(block.columns), iter(call.varying)
        arrays = [numbers]
        for one in source.fields:
            if one.storage_shape is None:
                column = next(varying).take(rows, tray.allocate, aligned=source.is_batched)
                arrays += [tray.put(array) for array in arrays_of(column)]
            else:
                arrays += [tray.put(array) for array in arrays_of(next(fixed))]
        aligned = self.node.is_batched
        made = allocate_block(self._fixed_out, size, tray.allocate, aligned=aligned).finish()
        room = tray.rest()
        outputs = [array for column in made.columns for array in arrays_of(column)]
        try:
            future = self.pool.submit(
                int(call.numbers[start]),
                inputs=arrays,
                outputs=[*outputs, room],
                meta=(call.context.epoch, self._trays.most_nbytes()),
                writable_inputs=True,
            )
            return future.result(), made, room
        except PenstockError:
            raise
        except Exception as error:  # Nothing that the function raised, which is a `Failed`.
            raise self._lost(call, start, stop, error) from error

    def _collect(self, call: _Call, answer: Answer, start: int, made: Block, room: Array) -> None:
        """Copy the results of some rows out of their tray."""
        good = np.arange(answer.num_rows - len(answer.bad))
        spans = (
            sink.span(call.num_good, call.num_good + len(good)) if call.num_good else sink
            for sink in call.out.sinks
            if isinstance(sink, Fixed)
        )
        for span, column in zip(spans, made.columns, strict=True):
            span.copy_from(column, good)
        call.num_good += len(good)
        call.bad += [
            BadRow(start + place, self._failure(failed, call.context))
            for place, failed in answer.bad
        ]
        if not answer.layout:
            return
        nbytes = sum(array.nbytes for array in answer.spilled)
        try:
            self._trays.charge_more(nbytes)
        except BudgetError:
            raise self._too_long(call, int(call.numbers[start]), nbytes) from None
        try:
            call.pieces.append(self._varying(call.out, answer, good, room))
        finally:
            answer.spilled.clear()
            self._trays.release_more(nbytes)

    def _varying(self, out: Block, answer: Answer, good: Index, room: Array) -> list[Text | Ragged]:
        """Return copies of the results of variable size."""
        arrays, nbytes = answer.spilled, 0
        for number, (dtype, shape) in enumerate(answer.layout):
            size = math.prod(shape) * dtype.itemsize
            if number >= len(answer.spilled):
                arrays = [*arrays, typed(room, nbytes, shape, dtype)]
            nbytes += round_up(size, ALIGNMENT)
        found = nbytes / len(good)
        # Up at once, and down slowly: results that do not fit cost more than room that is not used.
        self._result_nbytes = max(found, (7 * self._result_nbytes + found) / 8)
        sinks = [sink for sink in out.sinks if isinstance(sink, Pieces)]
        columns = columns_from(self._varying_out, arrays)
        return [
            column.take(good, sink.allocate, aligned=sink.aligned)
            for sink, column in zip(sinks, columns, strict=True)
            if not isinstance(column, Fixed)
        ]

    def _needed(self, call: _Call, start: int, num_rows: int) -> int:
        """Return the bytes of a tray for some rows and their results."""
        nbytes = tray_nbytes(self.node, num_rows, fixed_only=True)
        if call.sizes is not None:
            nbytes += int(call.sizes[start : start + num_rows].sum())
        return nbytes + int(num_rows * self._result_nbytes)

    def _where(self, call: _Call, row: int) -> str:
        return locate(self.node.inputs[0], row, call.context.epoch)

    def _lost(self, call: _Call, start: int, stop: int, error: Exception) -> PenstockError:
        """Return the error for rows that no worker could run to the end."""
        where = self._where(call, int(call.numbers[start]))
        rows = where if stop - start == 1 else f"one of {stop - start} rows from {where} on"
        return self.node.stage.function.failure(rows, error)

    def _too_long(self, call: _Call, row: int, nbytes: int) -> BudgetError:
        budget = self._trays.budget
        return BudgetError(
            f"{self.node.stage.describe()} made {format_nbytes(nbytes)} of {self._where(call, row)}, more than "
            f"the memory budget of {format_nbytes(budget)} has room for. "
            f"Write with_options(memory={budget + 3 * nbytes}), or more, or let it return less.",
            is_final=True,
        )

    def _failure(self, failed: Failed, context: Context) -> PenstockError:
        if isinstance(failed.error, PenstockError) and not failed.is_users:
            return failed.error
        where = locate(self.node.inputs[0], failed.row, context.epoch)
        failed.error.__cause__ = workers.RemoteTraceback(failed.traceback_text)
        failure = self.node.stage.function.failure(where, failed.error)
        return caused(failure, failed.error, failed.traceback_text if self.node.stage.skip else "")
