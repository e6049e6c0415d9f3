"""The values of one field that sort rows into classes or groups: which there are, and which each row has."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.columns import Column, Fixed, Text
from penstock.core.nest import Structure, field_names
from penstock.core.spec import ArraySpec

_VALUE_NBYTES = (
    200  # What a value takes in Python, with its number, its entry in a table and its count.
)


def field_number(structure: Structure, which: Any, argument: str) -> int:
    """Return the number of the field that a user names: 'label', 'meta.id', ('meta', 'id'), or 1 in a tuple."""
    names = field_names(structure)
    wanted = ".".join(map(str, which)) if isinstance(which, tuple) else str(which)
    if isinstance(which, bool) or not isinstance(which, str | int | tuple):
        raise TypeError(
            f"{argument} must name a field of a row, got {which!r:.60}; labels that are not in the rows come there by "
            f"ps.zip(ds, ps.from_arrays(labels)): then write {argument}=1."
        )
    if wanted not in names:
        shown = ", ".join(name if name.isdigit() else repr(name) for name in names)
        raise ValueError(
            f"{argument} must name a field of a row, which has {shown}; got {which!r:.80}."
        )
    return names.index(wanted)


def check_field(spec: ArraySpec, argument: str, which: Any, *, floats: bool) -> None:
    """Raise unless a field has one value a row, of a kind that can be told apart."""
    if spec.shape != ():
        made = "y[0]" if spec.shape == (1,) else "y.argmax()"
        what = "" if spec.shape == (1,) else ", as for one-hot labels"
        cure = f"  add one first{what}: .map(lambda x, y: (x, y, {made}))"
        raise ValueError(
            f"{argument}={which!r} must be a field with one value a row, got rows of shape {spec.shape}.\n{cure}"
        )
    kinds = "biuSUfmM" if floats else "biuSUmM"
    if not spec.is_text and spec.numpy_dtype.kind not in kinds:
        also = ", floats" if floats else ""
        raise ValueError(
            f"{argument}={which!r} must be a field of whole numbers, bools{also} or text, got {spec.dtype}."
        )


class Classes:
    """The values of a field, numbered as they come, and the number of each row's value, a few bytes each."""

    def __init__(self, reserve: Callable[[int], None]) -> None:
        """Count memory by `reserve`, which raises if there is none left."""
        self.values: list[Hashable] = []
        """Each value, as Python has it."""
        self.num_rows = 0
        self._numbers: dict[Hashable, int] = {}
        self._pieces: list[Array] = []
        self._reserve = reserve

    def add(self, column: Column, size: int, argument: str) -> None:
        """Add the values of the first rows of a column."""
        before = len(self.values)
        if isinstance(column, Text):
            numbers = self._number(column.objects(0, size).tolist())
        else:
            assert isinstance(column, Fixed)
            rows = column.rows[:size]
            if (
                rows.dtype.kind in "fmM" and (rows != rows).any()
            ):  # Nothing else differs from itself.
                row = self.num_rows + int(np.flatnonzero(rows != rows)[0])  # As above.
                raise ValueError(
                    f"{argument} must have a value in every row, got {rows[row - self.num_rows]} in row {row}.\n"
                    "  leave such rows out first: .filter(...), or give them a class: .map(...)"
                )
            found, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
            # In the order in which they come: how rows are cut into blocks must not tell.
            order = np.argsort(first)
            ranks = np.empty(len(order), np.int64)
            ranks[order] = np.arange(len(order))
            numbers = self._number(found[order].tolist())[ranks[inverse.reshape(-1)]]
        piece = numbers.astype(np.min_scalar_type(max(0, len(self.values) - 1)))
        self._reserve(piece.nbytes + (len(self.values) - before) * _VALUE_NBYTES)
        self._pieces.append(piece)
        self.num_rows += size

    def _number(self, values: Iterable[Hashable]) -> Array:
        table, known = self._numbers, self.values
        numbers = []
        for value in values:
            number = table.get(value)
            if number is None:
                number = table[value] = len(known)
                known.append(value)
            numbers.append(number)
        return np.array(numbers, np.int64)

    def pieces(self) -> Iterable[Array]:
        """Yield the numbers of the rows' values, a piece after the other."""
        for piece in self._pieces:
            yield piece.astype(np.int64)

    def counts(self) -> Array:
        """Return how many rows each value has."""
        counts = np.zeros(len(self.values), np.int64)
        for piece in self._pieces:
            counts += np.bincount(piece, minlength=len(counts))
        return counts
