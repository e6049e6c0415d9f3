"""Features that were declared and that no record has: they would be read as nothing, or as their default."""

from collections.abc import Iterable, Sequence
from typing import Any

from penstock import _native
from penstock.errors import DataError, warn_user
from penstock.sources.tfrecord.feature_lists import list_names
from penstock.sources.tfrecord.features import (
    Feature,
    FixedFeature,
    ImageFeature,
    SequenceFeature,
    TensorFeature,
)

_MOST_NAMED = 20
_LEAST_RECORDS = 10  # Fewer tell nothing of a feature that only some records have.
_KINDS = {False: "a feature", True: "a feature list"}


def check_present(named: Iterable[tuple[str, Feature]], records: Sequence[Any], file: str) -> None:
    """Look for each feature in the first records of a file.

    Raise for a list that was declared as a feature of the context, or the other way round, and warn of one that no
    record has, where that is no error when rows are read.
    """
    named = list(named)
    if not records or not named:
        return
    context = {name for record in records for name in _context_names(record)}
    lists = {name for record in records for name in _list_names(record)}
    if not context and not lists:
        return  # They are empty, or no Examples, which is told when they are read.
    for name, feature in named:
        is_list = isinstance(feature, SequenceFeature)
        own, others = (lists, context) if is_list else (context, lists)
        if name in own:
            continue
        if name in others:
            raise DataError(
                f"{name!r} is {_KINDS[not is_list]} of its records, and was declared as {_KINDS[is_list]}",
                file=file,
                cure=f"Write ps.{'FixedFeature or ps.VarFeature' if is_list else 'SequenceFeature'} for it.",
            )
        if _is_optional(feature) and len(records) >= _LEAST_RECORDS:
            what = "its default" if isinstance(feature, FixedFeature) else "no values"
            shown = ", ".join(map(repr, sorted(own)[:_MOST_NAMED])) or "none"
            warn_user(
                f"{file}: none of the first {len(records)} records has {_KINDS[is_list]} {name!r}, which is read as "
                f"{what} then. Those that they have: {shown}{', ...' if len(own) > _MOST_NAMED else ''}."
            )


def _is_optional(feature: Feature) -> bool:
    if isinstance(feature, SequenceFeature):
        return feature.allow_missing
    if isinstance(feature, FixedFeature):
        return feature.default is not None
    return not isinstance(feature, TensorFeature | ImageFeature)


def _context_names(record: Any) -> list[str]:
    try:
        return [one[0] for one in _native.example_features(record)]
    except _native.RecordError:  # As above.
        return []


def _list_names(record: Any) -> list[str]:
    try:
        return list_names(bytes(record))
    except ValueError:  # As above.
        return []
