"""Short functions at the end of a chain: called as each element is handed out, on the consumer's own thread.

A function of a few microseconds costs less than putting its result into a block does, and several
threads that call it would only wait for each other's interpreter lock.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from penstock import _native
from penstock._native import ResultCheck
from penstock.core.blocks import Block
from penstock.core.clock import Clock
from penstock.core.nest import flatten, plain_keys
from penstock.stages.base.functions import RowRandom, array_memory
from penstock.stages.base.results import conformed, misfit_text, nest_text
from penstock.stages.map import MappedRows, locate

_LARGE_NBYTES = 1 << 17  # The C library itself reuses smaller pieces of memory.


class HandOver:
    """The maps at the end of a chain, first to last, called with the rows of the node before them."""

    def __init__(self, maps: Sequence[MappedRows], epoch: int, clock: Clock) -> None:
        self.maps = maps
        self.rows = maps[0].input
        self._calls = [_Call(node, epoch) for node in maps]
        self._clock = clock

    @property
    def seconds(self) -> float:
        """The seconds that the functions took so far."""
        return self._calls[-1].all_seconds

    @property
    def num_rows(self) -> int:
        """The rows of the batches that the last function returned so far."""
        return self._calls[-1].num_given

    def elements(self, block: Block, size: int, first: int) -> Iterator[Any]:
        """Return what the functions make of the first `size` rows of a block, whose numbers start at `first`."""
        elements = block.leaves(size)
        for call in self._calls[:-1]:
            elements = map(call.leaves_of, call.results(elements, first))
        return self._calls[-1].results(elements, first)

    def report(self) -> None:
        """Add each function's time since the last report to the clock, without that of the functions before it."""
        before = 0.0
        for call in self._calls:
            took, before = call.all_seconds - before, call.all_seconds
            self._clock.add(
                call.node, took - call.reported_seconds, call.num_rows - call.reported_rows
            )
            call.reported_seconds, call.reported_rows = took, call.num_rows


def _num_rows(batch: Any) -> int:
    """Return how many rows a batch has: the first axis of a field says it."""
    first = batch
    while isinstance(first, tuple | dict) and first:
        first = first[0] if isinstance(first, tuple) else next(iter(first.values()))
    if isinstance(first, np.ndarray) and first.ndim:
        return len(first)
    leaves = (one for one in flatten(batch)[0] if isinstance(one, np.ndarray) and one.ndim)
    return next((len(one) for one in leaves), 1)


class _Call:
    """One of the functions, and what its results must be."""

    def __init__(self, node: MappedRows, epoch: int) -> None:
        self.node = node
        self.all_seconds = 0.0
        """The seconds it took, with the functions before it."""
        self.num_rows = 0
        """How often it was called."""
        self.num_given = 0
        """The rows of the batches that it returned."""
        self.reported_seconds = 0.0
        self.reported_rows = 0
        stage = node.stage
        self._input = node.input
        self._epoch = epoch
        self._function = stage.function
        self._call = stage.function.caller(node.input.structure)
        self._random: RowRandom | None = None
        if stage.seed is not None:
            self._random = RowRandom(stage.seed, epoch)
            self._call = partial(stage.seeded, node.input.structure, self._random.at(0))
        self._is_declared = stage.spec is not None
        self._structure = node.structure
        self._specs = [field.spec for field in node.fields]
        self._is_own = _check_of(node)
        if max(node.row_nbytes, node.input.row_nbytes) >= _LARGE_NBYTES:
            self._call = partial(_in_array_memory, self._call)
        self._own: Callable[[int, Any], Any] = self._owned_nest
        if node.is_batched:  # Batches start on 64 bytes.
            self._own = partial(_in_array_memory, self._owned_nest)

    def results(self, elements: Iterator[tuple[Any, ...]], first: int) -> Iterator[Any]:
        """Yield the function's result for each row, as a nest that nobody else refers to."""
        call, own, is_own, random = self._call, self._own, self._is_own, self._random
        is_bare = self._structure == flatten(0)[1]
        number = first
        while True:
            started = perf_counter()
            leaves = next(elements, None)
            if leaves is None:
                return
            if random is not None:
                random.at(number)
            try:
                result = call(leaves)
            except Exception as error:
                raise self._function.failure(self._where(number), error) from error
            del leaves
            # If nobody keeps the function's own dict or tuple, it dies here: then its arrays are only in ours.
            result = _apart(result)
            if is_own is None or not is_own((result,) if is_bare else result):
                result = own(number, result)
            number += 1
            self.num_rows += 1
            self.num_given += _num_rows(result)
            self.all_seconds += perf_counter() - started
            box = [result]
            del result  # Else this name would refer to it while the next function has it, which can't be its own then.
            yield box.pop()

    def leaves_of(self, result: Any) -> tuple[Any, ...]:
        """Return the leaves of a result, for the next function."""
        return tuple(flatten(result)[0])

    def _owned_nest(self, number: int, result: Any) -> Any:
        """Return a result that fits its spec, in memory that nobody else refers to."""
        made, structure = flatten(result)
        if structure != self._structure:
            text = nest_text(result, self._structure, is_declared=self._is_declared)
            raise self._function.mismatch(self._where(number), text)
        owned = [self._owned(number, place, value) for place, value in enumerate(made)]
        return self._structure.unflatten(owned)

    def _owned(self, number: int, place: int, value: Any) -> Any:
        spec = self._specs[place]
        try:
            checked = conformed(value, spec, copy=True)
        except (TypeError, ValueError) as error:
            specs = self._structure.unflatten(self._specs)
            text = misfit_text(error, value, place, specs, is_declared=self._is_declared)
            raise self._function.mismatch(self._where(number), text) from None
        return checked if spec.shape or spec.is_text else checked[()]

    def _where(self, number: int) -> str:
        return locate(self._input, number, self._epoch)


def _in_array_memory(call: Callable[..., Any], *arguments: Any) -> Any:
    with array_memory():
        return call(*arguments)


def _apart(result: Any) -> Any:
    """Return a result in a dict or tuple of our own, its views copied."""
    if type(result) is tuple:
        return tuple([_copied_view(value) for value in result])
    if type(result) is dict:
        return {key: _copied_view(value) for key, value in result.items()}
    return _copied_view(result)


def _copied_view(value: Any) -> Any:
    """Return a copy of an array that is a view, or can't be written to; anything else as it is.

    Nothing tells who else sees the memory of a view. So those of the rows that a function was called with
    are copied as well: it may have kept another view of them.
    """
    if type(value) is np.ndarray and (value.base is not None or not value.flags.writeable):
        # Not `array_memory()`, which would cost as much as the copy. Its memory starts on 64 bytes, as that of blocks.
        before = _native.use_array_memory()
        try:
            return value.copy()
        finally:
            _native.restore_array_memory(before)
    return value


def _check_of(node: MappedRows) -> ResultCheck | None:
    """Return the native check of what the function returns, if it is arrays of numbers in a plain nest."""
    specs = [field.spec for field in node.fields]
    dtypes = tuple(spec.dtype for spec in specs if isinstance(spec.dtype, np.dtype))
    shapes = tuple(tuple(-1 if n is None else n for n in spec.shape) for spec in specs)
    if len(dtypes) < len(specs):
        return None
    try:
        return ResultCheck(dtypes, shapes, plain_keys(node.structure))
    except LookupError:
        return None


def trailing_maps(node: Any) -> list[MappedRows]:
    """Return the maps at the end of a chain of rows, first to last."""
    found: list[MappedRows] = []
    while isinstance(node, MappedRows):
        found.insert(0, node)
        node = node.input
    return found
