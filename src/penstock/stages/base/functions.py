"""Calling the user's functions: with rows in the form they expect, and with errors that say which row."""

import functools
import inspect
import itertools
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock import _native
from penstock.core.evidence import FUNCTION, Evidence
from penstock.core.executors import Executor
from penstock.core.lazy import lazy
from penstock.core.nest import Structure, builder
from penstock.core.order import round_keys
from penstock.core.tally import SHOWN
from penstock.errors import FunctionError, PenstockError, SpecMismatchError, StreamClosedError
from penstock.stages.base.turns import Turns, turns_of

if TYPE_CHECKING:
    from penstock.core import digests
else:
    digests = lazy("penstock.core.digests")  # Only write and cache(path) need it.


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A user's function, the stage that calls it, and the line of the user's code that added it."""

    function: Callable[..., Any]
    stage: str
    site: str = field(compare=False)

    def __post_init__(self) -> None:
        """Check that it can be called."""
        if not callable(self.function):
            raise TypeError(f"{self.stage} needs a function, got {type(self.function).__name__}.")

    @property
    def _inner(self) -> Callable[..., Any]:
        inner = self.function
        while isinstance(inner, functools.partial):
            inner = inner.func
        return inner

    @property
    def is_compiled(self) -> bool:
        """Whether it is not written in Python, so that no frame tells that it runs."""
        inner = self._inner
        return not hasattr(inner, "__code__") and not hasattr(type(inner).__call__, "__code__")

    @property
    def name(self) -> str:
        """The function's own name."""
        inner = self._inner
        return str(getattr(inner, "__qualname__", None) or type(inner).__qualname__).rpartition(
            "."
        )[2]

    def describe(self) -> str:
        """Return the stage with the function's name: 'map(normalize)'."""
        return f"{self.stage}({self.name})"

    def evidence(self) -> Evidence:
        """Return what tells the function from others: what it does, with all that it uses."""
        what = f"{FUNCTION} {self.describe()}"
        return Evidence(what, lambda: digests.digest(self.function), "code")

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

    def check_arguments(
        self, structure: Structure, *, is_seeded: bool = False, takes_seed: bool = False
    ) -> None:
        """Raise if the function can't be called with a row: rows come as tuples, dicts or single values."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return  # A compiled function need not tell.
        is_tuple = structure.type is tuple
        count = len(structure.children()) if is_tuple else 1
        if _takes(signature, count + is_seeded):
            return
        if is_tuple:
            row = f"a row is a tuple of {count}, whose parts come as {count} arguments"
        elif structure.type is dict:
            keys = ", ".join(map(repr, itertools.islice(structure.entries(), 5)))
            row = f"a row is a dict (with {keys}), which comes as one argument"
        else:
            row = "a row is a single value, which comes as one argument"
        seeded = ", and seed= adds one, a generator of random numbers" if is_seeded else ""
        cure = ""
        if takes_seed and not is_seeded and _takes(signature, count + 1):
            cure = " If the last is a generator of random numbers, give seed=0."
        raise TypeError(
            f"{self._place()}, can't be called with a row: {row}{seeded}. It takes {signature}.{cure}"
        )

    def caller(self, structure: Structure) -> Callable[[tuple[Any, ...]], Any]:
        """Return what calls the function with a row, given its leaves; the parts of a tuple become arguments."""
        build = builder(structure)
        function = self.function
        if build is None:
            return lambda leaves: function(*leaves)
        if structure.type is tuple:
            return lambda leaves: function(*build(leaves))
        return lambda leaves: function(build(leaves))


class RowRandom:
    """A NumPy generator for each row, from seed, epoch and row alone; another row only sets a counter."""

    def __init__(self, seed: int, epoch: int) -> None:
        key = round_keys((seed, epoch), 2)
        self._bits = np.random.Philox(key=key)
        self._state: Any = self._bits.state
        self._generator = np.random.Generator(self._bits)

    def at(self, row: int) -> "np.random.Generator":
        """Return the generator of one row; it is always the same object, set to that row's numbers."""
        state = self._state
        # The row goes into the high words: a row may draw 2**130 words before it meets the next row's.
        state["state"]["counter"] = np.array([0, 0, row, 0], np.uint64)
        state["buffer_pos"] = 4
        state["has_uint32"] = 0
        self._bits.state = state
        return self._generator


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that a function failed on, and that is skipped: its place in the block, and the error."""

    place: int
    error: PenstockError


Put = Callable[[int, Any, Callable[[], str]], None]
"""Takes the result of a good row: its place among the good rows, the result, and what says where the row is."""


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
    """Call a function with each numbered row, put its results one after the other, and return the bad rows.

    A row that fails raises; with `skip` it is a bad row. Functions that fill the same memory each time are called
    by one thread at a time, until their result is put.
    """
    run = _Run(function, call, put, locate, executor, skip, prepare)
    turns = turns_of(function.function)
    numbered = iter(rows)
    with array_memory():
        for one in numbered:
            if turns.settled():
                # The first row of each block is looked at, too: a function may behave otherwise later on.
                run.rows([one], turns)
                if turns.settled():
                    break
                continue
            with turns.turn():
                run.rows([one], turns)
        run.rows(numbered, None)
    return run.bad


class _Run:
    """The calls of a function for the rows of a block, one after the other."""

    def __init__(
        self,
        function: UserFunction,
        call: Callable[[Any], Any],
        put: Put,
        locate: Callable[[int], str],
        executor: Executor,
        skip: bool,  # noqa: FBT001  # Only `run_rows` calls this.
        prepare: Callable[[int], Any] | None,
    ) -> None:
        self.function = function
        self.call = call
        self.put = put
        self.locate = locate
        self.executor = executor
        self.skip = skip
        self.prepare = prepare
        self.num_rows = 0
        self.bad: list[BadRow] = []

    def rows(self, rows: Iterable[tuple[int, Any]], turns: Turns | None) -> None:
        """Call the function for the next rows; with `turns`, look at its results."""
        call, put, prepare, bad = self.call, self.put, self.prepare, self.bad
        place = self.num_rows
        for number, leaves in rows:
            if self.executor.is_closing:
                raise StreamClosedError("the stream was closed.")
            where = functools.partial(self.locate, number)
            if prepare is not None:
                prepare(number)
            place += 1
            try:
                result = call(leaves)
            except Exception as error:
                failure = self.function.failure(where(), error)
                if not self.skip:
                    raise failure from error
                text = traceback_text(error) if len(bad) < SHOWN else ""
                bad.append(BadRow(place - 1, caused(failure, error, text)))
                continue
            if turns is not None:
                turns.look(result, leaves)
            try:
                put(place - 1 - len(bad), result, where)
            except SpecMismatchError as error:
                if not self.skip:
                    raise
                bad.append(BadRow(place - 1, _without_frames(error)))
        self.num_rows = place


@contextmanager
def array_memory() -> Iterator[None]:
    """Let arrays that functions make reuse the memory of arrays that were freed."""
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
    """Return a failure that can be stored: it refers to no frames, and has its cause's traceback as text."""
    failure.__cause__ = _without_frames(cause)
    if text:
        failure.add_note(text.rstrip())
    return failure


def _without_frames(error: Any) -> Any:
    """Return the exception without its frames: those refer to rows, and so would keep blocks alive."""
    link = error
    while link is not None:
        link.__traceback__ = None
        link = link.__context__ if link.__cause__ is None else link.__cause__
    return error


def _takes(signature: inspect.Signature, count: int) -> bool:
    """Return whether a function can be called with so many arguments."""
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True
