"""Rows of arrays that the user has: in memory, lazy, as lists of bytes, str or arrays, or as columns of tables."""

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.lazy import lazy
from penstock.core.nest import field_names, flatten
from penstock.core.route import Route, Tables
from penstock.core.rows import Context, Rows, RowSet, Runs, count
from penstock.errors import LengthError
from penstock.sources.reading.leaves import InMemory, Leaf, leaf_of
from penstock.sources.reading.read_blocks import grain_words, grains_of

if TYPE_CHECKING:
    from penstock.sources import data_frames
    from penstock.sources import storage_arrays as opened
else:
    # Needed for arrays on storage and for tables only: `import penstock` does not wait for these modules.
    opened = lazy("penstock.sources.storage_arrays")
    data_frames = lazy("penstock.sources.data_frames")


class Arrays(Rows):
    """Row i is element i of every array of a nest."""

    def __init__(self, nest: Any) -> None:
        values, self.structure = flatten(nest)
        if not values:
            raise ValueError("from_arrays needs at least one array, got an empty nest.")
        if not all(isinstance(value, np.ndarray | list) for value in values):
            values, self.structure = flatten(data_frames.opened(values, self.structure))
        names = field_names(self.structure)
        self.leaves = tuple(map(_leaf, values, names))
        _check_lists(values, self.leaves, names)
        self.num_rows = _same_length(self.leaves, names)
        self.fields = tuple(leaf.field for leaf in self.leaves)
        self.grains = grains_of([(leaf,) for leaf in self.leaves])
        self.picks = all(leaf.picks for leaf in self.leaves)
        self.is_in_memory = all(isinstance(leaf, InMemory) for leaf in self.leaves)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Copy the rows of each array, with one gather an array."""
        if not count(rows):
            return
        for leaf, sink in zip(self.leaves, out.sinks, strict=True):
            leaf.read(rows, sink, context)

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read the runs of each array."""
        for leaf, sink in zip(self.leaves, out.sinks, strict=True):
            leaf.read_runs(runs, sink, context)

    def only(self, number: int) -> Rows:
        """Return the rows of one array."""
        leaf = self.leaves[number]
        if (
            self.grains
        ):  # A copy: how many chunks it retains depends on the fields that are read with it.
            leaf = copy.copy(leaf)
        made = copy.copy(self)
        made.leaves, made.fields, made.structure = (leaf,), (leaf.field,), flatten(0)[1]
        made.grains, made.is_in_memory = grains_of([(leaf,)]), isinstance(leaf, InMemory)
        made.picks = leaf.picks
        return made

    def route(self, epoch: int) -> Route | None:
        """Return the arrays, if the rows of each lie in memory as they are."""
        tables = [leaf.raw if isinstance(leaf, InMemory) else None for leaf in self.leaves]
        found = [table for table in tables if table is not None]
        return Tables(tuple(found)) if len(found) == len(tables) else None

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the copies that NumPy or a lazy array makes on the way."""
        return max(leaf.staging_nbytes(num_rows) for leaf in self.leaves)

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of decoded chunks that are retained because two reads share them."""
        return sum(leaf.retained_nbytes() + leaf.index_nbytes for leaf in self.leaves)

    def locate(self, row: int, epoch: int) -> str:
        """Return the row's number."""
        return f"row {row}"

    def describe(self) -> str:
        """Return the call that made it."""
        return f"from_arrays({', '.join(leaf.describe() for leaf in self.leaves)})"

    def fingerprint(self) -> Any:
        """Return the fields, the number of rows and, on storage, the sizes that a shuffle's windows depend on."""
        specs = [field.spec.to_json() for field in self.fields]
        return ["arrays", specs, self.num_rows, *([grain_words(self)] if self.grains else [])]

    def evidence(self) -> Iterator[Evidence]:
        """Yield each array."""
        for leaf, name in zip(self.leaves, field_names(self.structure), strict=True):
            yield Evidence(f"array {name!r} of from_arrays", leaf.proof, "values")

    def choice(self) -> str:
        """Return how the arrays are read."""
        return "; ".join(dict.fromkeys(leaf.reading() for leaf in self.leaves))


def _leaf(value: Any, name: str) -> Leaf:
    if isinstance(value, Leaf):  # A column of a table.
        return value
    return leaf_of(value, name) if _is_in_memory(value) else opened.leaf_of_any(value, name)


def _is_in_memory(value: Any) -> bool:
    """Return whether a value is surely in memory, with no file behind it."""
    found = value
    while type(found) is np.ndarray:
        found = found.base
    return isinstance(value, list) or (isinstance(value, np.ndarray) and found is None)


def _check_lists(values: Sequence[Any], leaves: Sequence[Leaf], names: Sequence[str]) -> None:
    """Raise if a list of arrays was meant to be several fields: its arrays are as long as other fields are."""
    lengths = {leaf.num_rows for leaf in leaves}
    for value, name in zip(values, names, strict=True):
        if not isinstance(value, list) or len(lengths) == 1:
            continue
        rows = {len(each) if getattr(each, "shape", ()) else -1 for each in value}
        if len(rows) == 1 and rows <= lengths - {len(value)}:
            raise LengthError(
                f"field {name!r} is a list of {len(value)} arrays, and each array of a list is a row; but each of "
                f"these has {rows.pop()} rows, as other fields have. Several inputs are a tuple, not a list:\n"
                "  wrong: from_arrays(([a, b], y))\n  right: from_arrays(((a, b), y))"
            )


def _same_length(leaves: Sequence[Leaf], names: Sequence[str]) -> int:
    first = leaves[0].num_rows
    for leaf, name in zip(leaves, names, strict=True):
        if leaf.num_rows != first:
            least = min(first, leaf.num_rows)
            raise LengthError(
                f"all arrays must have the same number of rows, got {first} in field {names[0]!r} "
                f"and {leaf.num_rows} in field {name!r}.\n"
                "  wrong: from_arrays((x, y))  # len(x) != len(y)\n"
                f"  right: from_arrays((x[:{least}], y[:{least}]))  # if the first rows belong together"
            )
    return first
