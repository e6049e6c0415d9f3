"""One file of a dataset: its fields by name, each with rows that can be had by number."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.errors import LengthError
from penstock.io.errors import DataError
from penstock.sources.leaves import Leaf


@dataclass(frozen=True, slots=True)
class Part:
    """The fields of one file; the name of the only field of a format without names is ''."""

    name: str
    leaves: dict[str, Leaf]
    chunk_rows: int = 1
    """How many rows the format itself keeps together."""

    @property
    def num_rows(self) -> int:
        """How many rows it has: those of its first field, after `chosen` compared them."""
        return next(iter(self.leaves.values())).num_rows

    def chosen(self, names: Sequence[str]) -> "Part":
        """Return the part with these fields only, after checking that they belong together."""
        missing = [name for name in names if name not in self.leaves]
        if missing:
            raise DataError(
                f"has no field {missing[0]!r}, only {', '.join(map(repr, self.leaves))}",
                file=self.name,
                cure="Choose among them with fields=(...).",
            )
        leaves = {name: self.leaves[name] for name in names}
        lengths = {name: leaf.num_rows for name, leaf in leaves.items()}
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{length} in {name!r}" for name, length in lengths.items())
            raise LengthError(
                f"{self.name}: all fields must have the same number of rows, got {text}; "
                "choose those that belong together with fields=(...)."
            )
        return Part(self.name, leaves, self.chunk_rows)


def no_rows(name: str, field: str) -> DataError:
    """Return the error for an array without a first axis."""
    what = f"field {field!r} is a single value" if field else "is a single value"
    return DataError(
        f"{what} and has no rows", file=name, cure="Leave it out: choose others with fields=(...)."
    )
