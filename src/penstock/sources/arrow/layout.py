"""How the columns of an Arrow record batch lie in its buffers."""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.sources.arrow.columns import arrow


def column_buffers(kinds: Sequence[Any], variadic: Sequence[int], num_buffers: int) -> list[range]:
    """Return which buffers of a batch belong to each column, given their types.

    All of them are taken for each column's if the types do not account for as many as there are.
    """
    views = iter(variadic)
    found = []
    start = 0
    for kind in kinds:
        stop = start + _count(kind, views)
        found.append(range(start, stop))
        start = stop
    return found if start == num_buffers else [range(num_buffers)] * len(kinds)


def _count(kind: Any, views: Iterator[int]) -> int:
    types = arrow().types
    if isinstance(kind, arrow().BaseExtensionType):
        return _count(kind.storage_type, views)
    if types.is_null(kind):
        return 0
    if types.is_struct(kind):
        return 1 + sum(_count(kind.field(number).type, views) for number in range(kind.num_fields))
    if types.is_union(kind):
        own = 2 if kind.mode == "dense" else 1
        return own + sum(
            _count(kind.field(number).type, views) for number in range(kind.num_fields)
        )
    if types.is_map(kind):
        return 3 + _count(kind.key_type, views) + _count(kind.item_type, views)
    if types.is_fixed_size_list(kind):
        return 1 + _count(kind.value_type, views)
    if types.is_list(kind) or types.is_large_list(kind):
        return 2 + _count(kind.value_type, views)
    if types.is_list_view(kind) or types.is_large_list_view(kind):
        return 3 + _count(kind.value_type, views)
    if types.is_run_end_encoded(kind):
        return _count(kind.run_end_type, views) + _count(kind.value_type, views)
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return 2 + next(views, 0)
    is_text = types.is_string(kind) or types.is_binary(kind)
    return 3 if is_text or types.is_large_string(kind) or types.is_large_binary(kind) else 2
