"""Routes: where rows of arrays in memory are found, by arithmetic alone, so that one native call reads a block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.order import num_rounds, round_keys

Step = tuple[int, int, int, npt.NDArray[np.uint64] | _native.Choice | None]
"""Rewrites row numbers: scale * row + offset, then what the keys select, a permutation of so many rows, or a choice."""
Parts = list[tuple[_native.Route, int, int]]
"""Where the rows of a block are: on which native route, from which row on, and how many."""
Located = tuple[Sequence[npt.NDArray[np.uint8]], Index]
"""Tables, and numbers of rows of theirs."""


class Route(ABC):
    """Where rows are found. A stage that only rewrites row numbers makes its route of that of its input."""

    batch_size: int | None = None
    """How many rows a batch has, if each row is a batch of rows."""
    is_whole: bool = True
    """Whether all batches have as many rows."""

    @abstractmethod
    def parts(self, start: int, stop: int) -> Parts:
        """Return where rows `start` to `stop` are; of batches, where their rows are."""

    def located(self, rows: Index) -> Located | None:
        """Return the tables, and the numbers there of any rows; None if no single set of tables has them all."""
        return None

    def strided(self, scale: int, offset: int) -> "Route | None":
        """Return the route of rows whose row i is row scale * i + offset of this one; None if there is none."""
        return Shifted(self, offset) if scale == 1 else None

    def shuffled(self, num_rows: int, words: tuple[int, ...]) -> "Route | None":
        """Return the route of rows of which row i is row `Permutation(num_rows, words)(i)` here, if there is one."""
        return None

    def chosen(self, choice: _native.Choice) -> "Route | None":
        """Return the route of rows of which row i is row `choice(i)` here, if there is one."""
        return None


@dataclass(frozen=True, slots=True)
class Tables(Route):
    """Row i is found in the tables by taking the steps one after the other."""

    tables: tuple[npt.NDArray[np.uint8], ...]
    """The bytes of an array for each field: (rows, bytes of a row)."""
    steps: tuple[Step, ...] = ()
    _made: list[_native.Route] = field(default_factory=list, compare=False)

    def parts(self, start: int, stop: int) -> Parts:
        """Return where rows `start` to `stop` are."""
        if not self._made:
            self._made.append(_native.Route(self.tables, self.steps))
        return [(self._made[0], start, stop - start)]

    def located(self, rows: Index) -> Located:
        """Return the tables, and the numbers of these rows after all steps."""
        for scale, offset, num_rows, keys in self.steps:
            if (scale, offset) != (1, 0):
                rows = rows * scale + offset
            if isinstance(keys, _native.Choice):
                rows = np.ascontiguousarray(rows, np.int64)
                picked = np.empty(len(rows), np.int64)
                keys.rows(rows, picked)
                rows = picked
            elif keys is not None:
                permuted = np.empty(len(rows), np.int64)
                _native.permute(np.ascontiguousarray(rows, np.int64), permuted, num_rows, keys)
                rows = permuted
        return self.tables, rows

    def strided(self, scale: int, offset: int) -> Route:
        """Return the route with one more step before the others."""
        return replace(self, steps=((scale, offset, 0, None), *self.steps), _made=[])

    def shuffled(self, num_rows: int, words: tuple[int, ...]) -> Route:
        """Return the route with one more step before the others."""
        keys = round_keys(words, num_rounds(num_rows))
        return replace(self, steps=((1, 0, num_rows, keys), *self.steps), _made=[])

    def chosen(self, choice: _native.Choice) -> Route:
        """Return the route with one more step before the others."""
        return replace(self, steps=((1, 0, 0, choice), *self.steps), _made=[])


def beside(routes: "Sequence[Route | None]") -> Route | None:
    """Return the route of rows that have the fields of all routes, if all are rows of tables as they stand."""
    tables: list[npt.NDArray[np.uint8]] = []
    for route in routes:
        if not isinstance(route, Tables) or route.steps:
            return None
        tables += route.tables
    return Tables(tuple(tables))


class Shifted(Route):
    """Row i is row i + offset of another route."""

    def __init__(self, inner: Route, offset: int) -> None:
        self.inner = inner
        self.offset = offset
        self.batch_size = inner.batch_size
        self.is_whole = inner.is_whole

    def parts(self, start: int, stop: int) -> Parts:
        """Return where rows `start` to `stop` are."""
        return self.inner.parts(start + self.offset, stop + self.offset)

    def located(self, rows: Index) -> Located | None:
        """Return where the other route has these rows."""
        return self.inner.located(rows + self.offset)


class Batches(Route):
    """Row i is a batch of the rows from i * batch_size on."""

    def __init__(self, inner: Route, batch_size: int, num_rows: int, *, is_whole: bool) -> None:
        """Make batches of `num_rows` rows in all; `is_whole` if none is cut short."""
        self.inner = inner
        self.batch_size = batch_size
        self.num_rows = num_rows
        self.is_whole = is_whole

    def parts(self, start: int, stop: int) -> Parts:
        """Return where the rows of batches `start` to `stop` are."""
        assert self.batch_size is not None
        first, end = start * self.batch_size, stop * self.batch_size
        return self.inner.parts(first, min(self.num_rows, end))


class Passes(Route):
    """Rows that are read again and again, maybe in another order each time."""

    def __init__(
        self, num_rows: int, of_pass: Callable[[int], Route | None], batch_size: int | None
    ) -> None:
        """Make passes of `num_rows` rows each; `of_pass` returns the route of one."""
        self.num_rows = num_rows
        self.batch_size = batch_size
        self._of_pass = of_pass
        self._last: tuple[int, Route | None] = (-1, None)

    def parts(self, start: int, stop: int) -> Parts:
        """Return where rows `start` to `stop` are, which may be of several passes."""
        found: Parts = []
        while start < stop:
            number, first = divmod(start, self.num_rows)
            route = self._pass(number)
            end = min(stop, (number + 1) * self.num_rows)
            found += route.parts(first, first + end - start)
            start = end
        return found

    def located(self, rows: Index) -> Located | None:
        """Return where the rows are, if all are of one pass."""
        passes, positions = np.divmod(rows, self.num_rows)
        if not len(rows) or (passes != passes[0]).any():
            return None
        return self._pass(int(passes[0])).located(positions)

    def _pass(self, number: int) -> Route:
        last, route = self._last
        if last != number or route is None:
            route = self._of_pass(number)
            assert route is not None, "one pass has a route, and another has none"
            self._last = number, route
        return route
