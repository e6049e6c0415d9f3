"""The worker processes of one function, and how rows get there and results come back."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.arrays import Array, Index
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed
from penstock.core.fields import Field, allocate_block, block_nbytes
from penstock.core.lazy import lazy
from penstock.core.rows import Context, rows_per_block
from penstock.engine.functions.placement import Decision
from penstock.engine.functions.task import Failed, FunctionNode, task_of
from penstock.errors import PenstockError, StreamClosedError
from penstock.memory import Account, process_ledger
from penstock.stages.base.functions import BadRow, caused
from penstock.stages.map import locate

if TYPE_CHECKING:
    from penstock import workers
else:
    workers = lazy("penstock.workers")  # Most pipelines never start a process.


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
        self.fields = task_of(node).out_fields
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
            pickled = workers.pickle_function(task_of(node), name=name)
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

        Return the bad rows, where these are skipped.
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
        if isinstance(result, Failed):
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

    def _failure(self, failed: Failed, context: Context) -> PenstockError:
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
        # The arena is full: rows are longer than planned, or a function keeps some. Take another arena.
        return memory if memory is not None else self.pool.add_arena(nbytes).lease(nbytes)  # type: ignore[return-value]
