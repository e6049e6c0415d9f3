"""What a file of another format says of its rows besides its columns: their nest, and their exact specs.

Parquet and Zarr have room for such a text (metadata of a schema, attributes of a group), which others pass over.
`from_files` gives the rows back with it as they were written. Without it, or if the columns are others by now, a row is
a dict of columns.

    {"version": 1, "row": {"image": "image", "meta": {"id": "meta.id"}},
     "fields": {"image": [[28, 28], "|u1"], "meta.id": [[], ">i4"]}}
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.nest import Structure, field_names, flatten, unflatten
from penstock.core.spec import ArraySpec, dtype_from_json
from penstock.shards.manifest import nest_to_json, row_from_json

KEY = "penstock"
"""The name of the text in the metadata of a file."""
_VERSION = 1
_MOST_CHARACTERS = 1 << 24


@dataclass(frozen=True, slots=True)
class Description:
    """The nest of a row, whose leaves are names of columns, and the spec of each column."""

    nest: Any
    specs: dict[str, ArraySpec]

    def nest_of(self, names: Iterable[str]) -> Any:
        """Return the nest, if the columns are those that were written; else None."""
        return self.nest if sorted(names) == sorted(self.specs) else None


def column_names(structure: Structure) -> list[str]:
    """Return a name for each leaf of a row, no two of them alike.

    >>> column_names(flatten({"a": {"b": 0}, "a.b": 1, "": 2})[1])
    ['value', 'a.b', 'a.b_3']
    """
    found: list[str] = []
    for number, name in enumerate(field_names(structure)):
        plain = name or "value"
        unique, count = plain, number + 1
        while unique in found:
            unique, count = f"{plain}_{count}", count + 1
        found.append(unique)
    return found


def described(structure: Structure, names: Sequence[str], specs: Sequence[ArraySpec]) -> str:
    """Return the text that a file is written with; raises TypeError for a nest that JSON can't hold."""
    fields = {name: spec.to_json() for name, spec in zip(names, specs, strict=True)}
    row = nest_to_json(unflatten(structure, list(names)))
    return json.dumps({"version": _VERSION, "row": row, "fields": fields})


def parse_description(text: Any) -> Description | None:
    """Return what the text of a file says; None if there is none, or none that makes sense."""
    if not isinstance(text, str | bytes) or len(text) > _MOST_CHARACTERS:
        return None
    try:
        value = json.loads(text)
        if value["version"] != _VERSION:
            return None
        specs = {
            str(name): ArraySpec(shape, dtype_from_json(dtype))
            for name, (shape, dtype) in value["fields"].items()
        }
        nest = row_from_json(value["row"])
        names = flatten(nest)[0]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, ImportError):
        return None
    return Description(nest, specs) if sorted(map(str, names)) == sorted(specs) else None
