"""One file of a dataset: its fields by name, each with rows that can be had by number."""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import LengthError
from penstock.io.errors import DataError
from penstock.io.location import Location
from penstock.nest import flatten
from penstock.sources.leaves import Leaf


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asked `from_files` for, besides the files."""

    fields: Any = None
    """A nest of names like the row that is wanted; None is all of them, in a dict."""
    spec: Any = None
    size: tuple[int, int] | None = None
    direct: bool = False
    """Whether large reads go past the page cache."""

    @property
    def names(self) -> list[str] | None:
        """The names in `fields`, or None for all there are."""
        return None if self.fields is None else flatten(self.fields)[0]


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
        check_names(self.name, names, self.leaves)
        leaves = {name: self.leaves[name] for name in names}
        lengths = {name: leaf.num_rows for name, leaf in leaves.items()}
        if len(set(lengths.values())) > 1:
            raise unequal_lengths(self.name, lengths)
        return Part(self.name, leaves, self.chunk_rows)


def unequal_lengths(file: str, lengths: Mapping[str, int]) -> LengthError:
    """Return the error for arrays of one file that don't have as many rows."""
    text = ", ".join(f"{length} in {name!r}" for name, length in lengths.items())
    return LengthError(
        f"{file}: all fields must have the same number of rows, got {text}; "
        "choose those that belong together with fields=(...)."
    )


def check_names(file: str, names: Sequence[str], available: Mapping[str, Any]) -> None:
    """Raise if one of the fields that are wanted is not there."""
    missing = [name for name in names if name not in available]
    if missing:
        shown = ", ".join(map(repr, available)) or "none"
        raise DataError(
            f"has no field {missing[0]!r}, only {shown}",
            file=file,
            cure="Choose among them with fields=(...).",
        )


def no_rows(name: str, field: str) -> DataError:
    """Return the error for an array without a first axis."""
    what = f"field {field!r} is a single value" if field else "is a single value"
    return DataError(
        f"{what} and has no rows", file=name, cure="Leave it out: choose others with fields=(...)."
    )


def require(package: str, suffix: str, extra: str) -> Any:
    """Return an optional package, or raise an ImportError that says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        root = package.partition(".")[0]
        message = f"reading {suffix} needs {root}: pip install 'penstock[{extra}]'"
        raise ImportError(message, name=root) from error


def array_key(locations: Sequence[Location], name: str) -> tuple[str, str]:
    """Return what one field of a dataset is called among all that a stream has open."""
    return locations[0].url, name
