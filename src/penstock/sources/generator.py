"""Rows from the user's own generator: checked against their spec, copied straight into blocks."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import islice
from time import perf_counter
from typing import Any, Never

import numpy as np

from penstock.columns import Block, Fixed
from penstock.errors import FunctionError, LengthError, PenstockError, SpecMismatchError
from penstock.fields import Field
from penstock.nest import field_names, flatten
from penstock.rows import Context, Cursor, Flow, Node, Parcel, rows_per_block
from penstock.spec import ArraySpec
from penstock.stages.functions import UserFunction, conformed
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
    leaves, structure = flatten(spec)
    blocks = [ArraySpec((None, *leaf.shape), leaf.dtype) for leaf in leaves]
    return Unbatch().build(GeneratorFlow(user, structure.unflatten(blocks), length=None))


class _Restart:
    """An iterable object as a function that starts it."""

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
    """The rows that a generator yields, from its start; the cursor counts them.

    A generator can't be put back: resuming starts it anew and throws away what was used, unless the
    iterator has `state()` and `restore(state)`.
    """

    def __init__(self, function: UserFunction, spec: Any, *, length: int | None) -> None:
        leaves, self.structure = flatten(spec)
        for leaf in leaves:
            if not isinstance(leaf, ArraySpec):
                raise TypeError(
                    "spec must be a nest of ArraySpec, one for each field of a row, "
                    f"got {leaf!r}; ps.spec_of(row) makes one from an example."
                )
        if not leaves:
            raise ValueError("spec must have at least one field, got an empty nest.")
        self.function = function
        self.fields = tuple(Field(leaf) for leaf in leaves)
        self.num_rows = length

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows in blocks."""
        passed, saved, extra = (0, None, 0) if cursor is None else cursor
        rows = self._start(saved)
        try:
            for _ in islice(rows, passed + extra if saved is None else extra):
                pass
            passed += extra
            most = rows_per_block(self, context.block_nbytes)
            size = 1
            while True:
                state = rows.state() if _is_restorable(rows) else None
                started = perf_counter()
                block = context.block(self, size)
                filled = _Filler(self, block, passed).fill(rows, size)
                if filled:
                    yield Parcel(block.finish(), filled, partial(_after, passed, state))
                passed += filled
                if filled < size:
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
            rows = iter(source())
            if saved is not None:
                rows.restore(saved)
        except Exception as error:
            message = f"{self.function.describe()} could not start: {type(error).__name__}: {error}"
            raise FunctionError(message) from error
        return rows

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
        """Return that resuming costs time."""
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
        return [self.describe(), [repr(field.spec) for field in self.fields]]


class _Filler:
    """Copies rows into one block: a plain array of the declared kind without any detour."""

    def __init__(self, flow: GeneratorFlow, block: Block, first: int) -> None:
        self.flow = flow
        self.first = first
        self.sinks = block.sinks
        self.lists: list[list[Any]] = [[] for _ in flow.fields]
        self.is_fixed = all(isinstance(sink, Fixed) for sink in block.sinks)
        flat = flatten(tuple(range(len(flow.fields))))[1]
        self.is_flat = flow.structure == flat
        self.is_bare = flow.structure == flatten(0)[1]

    def fill(self, rows: Iterator[Any], size: int) -> int:
        """Copy up to `size` rows; return how many there were."""
        if self.is_flat and self.is_fixed:
            number = self._fill_tuples(rows, size)
        else:
            number = 0
            try:
                for row in islice(rows, size):
                    self._put(number, self._leaves(number, row))
                    number += 1
            except Exception as error:  # noqa: BLE001  # It is raised again, with the row.
                self._failed(number, error)
        for sink, values in zip(self.sinks, self.lists, strict=True):
            if not isinstance(sink, Fixed):
                sink.put(values)
        return number

    def _fill_tuples(self, rows: Iterator[Any], size: int) -> int:
        """Do the same for tuples of arrays and numbers: what a loop by hand would do, and checks."""
        columns = [sink.rows for sink in self.sinks if isinstance(sink, Fixed)]
        shapes = tuple(column.shape[1:] for column in columns)
        kinds = [_kinds(column.dtype) for column in columns]
        dtypes = [column.dtype for column in columns]
        loop = _tuple_loop(tuple(bool(shape) for shape in shapes))
        filled: int = loop(
            islice(rows, size),
            columns,
            dtypes,
            shapes,
            kinds,
            self._leaves,
            self._checked,
            self._failed,
        )
        return filled

    def _failed(self, number: int, error: Exception) -> Never:
        if isinstance(error, PenstockError):
            raise error
        raise self.flow.function.failure(f"row {self.first + number}", error) from error

    def _leaves(self, number: int, row: Any) -> Any:
        if self.is_bare:
            return [row]
        leaves, structure = flatten(row)
        if structure != self.flow.structure:
            raise SpecMismatchError(
                f"{self.flow.function.describe()}, row {self.first + number}: must be a nest like "
                f"{self.flow.spec}, got {_shown(row)}."
            )
        return leaves

    def _put(self, number: int, leaves: Any) -> None:
        for place, (sink, value) in enumerate(zip(self.sinks, leaves, strict=True)):
            checked = self._checked(number, place, value)
            if isinstance(sink, Fixed):
                sink.put_row(number, checked)
            else:
                self.lists[place].append(checked)

    def _checked(self, number: int, place: int, value: Any) -> Any:
        try:
            return conformed(value, self.flow.fields[place].spec)
        except (TypeError, ValueError) as error:
            name = field_names(self.flow.structure)[place]
            raise SpecMismatchError(
                f"{self.flow.function.describe()}, row {self.first + number}, field {name!r}: got {error}"
            ) from None


@lru_cache(maxsize=64)
def _tuple_loop(has_shape: tuple[bool, ...]) -> Callable[..., int]:
    """Return the loop that copies tuples of so many fields into columns, written out.

    A loop over the fields of each row would cost more than the copies do; this one is twice as fast.
    Whatever it does not expect goes to `leaves` and `checked`, which are the plain way.
    """
    numbers = range(len(has_shape))
    names = "".join(f"v{n}, " for n in numbers)
    lines = [
        "def loop(rows, columns, dtypes, shapes, kinds, leaves, checked, failed):",
        *(
            f"    c{n}, d{n}, s{n}, k{n} = columns[{n}], dtypes[{n}], shapes[{n}], kinds[{n}]"
            for n in numbers
        ),
        "    i = 0",
        "    try:",
        "      for row in rows:",
        f"        if type(row) is not tuple or len(row) != {len(has_shape)}:",
        "            row = leaves(i, row)",
        f"        {names}= row",
    ]
    for n, is_array in enumerate(has_shape):
        array = f"type(v{n}) is ndarray and v{n}.dtype is d{n} and v{n}.shape == s{n}"
        lines.append(f"        if {array if is_array else f'type(v{n}) in k{n}'}:")
        lines.append(f"            c{n}[i] = v{n}")
        lines.append("        else:")
        lines.append(f"            c{n}[i] = checked(i, {n}, v{n})")
    lines += [
        "        i += 1",
        "    except Exception as error:",
        "        failed(i, error)",
        "    return i",
    ]
    space: dict[str, Any] = {"ndarray": np.ndarray}
    exec("\n".join(lines), space)  # noqa: S102  # Made of numbers only; nothing of the user's is in it.
    loop: Callable[..., int] = space["loop"]
    return loop


def _kinds(dtype: np.dtype[Any]) -> frozenset[type]:
    """Return the types of numbers that NumPy puts into an array of this dtype without loss.

    It raises OverflowError for an int that does not fit.
    """
    plain: dict[str, set[type]] = {
        "b": {bool},
        "i": {int},
        "u": {int},
        "f": {int, float},
        "c": {int, float, complex},
    }
    return frozenset({dtype.type} | plain.get(dtype.kind, set()))


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
