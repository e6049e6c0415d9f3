"""What the function of flat_map returned for a row: anything that can be rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from penstock.core.nest import Structure, flatten
from penstock.core.rows import Node


@dataclass(slots=True)
class Result:
    """What a function made of one row: arrays whose first axis are rows, an iterable of rows, or a dataset."""

    value: Any
    structure: Structure | None = None
    """The nest of arrays; None for anything else."""
    leaves: list[Any] = field(default_factory=list)
    node: Node | None = None
    """The chain of a dataset."""
    size: int = 0
    """How many rows arrays have."""

    @staticmethod
    def of(value: Any) -> "Result":
        """Look at a result; raise a TypeError if it can't be rows."""
        node = getattr(value, "node", None)
        if isinstance(node, Node):
            return Result(value, node=node)
        if isinstance(value, str | bytes) or value is None:
            hint = " Did it forget to return something?" if value is None else ""
            raise TypeError(f"must return rows, got {type(value).__name__}.{hint}")
        is_nest = isinstance(value, tuple | dict)
        if not is_nest and not hasattr(value, "__array__"):
            if not hasattr(value, "__iter__"):
                raise TypeError(f"must return rows, got {type(value).__name__}: {value!r:.60}.")
            return Result(value)
        leaves, structure = flatten(value)
        arrays = [_array(leaf) for leaf in leaves]
        shapes = [one.shape for one in arrays]
        if not shapes or () in shapes or len({shape[0] for shape in shapes}) != 1:
            raise TypeError(
                f"returned a nest of shapes {shapes}: it must be of arrays whose first axis are the rows, of one "
                "length. For single rows, return a list of them, or yield them."
            )
        return Result(value, structure, arrays, size=shapes[0][0])

    def rows(self, start: int) -> Iterator[Any]:
        """Return an iterator over the rows from `start` on; not for a dataset."""
        if self.structure is None:
            return islice(iter(self.value), start, None)
        structure = self.structure
        return (
            structure.unflatten([leaf[row] for leaf in self.leaves])
            for row in range(start, self.size)
        )


def _array(leaf: Any) -> Any:
    if isinstance(leaf, list) and leaf and isinstance(leaf[0], str | bytes):
        return np.asarray(leaf, object)
    return np.asarray(leaf)
