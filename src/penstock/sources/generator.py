"""Rows from the user's own generator: checked against their spec, copied straight into blocks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from penstock._native import RowFiller
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.evidence import Evidence, unproven
from penstock.core.fields import Field
from penstock.core.nest import field_names, flatten, plain_keys
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node, rows_per_block
from penstock.core.spec import ArraySpec, declared
from penstock.core.state import cursor_parts, wrong_cursor
from penstock.errors import FunctionError, LengthError, SpecMismatchError, StreamClosedError
from penstock.stages.base.functions import UserFunction
from penstock.stages.base.results import Misfit, conformed, misfit_words
from penstock.stages.unbatch import Unbatch

_LONG = 0.02  # Seconds. Blocks get as many rows as a generator makes in this time.


def generated(
    function: Any, spec: Any, *, length: int | None, rows_per_item: str, site: str
) -> Node:
    """Return the rows of a generator, which yields one or many at a time."""
    if rows_per_item not in ("one", "many"):
        raise ValueError(f'rows_per_item must be "one" or "many", got {rows_per_item!r}.')
    start = function if callable(function) else _Restart(function)
    user = UserFunction(start, "from_generator", site)
    if rows_per_item == "one":
        return GeneratorFlow(user, spec, length=length)
    leaves, structure = declared(spec)
    blocks = [ArraySpec((None, *leaf.shape), leaf.dtype) for leaf in leaves]
    items = GeneratorFlow(user, structure.unflatten(blocks), length=None, num_item_axes=1)
    return _Items(user).build(items)


@dataclass(frozen=True, slots=True)
class _Items(Unbatch):
    """The rows of items that are many rows each."""

    function: UserFunction

    def unequal(self, name: str, counts: tuple[int, int], cursor: Cursor) -> SpecMismatchError:
        """Return the error that names the generator, and the item."""
        passed, _, extra = cursor
        text = (
            f'with rows_per_item="many" all fields of an item must have the same number of rows, got {counts[0]} in '
            f"field {name!r} and {counts[1]} in the first one. If an item is one row, leave rows_per_item out."
        )
        return self.function.mismatch(f"item {passed + extra}", text)


class _Restart:
    """A function that starts an iterable object anew."""

    def __init__(self, rows: Iterable[Any]) -> None:
        if iter(rows) is rows:
            raise TypeError(
                "from_generator needs a function that returns an iterator, so that every epoch can "
                f"start it anew, got {type(rows).__name__}, which can be read once.\n"
                "  wrong: from_generator(rows(), spec)\n  right: from_generator(rows, spec)"
            )
        self.rows = rows
        self.__qualname__ = type(rows).__qualname__

    def __call__(self) -> Iterator[Any]:
        return iter(self.rows)


class GeneratorFlow(Flow):
    """The rows that a generator yields; the cursor is (rows before a parcel, state, rows of it used).

    A generator can't be rewound: a resume starts it anew and throws away what was used, unless the
    iterator has `state()` and `restore(state)`. The state in the cursor is that of the iterator before
    the parcel, or None.
    """

    def __init__(
        self, function: UserFunction, spec: Any, *, length: int | None, num_item_axes: int = 0
    ) -> None:
        leaves, self.structure = declared(spec)
        if not leaves:
            raise ValueError("spec must have at least one field, got an empty nest.")
        self.function = function
        self.fields = tuple(Field(leaf) for leaf in leaves)
        self.num_rows = length
        self.num_item_axes = num_item_axes
        """The axes that an item has before those of its rows."""

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Return the rows in blocks; a thread of its own asks the generator for rows.

        So if the generator blocks and the stream is closed, only that thread is left behind, and none that holds
        blocks and windows of other stages.
        """
        return context.executor.pumped(super().parcels(cursor, context), of=self)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows in blocks."""
        passed, saved, extra = cursor_parts(self, cursor, (0, None, 0))
        rows = self._start(saved)
        try:
            self._pass_over(rows, passed + extra if saved is None else extra, cursor)
            passed += extra
            most = rows_per_block(self, context.block_nbytes)
            size = 1
            while True:
                state = rows.state() if _is_restorable(rows) else None
                started = perf_counter()
                block = context.block(self, size)
                filler = _Filler(self, block, passed, context.block_nbytes)
                context.resources.watch(filler)
                filled = filler.fill(rows, size)
                if filled < size and not filler.is_ended:  # Its rows are long: they fill it.
                    block.num_rows = filled
                is_ended = filler.is_ended
                del filler
                if filled:
                    yield Parcel(block.finish(), filled, partial(_after, passed, state))
                passed += filled
                if is_ended:
                    break
                quick = int(_LONG * size / max(1e-9, perf_counter() - started))
                size = max(1, min(most, 2 * size, quick))
                del block
            self._check_length(passed)
        finally:
            close = getattr(rows, "close", None)
            if close is not None:
                close()

    def _start(self, saved: Any) -> Any:
        source = self.function.function
        try:
            rows: Any = iter(_iterable(source()))
            if saved is not None:
                rows.restore(saved)
        except Exception as error:
            message = f"{self.function.describe()} could not start: {type(error).__name__}: {error}"
            raise FunctionError(message) from error
        return rows

    def _pass_over(self, rows: Iterator[Any], count: int, cursor: Cursor) -> None:
        """Throw away the rows that were used before the state was made."""
        found = 0
        try:
            for _ in islice(rows, count):
                found += 1
        except Exception as error:
            raise self.function.failure(f"row {found}, on the way to its state", error) from error
        if found < count:
            raise wrong_cursor(self, cursor)

    def _check_length(self, passed: int) -> None:
        if self.num_rows is not None and passed != self.num_rows:
            raise LengthError(
                f"{self.function.describe()} ended after {passed} rows, but length={self.num_rows} was "
                "declared; correct it, or leave it out."
            )

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks that are made ahead."""
        return (ahead + 3) * self.block_nbytes(rows_per_block(self, block_nbytes))

    def notes(self) -> tuple[str, ...]:
        """Return the note that resuming costs time."""
        note = (
            "a generator can only be read forward: a resume runs it again and throws away what was "
            "used, unless its iterator has state() and restore(state). cache() keeps the rows."
        )
        return (note,)

    def describe(self) -> str:
        """Return the call that made it."""
        length = "" if self.num_rows is None else f", length={self.num_rows}"
        return f"{self.function.describe()[:-1]}{length})"

    def fingerprint(self) -> Any:
        """Return the name of the function and the spec of the rows."""
        specs = [field.spec.to_json() for field in self.fields]
        return ["generator", self.function.name, self.num_rows, specs]

    def evidence(self) -> Iterator[Evidence]:
        """Yield that nothing can be proven: a generator may read anything."""
        why = "what a generator yields may depend on anything"
        yield Evidence(self.function.describe(), unproven(why), "code")


class _Filler:
    """Copies rows into one block: natively if they are just as declared, else checked and cast first."""

    def __init__(self, flow: GeneratorFlow, block: Block, first: int, most_nbytes: int) -> None:
        self.flow = flow
        self.left_nbytes = most_nbytes
        """The bytes of rows of any length that the block may still get; it gets one row in any case."""
        self.is_ended = False
        """Whether there are no more rows."""
        self.first = first
        self.block = block
        self.sinks = block.sinks
        self.native: RowFiller | None = None
        self.is_closed = False
        self.lists: list[list[Any]] = [[] for _ in flow.fields]
        self.is_bare = flow.structure == flatten(0)[1]
        self.number = 0

    def fill(self, rows: Iterator[Any], size: int) -> int:
        """Copy up to `size` rows; return how many there were."""
        native = self.native = self._native()
        try:
            if native is None:
                self.is_ended = True
                for row in islice(rows, size):
                    self._put(row, is_last=self.number + 1 == size)
                    if self.number == size or self.left_nbytes <= 0:
                        self.is_ended = False
                        break
            while native is not None and self.number < size:
                try:
                    odd = native.fill(rows, self.number, size)
                finally:
                    self.number = native.count
                if odd is None:
                    self.is_ended = self.number < size
                    break
                self._put(odd[0], is_last=False)
            self._refuse_if_closed()
        except (SpecMismatchError, StreamClosedError):
            raise
        except Exception as error:
            raise self.flow.function.failure(f"row {self.first + self.number}", error) from error
        for sink, values in zip(self.sinks, self.lists, strict=True):
            if not isinstance(sink, Fixed):
                sink.put(values)
        return self.number

    def close(self) -> None:
        """Let go of the block, also while another thread waits for the generator: that thread puts nothing any more."""
        self.is_closed = True
        if self.native is not None:
            self.native.release()
        self.block.sinks, self.sinks, self.lists = [], [], []

    def _refuse_if_closed(self) -> None:
        if self.is_closed:
            raise StreamClosedError("the stream was closed.")

    def _native(self) -> RowFiller | None:
        """Return the native filler, for rows that are a tuple, a dict or an array of fixed shapes; else None."""
        columns = tuple(sink.rows for sink in self.sinks if isinstance(sink, Fixed))
        if len(columns) < len(self.sinks):
            return None
        try:
            return RowFiller(columns, plain_keys(self.flow.structure))
        except LookupError:
            return None

    def _put(self, row: Any, *, is_last: bool) -> None:
        self._refuse_if_closed()
        for place, (sink, value) in enumerate(zip(self.sinks, self._leaves(row), strict=True)):
            if isinstance(sink, Fixed):
                sink.put_row(self.number, self._checked(place, value, copy=False))
            else:
                # A generator may yield the same memory again, filled anew. After the last row of a block
                # it goes on only once all of them are in the block.
                checked = self._checked(place, value, copy=not is_last)
                self.left_nbytes -= _nbytes(checked)
                self.lists[place].append(checked)
        self.number += 1

    def _leaves(self, row: Any) -> Any:
        if self.is_bare:
            return [row]
        leaves, structure = flatten(row)
        if structure != self.flow.structure:
            hint = " Yield a tuple: yield a, b." if isinstance(row, list) else ""
            raise SpecMismatchError(
                f"{self.flow.function.describe()}, row {self.first + self.number}: must be a nest like "
                f"{self.flow.spec}, got {_shown(row)}.{hint}"
            )
        return leaves

    def _checked(self, place: int, value: Any, *, copy: bool) -> Any:
        try:
            return conformed(value, self.flow.fields[place].spec, copy=copy)
        except Misfit as error:
            words = misfit_words(
                error, place, self.flow.spec, verb="yield", num_axes=self.flow.num_item_axes
            )
            text = f"{words}{self._batch_hint(place, value)}"
        except (TypeError, ValueError) as error:
            text = str(error)
        name = field_names(self.flow.structure)[place]
        where = f"{self.flow.function.describe()}, row {self.first + self.number}, field {name!r}"
        raise SpecMismatchError(f"{where}: got {text}")

    def _batch_hint(self, place: int, value: Any) -> str:
        """Return what to write if the value looks like a batch of rows."""
        shape = np.shape(value)
        if not shape or not self.flow.fields[place].spec.admits(shape[1:]):
            return ""
        return f' If it yields batches (this one of {shape[0]} rows), give rows_per_item="many".'


def _iterable(rows: Any) -> Iterable[Any]:
    """Return what a function returned, if it can be iterated over; without its `yield` a generator returns None."""
    if not hasattr(rows, "__iter__") and not hasattr(rows, "__getitem__"):
        cure = "does it lack a yield?" if rows is None else "yield its rows."
        raise TypeError(f"it must return an iterator over rows, got {type(rows).__name__}; {cure}")
    return rows  # type: ignore[no-any-return]  # What Python can iterate over.


def _nbytes(value: Any) -> int:
    """Return the bytes of a text or an array; of an array of texts those of the references, and a guess for each."""
    if isinstance(value, bytes | str):
        return len(value)
    nbytes: int = value.nbytes
    return nbytes if value.dtype != object else sum(map(len, value.flat))


def _shown(row: Any) -> str:
    if isinstance(row, tuple):
        return f"a tuple of {len(row)}: ({', '.join(type(part).__name__ for part in row)})"
    if isinstance(row, dict):
        return f"a dict with {', '.join(map(repr, row))}"
    return type(row).__name__


def _is_restorable(rows: Any) -> bool:
    return hasattr(rows, "state") and hasattr(rows, "restore")


def _after(passed: int, state: Any, offset: int) -> Cursor:
    return [passed, state, offset]
