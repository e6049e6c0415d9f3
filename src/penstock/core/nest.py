"""Nests: tuples and dicts of leaves. Lists are leaves, as they are data and not structure."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import optree

Structure = optree.PyTreeSpec


def _is_leaf(node: object) -> bool:
    return not isinstance(node, tuple | dict)


def flatten(nest: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of `nest` and the structure that puts them back together."""
    return optree.tree_flatten(nest, is_leaf=_is_leaf, none_is_leaf=True)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Return the nest that `flatten` took apart."""
    return structure.unflatten(leaves)


def plain_keys(structure: Structure) -> int | tuple[Any, ...] | None:
    """Return how many fields a flat tuple has, or the keys of a flat dict (flat: no nests in it).

    None for a bare leaf. Raises LookupError for anything else.

    >>> (
    ...     plain_keys(flatten({"b": 0, "a": 1})[1]),
    ...     plain_keys(flatten((0, 1))[1]),
    ...     plain_keys(flatten(0)[1]),
    ... )
    (('a', 'b'), 2, None)
    """
    count = structure.num_leaves
    if structure == flatten(0)[1]:
        return None
    if structure == flatten(tuple(range(count)))[1] and count:
        return count
    keys = tuple(path[0] for path in structure.paths() if path)
    if count and structure == flatten(dict.fromkeys(keys, 0))[1]:
        return keys
    raise LookupError(str(structure))


def builder(structure: Structure) -> Callable[[tuple[Any, ...]], Any] | None:
    """Return the function that makes a nest from a tuple of leaves; None if the nest is that tuple itself."""
    count = structure.num_leaves
    if structure == flatten(tuple(range(count)))[1] and count:
        return None
    if structure == flatten(0)[1]:
        return _only
    return structure.unflatten


def _only(leaves: tuple[Any, ...]) -> Any:
    return leaves[0]


Join = Callable[[Sequence[Iterable[Any]], int], Iterator[Any]]
"""Makes an iterator over so many nests of the columns of their leaves."""


def joiner(structure: Structure) -> Join:
    """Return what `joined` does for one structure: looked at once, not for every block."""
    count = structure.num_leaves
    if count and structure == flatten(tuple(range(count)))[1]:
        return _as_tuples
    return partial(joined, structure)


def _as_tuples(columns: Sequence[Iterable[Any]], size: int) -> Iterator[Any]:  # noqa: ARG001  # As every `Join` has it.
    return zip(*columns, strict=False)  # strict would cost a check for each row.


def joined(structure: Structure, columns: Sequence[Iterable[Any]], size: int) -> Iterator[Any]:
    """Return an iterator over `size` nests, whose leaves come one from each column; for tuples it runs in C.

    >>> list(joined(flatten(((0, 0), 0))[1], ["ab", "cd", "ef"], 2))
    [(('a', 'c'), 'e'), (('b', 'd'), 'f')]
    """
    if not columns:
        return iter([structure.unflatten(())] * size)
    return iter(_joined(structure, iter(columns)))


def _joined(structure: Structure, columns: Iterator[Iterable[Any]]) -> Iterable[Any]:
    if structure.is_leaf():
        return next(columns)
    # The columns are of one length by construction; strict would cost a check for each row.
    if structure.type is tuple and structure.num_leaves:
        return zip(*(_joined(child, columns) for child in structure.children()), strict=False)
    if not structure.num_leaves:
        return itertools.repeat(structure.unflatten(()))
    mine = list(itertools.islice(columns, structure.num_leaves))
    return map(structure.unflatten, zip(*mine, strict=False))


def field_names(structure: Structure) -> list[str]:
    """Return a readable name for each leaf: 'image', '0', 'meta.id'; 'value' for a bare leaf.

    >>> field_names(flatten({"meta": {"id": 0}, "image": 1})[1])
    ['image', 'meta.id']
    """
    return [".".join(map(str, path)) or "value" for path in structure.paths()]


def tuple_of(structures: Sequence[Structure]) -> Structure:
    """Return the structure of a tuple whose parts have these structures."""
    return optree.treespec_tuple(list(structures), none_is_leaf=True)


def dict_of(names: Sequence[str], structures: Sequence[Structure]) -> Structure:
    """Return the structure of a dict whose values, under these names, have these structures.

    >>> field_names(dict_of(["x", "y"], [flatten(0)[1], flatten((0, 0))[1]]))
    ['x', 'y.0', 'y.1']
    """
    return optree.treespec_dict(dict(zip(names, structures, strict=True)), none_is_leaf=True)
