"""Calling the user's functions: with a row as they expect it, and with errors that say where."""

import functools
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from penstock import _native
from penstock._native import RowFiller
from penstock.core.columns import Block, Fixed
from penstock.core.fields import Field
from penstock.core.left_out import SHOWN
from penstock.core.nest import Structure, builder, field_names, flatten, plain_keys
from penstock.core.order import round_keys
from penstock.core.rows import Executor
from penstock.core.spec import ArraySpec, spec_of_value
from penstock.errors import FunctionError, PenstockError, SpecMismatchError, StreamClosedError


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user's, the stage it is for, and the line of theirs that put it there."""

    function: Callable[..., Any]
    stage: str
    site: str = field(compare=False)

    def __post_init__(self) -> None:
        """Check that it can be called."""
        if not callable(self.function):
            raise TypeError(f"{self.stage} needs a function, got {type(self.function).__name__}.")

    @property
    def name(self) -> str:
        """The function's own name."""
        inner = self.function
        while isinstance(inner, functools.partial):
            inner = inner.func
        return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__).rpartition(
            "."
        )[2]

    def describe(self) -> str:
        """Return 'map(normalize)'."""
        return f"{self.stage}({self.name})"

    def failure(self, where: str, error: BaseException) -> FunctionError:
        """Return the error that tells which function failed, on which row, and why."""
        return FunctionError(f"{self._place()} failed on {where}: {type(error).__name__}: {error}")

    def mismatch(self, where: str, text: str) -> SpecMismatchError:
        """Return the error for a result that is not what was declared."""
        return SpecMismatchError(f"{self._place()}, on {where}: {text}")

    def _place(self) -> str:
        code = getattr(self.function, "__code__", None)
        defined = (
            f" (defined at {Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
        )
        return (
            f"{self.describe()}, {self.site}{defined}"
            if self.site
            else f"{self.describe()}{defined}"
        )

    def caller(self, structure: Structure) -> Callable[[tuple[Any, ...]], Any]:
        """Return what calls the function with the leaves of a row: a tuple's parts as arguments."""
        build = builder(structure)
        function = self.function
        if build is None:
            return lambda leaves: function(*leaves)
        if structure.type is tuple:
            return lambda leaves: function(*build(leaves))
        return lambda leaves: function(build(leaves))


class RowRandom:
    """NumPy generators that depend on seed, epoch and row alone, at the cost of setting a counter."""

    def __init__(self, seed: int, epoch: int) -> None:
        key = round_keys((seed, epoch), 2)
        self._bits = np.random.Philox(key=key)
        self._state: Any = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, row: int) -> "np.random.Generator":
        """Return the generator of one row; it is the same object each time, set anew."""
        state = self._state
        # The row goes into the high words: a row may draw 2**130 bits before it meets the next.
        state["state"]["counter"] = np.array([0, 0, row, 0], np.uint64)
        state["buffer_pos"] = 4
        state["has_uint32"] = 0
        self._bits.state = state
        return self._generator


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that a function failed on and that is left out: its place in the block, and the error."""

    place: int
    error: PenstockError


Put = Callable[[int, Any, Callable[[], str]], None]
"""Takes the result for the next row that is kept: its place, the result, and where the row is from."""


def run_rows(
    function: UserFunction,
    call: Callable[[Any], Any],
    rows: Iterable[tuple[int, Any]],
    put: Put,
    locate: Callable[[int], str],
    *,
    executor: Executor,
    skip: bool,
    prepare: Callable[[int], Any] | None = None,
) -> list[BadRow]:
    """Call a function with the leaves of each numbered row, and put its results one after the other.

    A row that fails raises; with `skip` it is left out, and is among those that are returned.
    """
    bad: list[BadRow] = []
    with array_memory():
        for place, (number, leaves) in enumerate(rows):
            if executor.is_closing:
                raise StreamClosedError("the stream was closed.")
            where = functools.partial(locate, number)
            if prepare is not None:
                prepare(number)
            try:
                result = call(leaves)
            except Exception as error:
                failure = function.failure(where(), error)
                if not skip:
                    raise failure from error
                text = traceback_text(error) if len(bad) < SHOWN else ""
                bad.append(BadRow(place, caused(failure, error, text)))
                continue
            try:
                put(place - len(bad), result, where)
            except SpecMismatchError as error:
                if not skip:
                    raise
                bad.append(BadRow(place, _without_frames(error)))
    return bad


@contextmanager
def array_memory() -> Iterator[None]:
    """Let the arrays that functions make use memory again that others gave back."""
    before = _native.use_array_memory()
    try:
        yield
    finally:
        _native.restore_array_memory(before)


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception, without the frame that caught it."""
    trace = error.__traceback__
    inner = trace.tb_next if trace is not None else None
    return "".join(traceback.format_exception(type(error), error, inner))


def caused(failure: FunctionError, cause: BaseException, text: str) -> FunctionError:
    """Return a failure that can be kept, with the traceback of its cause as text."""
    failure.__cause__ = _without_frames(cause)
    if text:
        failure.add_note(text.rstrip())
    return failure


def _without_frames(error: Any) -> Any:
    """Return an exception that keeps nothing else alive: frames refer to rows, and through those to blocks."""
    link = error
    while link is not None:
        link.__traceback__ = None
        link = link.__context__ if link.__cause__ is None else link.__cause__
    return error


class Results:
    """Takes the results of a function, checks each against its spec, and puts them into a block."""

    def __init__(
        self, function: UserFunction, structure: Structure, fields: Sequence[Field], out: Block
    ) -> None:
        self.function = function
        self.structure = structure
        self.fields = fields
        self.out = out
        self.names = field_names(structure)
        self.is_bare = structure == flatten(0)[1]
        self.lists: list[list[Any]] = [[] for _ in fields]
        self.is_array = [bool(f.spec.shape) or not f.spec.is_text for f in fields]
        self.shapes = [f.spec.shape if f.spec.is_fixed else None for f in fields]
        self.filler = self._filler()

    def _filler(self) -> RowFiller | None:
        """Return what puts results that are just as declared, all fields at once; None for other blocks."""
        columns = [
            sink.grouped
            for sink in self.out.sinks
            if isinstance(sink, Fixed) and sink.slots is None and sink.lengths is None
        ]
        if not columns or len(columns) < len(self.out.sinks):
            return None
        try:
            return RowFiller(tuple(columns), plain_keys(self.structure), is_grouped=True)
        except LookupError:
            return None

    def put(self, row: int, result: Any, where: Callable[[], str]) -> None:
        """Put the result for one row into the block."""
        if self.filler is not None and self.filler.put(row, result):
            return
        if self.is_bare:
            leaves = [result]
        else:
            leaves, structure = flatten(result)
            if structure != self.structure:
                raise self.function.mismatch(where(), nest_text(structure, self.structure))
        for number, value in enumerate(leaves):
            sink = self.out.sinks[number]
            if isinstance(sink, Fixed):
                dtype = sink.grouped.dtype
                if (
                    type(value) is not np.ndarray
                    or value.dtype != dtype
                    or value.shape != self.shapes[number]
                ):
                    value = self._checked(number, value, where)
                sink.put_row(row, value)
            else:
                # A copy: the function may return the same array each time, filled anew.
                checked = self._checked(number, value, where)
                copied = checked.copy() if checked is value and self.is_array[number] else checked
                del self.lists[number][row:]  # What a bad row left, of which another field was bad.
                self.lists[number].append(copied)

    def finish(self, num_rows: int) -> None:
        """Put what is of variable size into the block: all rows at once."""
        for sink, values in zip(self.out.sinks, self.lists, strict=True):
            if not isinstance(sink, Fixed):
                sink.put(values[:num_rows])

    def _checked(self, number: int, value: Any, where: Callable[[], str]) -> Any:
        spec = self.fields[number].spec
        try:
            return conformed(value, spec)
        except (TypeError, ValueError) as error:
            name = self.names[number]
            text = f"returned for field {name!r} {error}"
            raise self.function.mismatch(where(), text) from None


def conformed(value: Any, spec: ArraySpec) -> Any:
    """Return `value` as an array (or text) that fits `spec`; raise if it does not fit safely."""
    if not isinstance(spec.dtype, np.dtype):
        # As objects: text of NumPy's own, of one width, will do, and so will no text at all.
        items = np.asarray(value, object)
        if not spec.admits(items.shape) or not all(isinstance(v, spec.dtype) for v in items.flat):
            raise ValueError(f"{spec_of_value(value)}, but {spec} is declared.")
        return items if spec.shape else items[()]
    array = np.asarray(value)
    if not spec.admits(array.shape):
        cure = ""
        if len(array.shape) == len(spec.shape):
            cure = f" If it may differ from row to row, give spec={_loosened(spec, array.shape)}."
        raise ValueError(f"an array of shape {array.shape}, but {spec} is declared.{cure}")
    if array.dtype != spec.dtype:
        is_weak = isinstance(value, bool | int | float | complex)
        if not (is_weak and _fits(array, spec.dtype)) and not np.can_cast(array.dtype, spec.dtype):
            raise ValueError(
                f"dtype {array.dtype}, which can't become {spec.dtype} without loss; "
                f"return value.astype({str(spec.dtype)!r}), or declare another spec."
            )
        array = array.astype(spec.dtype)
    return array


def _fits(array: "np.ndarray[Any, Any]", dtype: np.dtype[Any]) -> bool:
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (
        array.dtype.kind in "iub" and dtype.kind in "iufc"
    ):
        return False
    return bool(dtype.kind in "fc" or array.astype(dtype) == array)


def _loosened(spec: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    sizes = [a if a == b else None for a, b in zip(spec.shape, shape, strict=True)]
    return ArraySpec(sizes, spec.dtype)


def nest_text(got: Structure, want: Structure) -> str:
    """Return in words that a function returned another nest than was declared."""
    hint = (
        " Did it forget to return something?" if str(got) == "PyTreeSpec(None, NoneIsLeaf)" else ""
    )
    return f"returned a nest {_plain(got)}, but {_plain(want)} is declared.{hint}"


def _plain(structure: Structure) -> str:
    return str(structure).removeprefix("PyTreeSpec(").split(", NoneIsLeaf")[0].rstrip(")") or "*"
