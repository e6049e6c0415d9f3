"""A shuffle of rows whose random access is cheap: exact, by index, at no cost in memory."""

from collections.abc import Hashable

from penstock.core.order import Permutation
from penstock.core.route import Route
from penstock.core.rows import Rows, RowSet, as_index
from penstock.stages.base.stage import Stage, StageRows


class ShuffledRows(StageRows):
    """Row i is row `permutation(i)` of the input."""

    def __init__(self, stage: Stage, node: Rows, *, seed: int) -> None:
        super().__init__(stage, node)
        self.seed = seed
        self.num_shuffles += 1
        self.follows_epoch = True

    def input_rows(self, rows: RowSet, epoch: int) -> RowSet:
        """Return the permuted row numbers."""
        words = (self.seed, epoch, self.input.num_shuffles)
        return Permutation(self.num_rows, words).rows(as_index(rows))

    def route(self, epoch: int) -> Route | None:
        """Return the route of the permuted rows."""
        route = self.input.route(epoch)
        words = (self.seed, epoch, self.input.num_shuffles)
        return None if route is None else route.shuffled(self.num_rows, words)

    def order_key(self) -> tuple[Hashable, ...]:
        """Return the seed and the number of rows: nothing else matters."""
        return (self.seed, self.input.num_shuffles), self.num_rows

    def how_mixed(self) -> float | None:
        """Return how well rows are mixed: as well as can be."""
        return 1.0

    def choice(self) -> str:
        """Return how it shuffles."""
        what = "whole batches" if self.is_batched else "rows"
        return f"exact, by index: a seeded bijection over {self.num_rows} {what}; mixing 1.00"
