"""Applying a function to each leaf of a batch, at as little cost as the nest allows."""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.nest import Structure, builder, flatten, unflatten

Convert = Callable[[Any], Any]


def leafwise(structure: Structure, functions: Sequence[Convert | None]) -> Convert | None:
    """Return a function that applies `functions[i]` to leaf i of a nest; None if all of them are None."""
    if all(function is None for function in functions):
        return None
    whole = [function or _same for function in functions]
    if structure == flatten(0)[1]:
        return whole[0]
    if builder(structure) is None and len(whole) == 2:
        first, second = whole
        return lambda pair: (first(pair[0]), second(pair[1]))

    def convert(batch: Any) -> Any:
        leaves = flatten(batch)[0]
        return unflatten(
            structure, [function(leaf) for function, leaf in zip(whole, leaves, strict=True)]
        )

    return convert


def chained(*functions: Convert | None) -> Convert | None:
    """Return a function that calls the given ones one after the other; None if there are none."""
    present = [function for function in functions if function is not None]
    if len(present) < 2:
        return present[0] if present else None

    def convert(batch: Any) -> Any:
        for function in present:
            batch = function(batch)
        return batch

    return convert


def _same(leaf: Any) -> Any:
    return leaf
