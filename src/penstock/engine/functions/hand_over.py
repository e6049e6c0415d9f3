"""Short functions at the end of a chain: called as each element is handed out, on the consumer's own thread.

A function of a few microseconds costs less than putting its result into a block does, and several
threads that call it would only wait for each other's interpreter lock.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from penstock._native import ResultCheck
from penstock.core.blocks import Block
from penstock.core.clock import Clock
from penstock.core.nest import field_names, flatten, plain_keys
from penstock.stages.base.functions import RowRandom, array_memory
from penstock.stages.base.results import conformed, nest_text
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

    def elements(self, block: Block, size: int, first: int) -> Iterator[Any]:
        """Return what the functions make of the first `size` rows of a block, whose numbers start at `first`."""
        elements = block.elements(size, None)
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


class _Call:
    """One of the functions, and what its results must be."""

    def __init__(self, node: MappedRows, epoch: int) -> None:
        self.node = node
        self.all_seconds = 0.0
        """The seconds it took, with the functions before it."""
        self.num_rows = 0
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
        self._structure = node.structure
        self._specs = [field.spec for field in node.fields]
        self._is_own = _check_of(node)
        if max(node.row_nbytes, node.input.row_nbytes) >= _LARGE_NBYTES:
            self._call = partial(_in_array_memory, self._call)

    def results(self, elements: Iterator[tuple[Any, ...]], first: int) -> Iterator[Any]:
        """Yield the function's result for each row, as a nest that nobody else refers to."""
        call, is_own, random = self._call, self._is_own, self._random
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
            if is_own is None or not is_own((result,) if is_bare else result, leaves):
                result = self._owned_nest(number, result, leaves)
            del leaves
            number += 1
            self.num_rows += 1
            self.all_seconds += perf_counter() - started
            yield result

    def leaves_of(self, result: Any) -> tuple[Any, ...]:
        """Return the leaves of a result, for the next function."""
        return tuple(flatten(result)[0])

    def _owned_nest(self, number: int, result: Any, leaves: tuple[Any, ...]) -> Any:
        made, structure = flatten(result)
        if structure != self._structure:
            text = nest_text(structure, self._structure)
            raise self._function.mismatch(self._where(number), text)
        owned = [
            self._owned(number, place, value, made, leaves) for place, value in enumerate(made)
        ]
        return self._structure.unflatten(owned)

    def _owned(
        self, number: int, place: int, value: Any, made: list[Any], leaves: tuple[Any, ...]
    ) -> Any:
        """Return a value that fits its spec, and that no other batch and no other field refers to."""
        spec = self._specs[place]
        try:
            checked = conformed(value, spec)
        except (TypeError, ValueError) as error:
            name = field_names(self._structure)[place]
            text = f"returned for field {name!r} {error}"
            raise self._function.mismatch(self._where(number), text) from None
        if not isinstance(checked, np.ndarray):
            return checked  # Text.
        if not spec.shape:
            return checked[()]
        is_input = any(value is leaf for leaf in leaves)
        if checked is value and is_input and sum(value is other for other in made) == 1:
            return value  # The memory of this row, which the function passed on.
        return checked if checked is not value and checked.base is None else checked.copy()

    def _where(self, number: int) -> str:
        return locate(self._input, number, self._epoch)


def _in_array_memory(call: Callable[[tuple[Any, ...]], Any], leaves: tuple[Any, ...]) -> Any:
    with array_memory():
        return call(leaves)


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
