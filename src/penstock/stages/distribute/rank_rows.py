"""The rows of one rank, batch after batch: those that it reads, if rows have random access."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.fields import Field, repeated
from penstock.core.grains import grouped
from penstock.core.nest import flatten, tuple_of
from penstock.core.residues import Residue
from penstock.core.route import Parts, Route
from penstock.core.rows import ENDLESS, Context, Node, Rows, RowSet, as_index, bounds, count
from penstock.core.share import Share
from penstock.core.spec import ArraySpec
from penstock.stages.base.stage import Stage, StageRows

WEIGHT = Field(ArraySpec((), np.float32))


def add_weight(node: Node, field: Field) -> None:
    """Make the rows of a node pairs of what they are and of a weight."""
    node.fields = (*node.fields, field)
    node.structure = tuple_of([node.structure, flatten(0)[1]])


class RankRows(StageRows):
    """Rows rank, rank + world, ... of every run of `batch_size` rows of the input; the last run may be filled up."""

    def __init__(self, stage: Stage, node: Rows, share: Share, *, drop: bool) -> None:
        # Only these rows will be asked for: nothing that the input loads ahead need have others.
        super().__init__(stage, node.narrowed(Residue(share.world, share.rank)))
        self.part = share
        self.whole, self.rest = divmod(node.num_rows, share.batch_size)
        """How many global batches are whole, and the rows of a last one that is not."""
        if drop:
            self.rest = 0
        self.num_rows = ENDLESS
        if not node.is_endless:
            self.num_rows = self.whole * share.local_size + share.size(self.rest)
        self.grains = grouped(node.grains, share.world)
        if share.static and self.rest:
            # A short batch that is filled up may have the largest row so often.
            times = -(-share.batch_size // self.rest)
            self.fields = tuple(replace(f, tops=repeated(f.tops, times)) for f in node.fields)

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the numbers that rows have in the input."""
        world, rank = self.part.world, self.part.rank
        if isinstance(rows, slice):
            numbers = np.arange(rows.start * world + rank, rows.stop * world + rank, world)
        else:
            numbers = rows * world + rank
        # The world divides the batch size, so that whole batches need no look at where they begin.
        if self._are_whole(rows):
            return numbers
        start = self.whole * self.part.batch_size
        return np.where(numbers < start, numbers, start + (numbers - start) % max(1, self.rest))

    def route(self, epoch: int) -> Route | None:
        """Return the route of this rank's rows."""
        route = self.input.route(epoch)
        if route is None or route.batch_size is not None:
            return None
        strided = route.strided(self.part.world, self.part.rank)
        return None if strided is None else _RankRoute(self, route, strided, epoch)

    def weights(self, rows: RowSet) -> npt.NDArray[np.float32]:
        """Return what rows weigh."""
        weights = np.ones(count(rows), np.float32)
        if not self._are_whole(rows):
            rows = as_index(rows)
            first = self.whole * self.part.local_size
            is_last = rows >= first
            weights[is_last] = self.part.weights(self.rest)[rows[is_last] - first]
        return weights

    def _are_whole(self, rows: RowSet) -> bool:
        """Whether all rows are of global batches that are whole."""
        return not count(rows) or bounds(rows)[1] < self.whole * self.part.local_size

    def describe(self) -> str:
        """Return which rows these are."""
        return f"rank {self.part.rank} of {self.part.world}"


class _RankRoute(Route):
    """Every world-th row of global batches that are whole, and one by one the rows of a last one that is not."""

    def __init__(self, node: RankRows, route: Route, strided: Route, epoch: int) -> None:
        self.node = node
        self.whole = route
        self.rank = strided
        self.epoch = epoch

    def parts(self, start: int, stop: int) -> Parts:
        """Return where rows `start` to `stop` are."""
        end = max(start, min(stop, self.node.whole * self.node.part.local_size))
        found = self.rank.parts(start, end) if start < end else []
        if end < stop:
            rest = self.node.input_rows(slice(end, stop), self.epoch)
            for row in as_index(rest).tolist():
                found += self.whole.parts(row, row + 1)
        return found


class WeighedRows(StageRows):
    """The rows of a rank, each with its weight."""

    input: RankRows

    def __init__(self, stage: Stage, node: RankRows) -> None:
        super().__init__(stage, node)
        add_weight(self, WEIGHT)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows, and write their weights beside them."""
        last = len(out.sinks) - 1
        weights = out.sinks[last]
        assert isinstance(weights, Fixed)
        weights.put(self.input.weights(rows))
        self.input.read(rows, out.part(0, last), context)

    def describe(self) -> str:
        """Return what is added to the rows."""
        return "weights"
