"""Blocks of files whose reading is one native job: rows are read, checked and decoded without the interpreter lock.

A thread that reads in Python takes the lock several times for each block, and waits for it while the consumer has it:
with a consumer that makes text of blocks, reading and using took turns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock.core.blocks import Block
from penstock.core.parcels import Begun, Parcel
from penstock.core.rows import Context, Deferred, Node, Rows
from penstock.stages.base.direct import advance

Span = tuple[int, int]


class Later:
    """Begins blocks of the rows of a node: their memory is taken at once, their rows come later."""

    def __init__(
        self,
        rows: Rows,
        context: Context,
        read: Callable[[Span], Parcel],
        took: Callable[[Span, Block, float], None],
    ) -> None:
        """Begin blocks that `read` would read in this thread; `took` is told how long each took."""
        self._rows = rows
        self._read = read
        self._took = took
        self._clock = context.clock
        self._deferred: list[Deferred] = []
        self._context = replace(context, deferred=self._deferred)
        source: Node = rows
        while source.inputs:
            (source,) = source.inputs
        self._source = source

    def begin(self, span: Span) -> Begun | None:
        """Return the block of rows `span[0]` to `span[1]`, and the job that fills it; None if there is no such job."""
        rows = slice(*span)
        if not self._rows.defers(rows):
            return None
        size = span[1] - span[0]
        block = self._context.block(self._rows, size)
        self._deferred.clear()
        try:
            self._rows.read(rows, block, self._context)
        except (OSError, ValueError):
            return None  # A file that can't be opened: whoever reads it in its turn says so.
        (deferred,) = self._deferred
        self._deferred.clear()
        parcel = Parcel(block.finish(), size, partial(advance, span[0]))
        return _Begun(parcel, deferred.job, span, deferred.check)

    def end(self, begun: Begun) -> Parcel:
        """Return the block; where the job could not read it, read it in Python, which says why."""
        assert isinstance(begun, _Begun)
        if not begun.job.is_good:
            return self._read(begun.span)
        begun.check()
        thread, began, took, _, seconds = begun.job.times
        self._clock.add(self._source, seconds, 0)  # The rows were counted when it was begun.
        self._clock.note(self._rows, thread, began, took)
        self._took(begun.span, begun.parcel.block, seconds)
        return begun.parcel


@dataclass(slots=True)
class _Begun(Begun):
    """A block that is being read, which rows it has, and what to check in the end."""

    span: Span
    check: Callable[[], None]
